"""Forms of numbers and of line ends: read alike in the whole file, or a question; never guessed cell by cell."""

from pathlib import Path
from typing import Any

import pytest

from errors import raises_sentence
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import read
from qkv.scripts.data.text_columns import read_corpus

COUNT = 60
PLAIN = ["12", "250.5", "999"]


def scores(folder: Path, values: list[str]) -> str:
    lines = [f"a text {number}\t{values[number % len(values)]}" for number in range(COUNT)]
    (folder / "x.tsv").write_text("\n".join(["text\tscore", *lines]), encoding="utf-8")
    return str(folder / "x.tsv")


def corpus_of(where: str, *words: str) -> Any:
    return read_corpus(infer(where, ["leaked_records=1", *words])[0])


@pytest.mark.parametrize(
    "odd", ["1,007", "1,007.5", "1.007,5", "7.5%", "7 %", "1 007", "1'007.25", "12,5", "1,234,567"]
)
def test_numbers_in_several_forms_are_a_question(odd: str, tmp_path: Path) -> None:
    where = scores(tmp_path, [*PLAIN, odd])
    for words in ([], ["text.label=score"], ["model.problem_type=regression"], ["task=regression", "text.label=score"]):
        with raises_sentence(where, "'score'", repr(odd), "1007.5", "task=text-classification text.label=score"):
            infer(where, words)
    assert corpus_of(where, "task=text-classification", "text.label=score").names == sorted([*PLAIN, odd])


@pytest.mark.parametrize("name", ["amount", "note"])
def test_a_column_in_an_unclear_form_beside_a_class_is_not_learned(name: str, tmp_path: Path) -> None:
    lines = [f"a text {number},{'ab'[number % 2]},{number}%" for number in range(COUNT)]
    (tmp_path / "x.csv").write_text("\n".join([f"text,label,{name}", *lines]))
    assert corpus_of(str(tmp_path / "x.csv")).names == ["a", "b"]


def test_decimal_commas_of_a_whole_column_are_read_and_said(tmp_path: Path) -> None:
    corpus = corpus_of(scores(tmp_path, ["1,5", "2,0", "4"]))
    found = [number for own in corpus.numbers.values() for number in own]
    assert sorted(found) == [1.5] * 20 + [2.0] * 20 + [4.0] * 20
    assert corpus.read.mended == {"score: decimal commas": 40}


def test_a_recipe_reads_no_column_of_both_decimal_marks(tmp_path: Path) -> None:
    recipe, _ = infer(scores(tmp_path, ["1.5", "2.0", "4"]))
    with raises_sentence("'score'", "'2,25'", "'1.5'"):
        scores(tmp_path, ["1.5", "2,25", "4"])
        read_corpus(recipe)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("csv", 'text,label\rone,a\r"two\nlines",b\rthree,a\r'.replace("\n", " ")),
        ("tsv", "text\tlabel\rone\ta\rtwo lines\tb\rthree\ta"),
        ("jsonl", '{"text": "one"}\r{"text": "two lines"}\r{"text": "three"}\r'),
        ("json", '{"text": "one"}\r{"text": "two lines"}\r{"text": "three"}\r'),
        ("txt", "one\rtwo lines\r\rthree"),
    ],
)
def test_lines_of_old_macs(ending: str, text: str, tmp_path: Path, *, streaming: bool) -> None:
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path / f"{encoding}.{ending}"
        path.write_bytes(text.encode(encoding))
        rows = list(read(str(path), streaming=streaming, documents="line"))
        assert [row["text"] for row in rows] == ["one", "two lines", "three"]


def test_a_return_within_a_line_ends_none(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"10 %\r20 %\r\nnext\n")
    assert read(str(tmp_path / "x.txt"), documents="line")["text"][:] == ["10 %\r20 %", "next"]
