"""Tagged words, chains and their structures are read from tables, and rows that do not fit are told."""

import json
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from errors import raises_sentence
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.text_columns import as_list, check_folded, check_tagged, partners_of, read_tagged_words
from recipes import recipe_of

TAGGED = [
    (["Ann", "of", f"X{number}"], ["B-PER", "O", "B-LOC"] if number % 2 else ["O", "O", "O"]) for number in range(40)
]


def lines(*rows: dict[str, object]) -> str:
    return "\n".join(map(json.dumps, rows))


def tagged(where: Path, **text: object) -> object:
    return read_tagged_words(recipe_of(data=str(where), text={"column": "tokens", "label": "tags", **text}))


@pytest.mark.parametrize("value", [["a", "b"], '["a", "b"]', "['a', 'b']", "a b", " a  b\n"])
def test_lists_have_many_forms(value: object) -> None:
    assert as_list(value) == ["a", "b"]


@pytest.mark.parametrize(
    ("check", "one", "other", "reason"),
    [(check_tagged, ["a"], ["O", "O"], "1 words, but 2 tags"), (check_tagged, "[a", "O", "a list"),
     (check_tagged, None, ["O"], "missing"), (check_tagged, [], [], "missing"), (check_tagged, ["a", " "], "O O", "empty"),
     (check_tagged, ["a", None], ["O", "O"], "list"), (check_tagged, {"a": 1}, ["O"], "dict"),
     (check_folded, "GAAC", "(..)(", "4 residues, but a structure of 5"), (check_folded, None, "()", "missing"),
     (check_folded, "GAAC", " ", "empty"), (check_folded, "GA AC", "(...)", "a space"),
     (check_folded, "GAAC", "(.))", "'\\)' at place 4"), (check_folded, "GAAC", "((.)", "'\\(' at place 1"),
     (check_folded, "GAA", "(.]", "'\\]' at place 3"), (check_folded, "GAA", "(x)", "'x' at place 2")],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_told(check: object, one: object, other: object, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        check(one, other)


def test_tagged_rows_are_split_by_their_rarest_tag(tmp_path: Path) -> None:
    path, names = tmp_path / "saved", ClassLabel(names=["B-LOC", "B-PER", "O"])
    features = Features({"tokens": List(Value("string")), "tags": List(names)})
    rows = [{"tokens": words, "tags": [names.str2int(tag) for tag in tags]} for words, tags in TAGGED]
    Dataset.from_list(rows, features=features).save_to_disk(path)
    data = tagged(path)
    assert data.names == ["B-LOC", "B-PER", "O"] and data.labels["train"][1] == [1, 2, 0]
    assert data.report["classes"] == {
        "train": {"B-LOC": 18, "B-PER": 18, "O": 72}, "test": {"B-LOC": 2, "B-PER": 2, "O": 8},
    }  # fmt: skip
    assert sorted(map(len, data.texts.values())) == [4, 36]


def test_tags_that_cannot_be_learned_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(lines(*({"tokens": [f"a{n}"], "tags": ["O"]} for n in range(20))))
    with raises_sentence("'tags'", "'O'"):
        tagged(path)
    with raises_sentence("text.label=tags"):
        tagged(path, label=None)
    with raises_sentence("'words'", "tokens"):
        tagged(path, column="words")
    path.write_text(lines({"tokens": ["a"], "tags": ["O", "O"]}))
    with raises_sentence("row 1", "1 words", "2 tags"):
        tagged(path)


def test_pairs_may_cross_in_brackets_of_another_kind() -> None:
    assert partners_of("((.[[)).]]").tolist() == [6, 5, -1, 9, 8, 1, 0, -1, 4, 3]
    assert partners_of("(.)<>,").tolist() == [2, -1, 0, 4, 3, -1]
