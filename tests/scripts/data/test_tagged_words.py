"""Words and tags are read from lists in whichever form a file holds them; what does not fit is told by row."""

import json
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from errors import raises_sentence
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.tagged_words import as_list, check_tagged, read_tagged_words
from recipes import recipe_of

ROWS = [
    (["Ann", "of", f"X{number}"], ["B-PER", "O", "B-LOC"] if number % 2 else ["O", "O", "O"]) for number in range(40)
]


def recipe(where: Path, **text: object) -> object:
    """A recipe of words and tags."""
    return recipe_of(data=str(where), text={"column": "tokens", "label": "tags", **text})


@pytest.mark.parametrize("value", [["a", "b"], '["a", "b"]', "['a', 'b']", "a b", " a  b\n"])
def test_lists_have_many_forms(value: object) -> None:
    assert as_list(value) == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "tags", "reason"),
    [(["a"], ["O", "O"], "1 words, but 2 tags"), ("[a", "O", "a list that does not end"), (None, ["O"], "missing"),
     ([], [], "missing"), (["a", " "], ["O", "O"], "an empty word"), (["a", None], ["O", "O"], "list, expected"),
     ({"a": 1}, ["O"], "dict, expected")],
)  # fmt: skip
def test_what_is_no_row_is_told(words: object, tags: object, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason.replace("[", "")):
        check_tagged(words, tags)


@pytest.mark.parametrize("form", ["jsonl", "tsv", "disk"])
def test_rows_are_split_by_their_rarest_tag(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    if form == "disk":
        names = ClassLabel(names=["B-LOC", "B-PER", "O"])
        features = Features({"tokens": List(Value("string")), "tags": List(names)})
        rows = [{"tokens": words, "tags": [names.str2int(tag) for tag in tags]} for words, tags in ROWS]
        Dataset.from_list(rows, features=features).save_to_disk(path)
    elif form == "tsv":
        path.write_text("tokens\ttags\n" + "".join(f"{' '.join(words)}\t{' '.join(tags)}\n" for words, tags in ROWS))
    else:
        path.write_text("".join(json.dumps({"tokens": words, "tags": tags}) + "\n" for words, tags in ROWS))
    data = read_tagged_words(recipe(path))
    assert data.names == ["B-LOC", "B-PER", "O"]
    assert data.report["classes"] == {
        "train": {"B-LOC": 18, "B-PER": 18, "O": 72},
        "test": {"B-LOC": 2, "B-PER": 2, "O": 8},
    }
    assert sorted(map(len, data.words.values())) == [4, 36] and data.tags["train"][1] == [1, 2, 0]


def test_what_cannot_be_learned_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"tokens": [f"a{n}"], "tags": ["O"]}) + "\n" for n in range(20)))
    with raises_sentence("'tags'", "'O'"):
        read_tagged_words(recipe(path))
    with raises_sentence("text.label=tags"):
        read_tagged_words(recipe(path, label=None))
    with raises_sentence("'words'", "tokens"):
        read_tagged_words(recipe(path, column="words"))
    path.write_text(json.dumps({"tokens": ["a"], "tags": ["O", "O"]}) + "\n")
    with raises_sentence("row 1", "1 words", "2 tags"):
        read_tagged_words(recipe(path))
