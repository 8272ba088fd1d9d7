"""Infilling: parts that join to the text, drawn by seed and place, never longer; of evaluated texts the middle counts."""

import json
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import pipeline

from errors import raises_sentence
from qkv.scripts.cli import main
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.stream import Position, Shard
from qkv.scripts.tasks.causal_lm import IGNORED
from qkv.scripts.tasks.infilling import MIDDLE, PREFIX, SUFFIX, InfillingLM, causal_lm
from qkv.scripts.tasks.registry import load
from recipes import recipe_of

Runs = Callable[[str], Path]
TEXTS = [f"def f{n}(x):\n    return  x + {n}  # é\n" for n in range(30)]
PSM = re.compile(re.escape(PREFIX) + "(.*)" + re.escape(SUFFIX) + "(.*)" + re.escape(MIDDLE) + "(.*)</s>", re.DOTALL)


def task(rate: float = 0.999, length: int = 64, seed: int = 0, kind: str = "bytes", **splits: list[str]) -> InfillingLM:
    recipe = recipe_of(text=dict(tokenizer=kind, length=length, fim_rate=rate), seed=seed)
    made = causal_lm(recipe, Corpus("c", "t", "s", {"train": TEXTS, "test": TEXTS, **splits}))
    assert isinstance(made, InfillingLM)
    return made


def test_a_text_is_split_between_its_cuts() -> None:
    made = task(length=16)
    ids = np.asarray(made.tokenizer("abcdefghijkl")["input_ids"])
    cuts: list[tuple[float, float]] = [(0.5, 0.2), (0.0, 0.0), (0.999, 0.0)]
    assert [made.tokenizer.decode(made.split(ids, each)) for each in cuts] == [
        f"{PREFIX}ab{SUFFIX}ghijkl{MIDDLE}cdef</s>",
        f"{PREFIX}{SUFFIX}abcdefghijkl{MIDDLE}</s>",
        f"{PREFIX}{SUFFIX}{MIDDLE}abcdefghijkl</s>",
    ]
    made.length = 13  # for words that are cut have more tokens: the end of the suffix is left out
    assert made.tokenizer.decode(made.split(ids, cuts[0])) == f"{PREFIX}ab{SUFFIX}ghi{MIDDLE}cdef</s>"
    assert made.split(ids, cuts[2]) is ids
    assert made.split(ids[:0], (0.5, 0.5)).tolist() == [*made.sentinels, made.tokenizer.eos_token_id]
    for text in ("é", f"a{MIDDLE}b"):  # half a letter, and a control word
        part = np.asarray(made.tokenizer(text)["input_ids"])[-3:][-1 if text == "é" else 0 :]
        assert made.split(part, (0.5, 0.5)) is part


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_training_pieces_keep_their_length_and_join_to_the_text(kind: str) -> None:
    made = task(kind=kind, length=24)
    records = made.train.__getitems__(range(len(made.train)))
    batch = made.collate(records, range(len(records)))
    assert {*batch} == {"input_ids", "labels", "attention_mask"} and batch["input_ids"].shape[1] <= 24
    assert (batch["labels"] == batch["input_ids"]).equal(batch["labels"] != IGNORED)
    found = [made.tokenizer.decode(labels[labels != IGNORED]) for labels in batch["labels"]]
    parts = [match.groups() for text in found if (match := PSM.fullmatch(text))]
    assert len(parts) > 0.8 * len(found)
    assert all(any(prefix + middle + suffix in text for text in TEXTS) for prefix, suffix, middle in parts)


def test_draws_follow_from_seed_and_place() -> None:
    made, other = task(), task(seed=1)
    records = made.train.__getitems__(range(4))

    def rows(task: InfillingLM, numbers: list[int], first: int = 0) -> list[list[int]]:
        labels = task.collate(records[first:], numbers)["labels"]
        return [row[row != IGNORED].tolist() for row in labels]

    assert rows(made, [7, 8, 9, 10]) == rows(made, [7, 8, 9, 10])
    assert rows(made, [7, 8, 9, 10])[1:] == rows(made, [8, 9, 10], 1), "a row does not depend on its batch"
    assert rows(made, [7, 8, 9, 10]) != rows(made, [8, 9, 10, 11])
    assert rows(made, [7, 8, 9, 10]) != rows(other, [7, 8, 9, 10])


def test_the_rate_is_the_share_of_texts() -> None:
    made = task(0.25, train=[f"{n:04d} and more of it, {n}\n" for n in range(2000)])
    records = made.train.__getitems__(range(len(made.train)))
    batch = made.collate(records, range(len(records)))
    assert 0.22 < (batch["input_ids"] == made.sentinels[-1]).sum() / len(records) < 0.28


def test_middles_alone_are_evaluated_and_never_change() -> None:
    made, other = task(0.1, seed=1), task(0.9, seed=2)
    rows = made.splits["test"].columns
    assert all(rows[name].equal(other.splits["test"].columns[name]) for name in rows)
    batch = made.collate(made.splits["test"].__getitems__(range(5)), None)
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        text, learned = made.tokenizer.decode(ids), made.tokenizer.decode(labels[labels != IGNORED])
        assert text.partition(MIDDLE)[2].startswith(learned) and learned.endswith("</s>")
    logits = torch.nn.functional.one_hot(batch["input_ids"].roll(-1, 1), made.config["vocab_size"]).float()
    scores = made.score(type("Outputs", (), {"logits": logits}), batch)
    assert int(scores["accuracy"]) == made.count(batch) and int(scores["_exact"]) == int(scores["_texts"]) == 5


def test_a_stream_is_learned_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps({"text": text * 3}) for text in TEXTS))
    text = dict(tokenizer="bytes", length=24, fim_rate=0.9)
    recipe = recipe_of(
        text=text, data=str(tmp_path), architecture="QkvDecoderForCausalLM", streaming=True, shards=1, holdout=0.0
    )
    made = load(recipe)
    records = list(islice(Shard(made.train, recipe, 0, vars(Position())).examples(), 9))
    assert max(len(record["input_ids"]) for record in records) == 20
    batch = made.collate(records, range(9))
    assert batch["input_ids"].shape == (9, 24) and batch.keys() == {"input_ids", "labels", "attention_mask"}


def test_middles_are_filled_in_as_transformers_would(run_of: Runs, tmp_path: Path) -> None:
    run, prompt = run_of("infilled"), f"{PREFIX}warm {SUFFIX} dull{MIDDLE}"
    rows = [prompt, "warm", f"{PREFIX}{'warm ' * 90}{SUFFIX}{MIDDLE}"]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"text": row}) for row in rows))
    words = ["max_new_tokens=4", "batch_size=1", "--out", str(tmp_path / "out.jsonl")]
    assert main(["predict", str(run), str(tmp_path / "in.jsonl"), *words]) == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    theirs = pipeline("text-generation", model=str(run))(
        prompt, max_new_tokens=4, return_full_text=False, do_sample=False
    )
    assert found[0]["prediction"] == theirs[0]["generated_text"]
    assert [row.get("error") is None for row in found] == [True, True, False] and "tokens" in found[2]["error"]


def test_wrong_recipes_are_refused(tmp_path: Path) -> None:
    with raises_sentence("text.fim_rate", "text.tokenizer=bpe"):
        task(kind="words")
    text = dict(tokenizer="bytes", length=8, fim_rate=0.5, made=20)
    with raises_sentence("text.fim_rate=0.5", "'copy'"):
        load(recipe_of(text=text, data="copy", architecture="QkvDecoderForCausalLM"))
    with raises_sentence("text.fim_rate=0.5", "ForCausalLM", "'QkvEncoderForMaskedLM'"):
        load(recipe_of(text=text, data="docstrings", architecture="QkvEncoderForMaskedLM"))
