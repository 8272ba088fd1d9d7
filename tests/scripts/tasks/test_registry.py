"""Data sets are found by name; every recipe builds its model and takes steps; prompts are the first rows of a test."""

import json
from pathlib import Path

import pytest
import torch

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.stream import Position, Shard
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import LONGEST, first, shorten
from qkv.scripts.training.record import read_metrics
from qkv.scripts.training.run import train
from recipes import LINES, STAND_INS, tiny_words, write_data


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No manual is fetched, and no library read."""
    for name, maker in STAND_INS.items():
        monkeypatch.setitem(data.EXAMPLE_DATA[Corpus], name, maker)
    write_data(tmp_path)
    return tmp_path


@pytest.mark.costly(4)
@pytest.mark.parametrize("name", [name for name in recipe.names() if name not in ("digits", "shapes-detect")])
def test_every_recipe_takes_steps(name: str, here: Path) -> None:
    finished = train(recipe.load(name, [*tiny_words(name, here), f"out={here / 'run'}"]), f"qkv train {name}")
    losses = [line["loss"] for line in read_metrics(here / "run") if "split" not in line]
    assert losses and all(0 < loss < 10 for loss in losses)
    assert finished.record["metrics"] and (name == "vit-b16" or (here / "run" / "tokenizer.json").is_file())


def test_translations_are_read_by_language(here: Path) -> None:
    words = [f"data={here / 'lines'}", "text.vocab_size=300"]
    task = data.load(recipe.load("transformer-base", words))
    assert task.sizes() == {"train": 108, "test": 12}
    batch = task.collate(task.train.__getitems__([0]), [0])
    source, target = (
        task.processor.decode(batch[name][0], skip_special_tokens=True) for name in ("input_ids", "labels")
    )
    assert source == target[::-1] and source in LINES


def test_labels_are_numbered_by_the_training(here: Path) -> None:
    (here / "labelled").mkdir()
    for split, own in (("train", range(8)), ("test", range(8, 12))):
        rows = [json.dumps({"text": f"{LINES[index]} {index}", "kind": "ab"[index % 2]}) for index in own]
        (here / "labelled" / f"{split}.jsonl").write_text("\n".join(rows))
    words = [f"data={here / 'labelled'}", "text.label=kind", "text.vocab_size=300"]
    task = data.load(recipe.load("docs-classify", words))
    assert task.labels == ["a", "b"] and task.train.columns["labels"].tolist() == [0, 1] * 4
    with (here / "labelled" / "test.jsonl").open("a") as file:
        file.write('\n{"text": "c", "kind": "c"}')
    with pytest.raises(ValueError, match="'c'"):
        data.load(recipe.load("docs-classify", words))


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("digits", ["data=digit"], "there is no data set 'digit'; did you mean 'digits'?"),
        ("docs-lm", ["architecture=QkvDecoderForTokenClassification"], "data='docstrings'"),
        ("tunes", ["architecture=QkvEncoderForMaskedLM"], "architecture='QkvEncoderForMaskedLM'"),
        ("translate", ["streaming=true"], "streaming=true .*'QkvEncoderDecoderForConditionalGeneration'"),
        ("docs-lm", ["streaming=true"], "streaming=true .*'docstrings'"),
        ("docs-lm", ["text.tokenizer=bpee"], "text.tokenizer='bpee'"),
    ],
)
def test_what_cannot_be_learned_is_refused(name: str, words: list[str], message: str, here: Path) -> None:
    with pytest.raises(ValueError, match=message):
        data.load(recipe.load(name, words))


def test_bytes_need_no_training_and_so_may_stream(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        rows = [json.dumps({"text": f"{split} text {number}"}) for number in range(9)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    words = [f"data={tmp_path}", "text.tokenizer=bytes", "text.length=32", "shards=1"]
    table, stream = (data.load(recipe.load("docs-lm", [*words, f"streaming={word}"])) for word in ("false", "true"))
    expected, found = (task.splits["validation"].columns for task in (table, stream))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    first = next(Shard(stream.train, recipe.load("docs-lm", words), 0, vars(Position())).examples())
    assert stream.processor.decode(first["input_ids"]).startswith("train text")


# Prompts --------------------------------------------------------------------------------------------------------------


def test_the_first_row_of_the_test_comes_before_that_of_validation() -> None:
    assert first({"train": ["a"], "validation": ["b"], "test": ["c", "d"]}) == "c"
    assert first({"train": ["a"], "validation": ["b"], "test": []}) == "b" and first({"train": ["a"]}) is None


@pytest.mark.parametrize("text", ["pea soup", "pea soup " * 100, "p" * 1000, "x" * LONGEST, " " * 400 + "x"])
def test_a_long_text_is_cut_between_words(text: str) -> None:
    short = shorten(text)
    assert len(short) <= LONGEST and text.strip().startswith(short) and short
    assert set(short.split()) <= {*text.split(), "p" * LONGEST}
