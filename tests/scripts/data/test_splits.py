"""Splits of your own data: seeded, stratified, by group, without leaks, whatever the order in the file."""

import io
import json
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qkv.scripts.data.corpus import paired
from qkv.scripts.data.splits import duplicates
from qkv.scripts.data.splits.division import divide_rows, split_rows
from qkv.scripts.data.splits.duplicates import file_sketches, find_leaks, sketch_bytes, sketch_image, sketch_text
from qkv.scripts.data.text_columns import read_corpus
from recipes import recipe_of

SHARES = {"test": 0.1, "validation": 0.2}
WORDS = "the form checks each field and shows errors beside its widget when a page is sent by its reader".split()


@given(st.lists(st.sampled_from("abc"), min_size=10, max_size=200), st.integers(0, 5))
def test_every_row_is_in_one_split_with_the_classes_of_the_whole(labels, seed):
    splits = split_rows(SHARES, range(len(labels)), labels, seed)
    assert sorted(row for rows in splits.values() for row in rows) == list(range(len(labels)))
    whole = Counter(labels)
    for name, share in SHARES.items():
        counts = Counter(labels[row] for row in splits[name])
        assert all(abs(counts[label] - share * size) < 1 or size < 4 for label, size in whole.items()), name
    assert set(whole) == {labels[row] for row in splits["train"]}


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 5))
def test_a_group_is_never_in_two_splits(more, seed):
    groups = [*range(8), *more]
    splits = split_rows({"test": 0.4}, groups, seed=seed)
    assert all(rows == sorted(rows) for rows in splits.values())
    assert not {groups[row] for row in splits["train"]} & {groups[row] for row in splits["test"]}


@pytest.mark.parametrize(("labels", "said"), [([0] * 4, "10% of 4 rows"), (range(20), "problem_type=regression")])
def test_a_split_without_rows_is_refused(labels, said):
    with pytest.raises(ValueError, match=said):
        split_rows({"test": 0.1}, range(len(labels)), labels)
    with pytest.raises(ValueError, match="^(?!.*problem_type)"):  # a field of labels
        split_rows({"test": 0.1}, [0] * len(labels))


def rows(count: int = 100) -> list[dict[str, str]]:
    """Texts of two classes that take turns."""
    return [{"text": f"sentence {'abcdefghij'[row % 10]} {row * 7919}", "kind": "xy"[row % 2], "writer": row // 5}
            for row in range(count)]  # fmt: skip


def corpus(folder: Path, lines: list[dict[str, str]], text=None, **fields: object):
    for name, own in (lines if isinstance(lines, dict) else {"own": lines}).items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, own)))
    where = folder if isinstance(lines, dict) else folder / "own.jsonl"
    return read_corpus(recipe_of(data=str(where), text={"label": "kind", **(text or {})}, **fields))


def test_the_order_of_a_file_changes_no_split_and_the_seed_does(tmp_path: Path) -> None:
    found = [corpus(tmp_path, own, holdout=0.2) for own in (rows(), random.Random(0).sample(rows(), 100))]
    assert found[0].report["classes"] == found[1].report["classes"]
    classes = {name: Counter(own) for name, own in found[0].report["classes"].items()}
    assert classes == {"train": {"x": 35, "y": 35}, "validation": {"x": 10, "y": 10}, "test": {"x": 5, "y": 5}}
    assert corpus(tmp_path, rows(), split_seed=1).texts["test"] != corpus(tmp_path, rows()).texts["test"]
    ordered = {"train": rows(140)[100:], "test": sorted(rows(), key=lambda row: row["kind"])}
    assert corpus(tmp_path, ordered, {"evaluated": 10}).report["classes"]["test"] == {"x": 5, "y": 5}


def test_the_last_rows_are_the_test_where_time_decides(tmp_path: Path) -> None:
    found = corpus(tmp_path, rows(), split="time", holdout=0.1, test_size=0.2).texts
    assert found["test"] == [row["text"] for row in rows()[80:]]
    assert found["validation"] == [row["text"] for row in rows()[70:80]] and len(found["train"]) == 70


def test_equal_rows_and_rows_of_one_group_stay_together(tmp_path: Path) -> None:
    own = corpus(tmp_path, rows(40) * 3)
    assert not set(own.texts["train"]) & set(own.texts["test"]) and len(own.texts["test"]) == 12
    assert own.report["leaked"] == {"test": {"equal": 0, "similar": 0}}
    writer = {row["text"]: row["writer"] for row in rows()}
    held = [{writer[text] for text in own} for own in corpus(tmp_path, rows(), group="writer").texts.values()]
    assert not held[0] & held[1]


def test_rows_of_two_splits_are_counted_and_too_many_refused(tmp_path: Path) -> None:
    train, test = rows(80), [*rows(4), *({**row, "text": row["text"].upper()} for row in rows(6)[4:]), *rows(100)[80:]]
    with pytest.raises(ValueError, match="4 of 26 rows of the test split .* leaked_records=0.01 .* row 1 of test"):
        corpus(tmp_path, {"train": train, "test": test})
    leaked = corpus(tmp_path, {"train": train, "test": test}, leaked_records=1).report["leaked"]["test"]
    assert leaked["equal"] == 4 and leaked["similar"] >= 2


def test_example_data_are_divided_evenly() -> None:
    made = paired("n", "t", "s", [(str(number), str(-number)) for number in range(20)])
    assert made.texts["test"] == ["0", "10"] and made.targets["test"] == ["0", "-10"]
    held = replace(made, labels={"train": list(range(18)), "test": [0, 1]}).divided(recipe_of(holdout=0.2))
    assert held.labels["validation"] == [4, 9, 14] and held.texts["validation"] == ["5", "11", "16"]
    assert made.divided(recipe_of()) == made and held.divided(recipe_of(holdout=0.5)) == held
    few = made.divided(recipe_of(text={"evaluated": 1}))
    assert few.texts == {**made.texts, "test": ["0"]} and few.targets["test"] == ["0"]
    with pytest.raises(ValueError, match="holdout=0.05 of 18 examples"):
        made.divided(recipe_of(holdout=0.05))


def noise(seed, side=64):
    """A picture of soft random shapes."""
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)


def leaks(*splits):
    kinds = {str: sketch_text, bytes: sketch_bytes}
    return find_leaks(*([kinds.get(type(value), sketch_image)(value) for value in rows] for rows in splits))


@pytest.mark.parametrize(("one", "other"), [("a b c", "x y z"), (b"\0\1", b"\3"), (noise(1), noise(2))], ids=type)
def test_equal_rows_are_found_whatever_they_are(one, other):
    assert leaks([other, one], [one])[0] == {0: 1} and leaks([other], [one])[0] == {}
    assert leaks([noise(1, side=8)], [noise(2, side=8)]) == ({}, None)  # small images are alike whatever they show


def jaccard(one, other):
    def runs(text):
        plain = " ".join(re.findall(r"\w+", text.lower()))
        return {plain[at : at + 5] for at in range(len(plain) - 4)}

    return len(runs(one) & runs(other)) / len(runs(one) | runs(other))


def test_near_texts_are_those_of_like_shingles(monkeypatch):
    train, evaluated = (
        [" ".join(np.random.default_rng((seed, n)).choice(WORDS, 30)) for n in range(60 - 20 * seed)] for seed in (0, 1)
    )
    evaluated[:10] = [text.upper().replace(" ", "  ") + "!" for text in train[:10]]
    evaluated[10:20] = [text.replace(text.split()[3], "another", 1) for text in train[10:20]]
    expected = {row for row, text in enumerate(evaluated) if max(jaccard(text, other) for other in train) >= 0.8}
    assert set(leaks(train, evaluated)[1]) == expected >= set(range(10)) and not set(range(20, 40)) & expected
    assert leaks(["", "é"], ["b"]) == ({}, {}) and leaks([], ["b"]) == ({}, None) == leaks(["b"], [])
    monkeypatch.setattr(duplicates, "MOST", 1)
    assert leaks(train, [train[0], train[1].upper()]) == ({0: 0}, None)


def test_copies_of_an_image_are_found_and_others_are_not(tmp_path: Path) -> None:
    train, compressed = [noise(seed) for seed in range(20)], io.BytesIO()
    train[3].save(compressed, "JPEG", quality=60)
    copies = [Image.open(compressed).convert("RGB"), train[4].resize((48, 48))]
    assert leaks(train, [*copies, *(noise(seed) for seed in range(100, 140))]) == ({}, {0: 3, 1: 4})
    tables = {}
    for split, name in {"train": "a.png", "test": "b.bmp", "validation": "c.jpg"}.items():
        train[0].save(tmp_path / name)
        tables[split] = Dataset.from_list([{"image": {"path": str(tmp_path / name), "bytes": None}}])
    division = divide_rows(file_sketches(tables, "image"), recipe_of(leaked_records=1), tables)
    found = {name: (own["equal"], own["similar"]) for name, own in division.report["leaked"].items()}
    assert found == {"test": (1, 0), "validation": (0, 1)}
