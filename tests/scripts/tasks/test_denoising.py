"""Span corruption as T5's code does it, BART's infilling, and rows that their places alone decide."""

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from errors import raises_sentence
from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.data.stream import Position, Shard
from qkv.scripts.recipes.loading import load
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.denoising import (
    IGNORED,
    SENTINELS,
    Denoising,
    count_noise,
    infill,
    noise_mask,
    permute_sentences,
    replace_spans,
    text_to_text,
    whole_length,
)
from recipes import recipe_of

TEXTS = {"train": ["one two three. four five six. ", "seven eight. ", "a b c d e f g h i j k l. " * 4],
         "test": ["one two three four five six. ", "seven a b. c d e"]}  # fmt: skip
CORPUS = Corpus("c", "t", "s", TEXTS)
DENSITIES = [(0.15, 3), (0.5, 3), (0.3, 1), (0.75, 3), (0.9, 3), (0.05, 10)]


def recipe(**options: Any) -> Recipe:
    return recipe_of(text={"tokenizer": "characters", "length": 16, "corruption": "spans", **options})


def seqio_mask(length: int, density: float, mean_span: float, random: np.random.Generator) -> list[bool]:
    """t5.data.preprocessors.random_spans_noise_mask, in loops; spans are no more than the tokens of either side."""
    whole = max(length, 2)
    noise = min(max(round(whole * density), 1), whole - 1)
    spans = min(max(round(noise / mean_span), 1), whole - noise)
    segments = []
    for items in (whole - noise, noise):
        first = random.permutation([index < spans - 1 for index in range(items - 1)]).tolist()
        sizes = [1]
        for is_first in first:
            sizes = [*sizes, 1] if is_first else [*sizes[:-1], sizes[-1] + 1]
        segments.append(sizes)
    mask: list[bool] = []
    for kept, hidden in zip(*segments, strict=True):
        mask += [False] * kept + [True] * hidden
    return mask[:length]


@pytest.mark.parametrize(("density", "mean_span"), DENSITIES)
def test_masks_are_those_of_the_code_of_t5(density: float, mean_span: float) -> None:
    random, slow = np.random.default_rng(0), np.random.default_rng(1)
    for length in (1, 2, 3, 7, 64):
        masks = [noise_mask(length, density, mean_span, random) for _ in range(200)]
        expected = [seqio_mask(length, density, mean_span, slow) for _ in range(200)]
        assert {int(mask.sum()) for mask in masks} == {sum(mask) for mask in expected}
        spans = [[sum(value for value, _ in groupby(mask)) for mask in each] for each in (masks, expected)]
        assert set(spans[0]) == set(spans[1]) and not any(mask[0] for mask in masks)
        shares = [np.mean(each, axis=0) for each in (masks, expected)]
        assert np.abs(shares[0] - shares[1]).max() < 0.2


def test_all_divisions_are_equally_likely() -> None:
    """Of 7 tokens 3 are hidden, in 2 spans: 3 divisions of the kept ones times 2 of the hidden."""
    random = np.random.default_rng(0)
    seen = Counter(tuple(noise_mask(7, 0.43, 1.5, random).tolist()) for _ in range(3000))
    assert len(seen) == 6 and all(abs(count - 500) < 100 for count in seen.values())


def test_sentinels_stand_for_spans() -> None:
    """Figure 2 of the paper: Thank you for inviting me to your party last week."""
    tokens, mask = np.arange(10, 20), np.isin(np.arange(10), (2, 3, 8))
    assert replace_spans(tokens, mask, np.array([99, 98])).tolist() == [10, 11, 99, 14, 15, 16, 17, 98, 19]
    assert replace_spans(tokens, ~mask, np.array([99, 98, 97])).tolist() == [99, 12, 13, 98, 18, 97]


@pytest.mark.parametrize(("density", "mean_span"), DENSITIES)
def test_rows_are_as_long_as_the_inputs_allow(density: float, mean_span: float) -> None:
    for length in (3, 16, 113, 511):
        filled = {}
        for whole in (whole_length(length, density, mean_span), whole_length(length, density, mean_span) + 1):
            noise, spans = count_noise(whole, density, mean_span)
            filled[whole] = whole - noise + spans
        first, second = filled.values()
        assert first in ((length,) if density < 0.75 else (length, length - 1)) and second > length
    assert whole_length(511, 0.15, 3) == 568  # as in the paper's pre-training: 512 with the end, and 114 targets


def test_infilling_hides_its_share_behind_one_mask_a_span() -> None:
    random, tokens = np.random.default_rng(0), np.arange(1, 101)
    rows = [infill(tokens, 0.3, 3.0, 0, random) for _ in range(300)]
    for row in rows:
        kept = row[row > 0]
        assert len(kept) == 70 and (np.diff(kept) > 0).all() and len(row) <= 100
    masks = np.mean([(row == 0).sum() for row in rows])
    assert masks == pytest.approx(30 / 3 + 0.5, abs=0.7)  # the last span is cut
    assert len(infill(tokens[:1], 0.3, 3.0, 0, random)) == 1
    assert all(len(infill(tokens, 0.1, 1.0, 0, random)) <= 100 for _ in rows)


def test_an_empty_span_inserts_a_mask() -> None:
    random = np.random.default_rng(0)
    rows = [infill(np.arange(1, 7), 0.34, 1.0, 0, random).tolist() for _ in range(200)]
    inserted = [row for row in rows if any(row[start : start + 3] in ([1, 0, 2], [3, 0, 4]) for start in range(6))]
    assert inserted and all(len([token for token in row if token]) == 4 for row in rows)


def test_sentences_are_shuffled_whole() -> None:
    ends = np.zeros(10, bool)
    ends[9] = True
    row = np.array([1, 2, 9, 3, 9, 4, 5, 9])
    found = {tuple(permute_sentences(row, ends, np.random.default_rng(seed)).tolist()) for seed in range(50)}
    assert len(found) == 6 and (3, 9, 4, 5, 9, 1, 2, 9) in found


@pytest.fixture(params=["spans", "infilling"])
def task(request: pytest.FixtureRequest) -> Denoising:
    return Denoising(recipe(corruption=request.param, noise_density=0.3), CORPUS)


def test_rows_are_packed_and_fill_the_length(task: Denoising) -> None:
    batch = task.collate(task.train.__getitems__(range(len(task.train) - 1)), range(len(task.train) - 1))
    full = batch["input_ids"] if task.has_sentinels else batch["labels"]
    assert full.shape[1] == 16 and bool((full[:, -1] == task.processor.eos_token_id).all())
    rows = [row[row != IGNORED] for row in task.train.columns["input_ids"]]
    assert task.processor.decode(torch.cat(rows)) == "".join(TEXTS["train"])
    assert bool((batch["attention_mask"] == (batch["input_ids"] != task.processor.pad_token_id)).all())


def test_inputs_and_targets_are_the_text_together(task: Denoising) -> None:
    record = task.train.__getitems__([0])
    batch = {name: value[0].tolist() for name, value in task.collate(record, [3]).items()}
    inputs, labels = batch["input_ids"], [token for token in batch["labels"] if token != IGNORED]
    row = [token for token in record[0]["input_ids"].tolist() if token != IGNORED]
    if not task.has_sentinels:
        assert labels == [*row, task.processor.eos_token_id] and task.processor.mask_token_id in inputs
        return
    known = task.sentinels.tolist()
    assert known == sorted(known, reverse=True) and len(task.processor) == known[0] + 1
    assert task.processor.convert_tokens_to_ids(["<extra_id_0>", f"<extra_id_{SENTINELS - 1}>"]) == [
        known[0], known[0] - SENTINELS + 1,
    ]  # fmt: skip
    spans, last = dict[int, list[int]](), -1
    for token in labels[:-1]:
        last = token if token in known else last
        spans[last] = [*spans.get(last, []), *([] if token in known else [token])]
    assert [part for token in inputs[:-1] for part in spans.get(token, [token])] == row


def test_a_place_decides_and_neighbours_do_not(task: Denoising) -> None:
    records = task.train.__getitems__([0, 2, 0])
    whole, alone = task.collate(records, [5, 6, 7]), task.collate(records[1:2], [6])
    for name, column in alone.items():
        assert torch.equal(whole[name][1, : column.shape[1]], column[0])
    assert not torch.equal(whole["input_ids"][0], whole["input_ids"][2])


def test_evaluation_asks_for_the_same_spans_each_time(task: Denoising) -> None:
    other = Denoising(recipe(corruption=task.text.corruption, noise_density=0.3), CORPUS)
    for name, column in task.splits["test"].columns.items():
        assert torch.equal(column, other.splits["test"].columns[name])
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    fields = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, **task.config}
    model = qkv.QkvEncoderDecoderForConditionalGeneration(qkv.QkvEncoderDecoderConfig(**fields)).eval()
    outputs = model(**batch)
    right = (outputs.logits.argmax(-1) == batch["labels"]).sum()
    assert task.score(outputs, batch) == {"accuracy": right} and task.count(batch) > 0
    assert set(task.measure({"loss": 2.0, "targets": 2.0, "accuracy": 1.0}, [])) == {"loss", "accuracy", "perplexity"}


def test_a_model_without_sentinels_is_refused(tmp_path: Path) -> None:
    task = Denoising(recipe(corruption="infilling"), CORPUS)
    fields = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, **task.config}
    qkv.QkvEncoderDecoderForConditionalGeneration(qkv.QkvEncoderDecoderConfig(**fields)).save_pretrained(tmp_path)
    task.processor.save_pretrained(tmp_path)
    started = recipe_of(init=str(tmp_path), text={"length": 16, "corruption": "spans"})
    with raises_sentence("<extra_id_0>", "text.corruption=infilling"):
        Denoising(started, CORPUS)


def test_streams_are_packed_alike(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n\n".join(TEXTS["train"]))
    words = [f"data={tmp_path}", "text.tokenizer=bytes", "text.length=16", "streaming=true", "shards=1", "holdout=0"]
    made = load("docs-tasks", ["task=denoising", *words])
    task = registry.load(made)
    record = next(Shard(task.train, made, 0, vars(Position())).examples())
    assert task.collate([record], [0])["input_ids"].shape == (1, 16)


@pytest.mark.parametrize(
    ("name", "words", "parts"),
    [
        (
            "docs-tasks",
            ["data=django-paragraphs", "task=denoising", "text.target=text"],
            ("text.corruption='spans'", "text.target"),
        ),
        (
            "docs-tasks",
            ["data=django-paragraphs", "task=denoising", "data=numbers"],
            ("text.corruption='spans'", "text.target"),
        ),
        (
            "docs-tasks",
            ["data=django-paragraphs", "task=denoising", "text.permute_sentences=true"],
            ("text.permute_sentences=true", "infilling"),
        ),
        ("docs-mlm", ["text.corruption=spans"], ("text.corruption=spans", "'QkvEncoderForMaskedLM'")),
        ("docs-lm", ["text.task=kind"], ("text.task=kind", "'QkvDecoderForCausalLM'")),
    ],
)
def test_fields_that_nothing_reads_are_refused(
    name: str, words: list[str], parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for example in ("django-paragraphs", "docstrings"):
        monkeypatch.setitem(registry.EXAMPLE_DATA[Corpus], example, lambda recipe: CORPUS)
    with raises_sentence(*parts):
        registry.load(load(name, words))


def test_targets_alone_make_a_translation() -> None:
    corpus = paired("c", "t", "s", [("b", "z"), ("a", "x y")])
    assert type(text_to_text(recipe(corruption=None), corpus)).__name__ == "Seq2Seq"
