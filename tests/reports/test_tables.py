"""Public reports about tables of texts, each tried here on rows that are counted by hand."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errors import raises_sentence
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import read
from qkv.scripts.data.text_columns import read_corpus
from qkv.scripts.prediction.outputs import write_table

COUNT = 60


def table(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


def corpus_of(where: str, *words: str) -> Any:
    return read_corpus(infer(where, ["leaked_records=1", *words])[0])


def test_words_for_missing_values_are_texts(tmp_path: Path) -> None:
    words = ["NA", "null", "None", "nan", "n/a", "NULL", "#N/A", "-", "true", "1e5", "007"]
    where = table(
        tmp_path / "x.csv", "text,label\n" + "".join(f"{word},{number % 2}\n" for number, word in enumerate(words))
    )
    assert read(where)["text"][:] == words
    rows = "".join(f"{word} {number},{'NA' if number % 2 else 'null'}\n" for number in range(3) for word in words)
    corpus = corpus_of(table(tmp_path / "y.csv", "text,label\n" + rows))
    assert corpus.names == ["NA", "null"] and sum(map(len, corpus.texts.values())) == 3 * len(words)
    assert corpus.invalid_records.skipped == []


IDS = [9007199254740993, None, 5]  # the first is no double


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("out", ["csv", "jsonl", "parquet"])
def test_numbers_beside_missing_ones_keep_their_digits(ending: str, out: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table({"text": ["a", "b", "c"], "id": pa.array(IDS, pa.int64())}), path)
    else:
        rows: list[dict[str, Any]] = [{"text": text, "id": own} for text, own in zip("abc", IDS, strict=True)]
        write_table(path, ["text", "id"], lambda: rows)
    made = tmp_path / f"made.{out}"
    write_table(made, ["text", "id"], lambda: read(str(path)), path)
    again = read(str(made))["id"][:]
    assert ["" if own is None else str(own) for own in again] == ["9007199254740993", "", "5"]


def test_more_digits_than_sixty_four_bits_are_a_text(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "a", "id": own}) for own in (11898508762506083287, 3)]
    assert read(table(tmp_path / "x.jsonl", "\n".join(lines)))["id"][:] == ["11898508762506083287", "3"]


SEPARATORS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "txt"])
def test_no_other_letter_ends_a_line(ending: str, tmp_path: Path, *, streaming: bool) -> None:
    texts = [f"a{separator}b" for separator in SEPARATORS]
    lines = {
        "jsonl": [json.dumps({"text": text, "label": "x"}, ensure_ascii=False) for text in texts],
        "txt": texts,
        "csv": ["text,label", *(f"{text},x" for text in texts)],
        "tsv": ["text\tlabel", *(f"{text}\tx" for text in texts)],
    }[ending]
    rows = read(table(tmp_path / f"x.{ending}", "\n".join(lines) + "\n"), streaming=streaming, documents="line")
    assert [row["text"] for row in rows] == texts


def test_a_column_twice_is_named(tmp_path: Path) -> None:
    with raises_sentence("label"):
        read(table(tmp_path / "x.csv", "text,label,label\na,x,y\n"))
    columns = [pa.array(["a", "b"]), pa.array(["x", "y"]), pa.array(["p", "q"])]
    pq.write_table(pa.table(columns, names=["text", "label", "label"]), tmp_path / "x.parquet")
    with raises_sentence(str(tmp_path / "x.parquet"), "duplicate"):
        read(str(tmp_path / "x.parquet"))


def test_marks_of_byte_order_are_no_part_of_a_name(tmp_path: Path) -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        for ending, text in (("csv", '"text",label\na,x\n'), ("jsonl", '{"text": "a", "label": "x"}\n')):
            (row,) = read(table(tmp_path / f"{encoding}.{ending}", text, encoding))
            assert (row["text"], row["label"]) == ("a", "x")


def test_a_separator_at_the_end_moves_no_column(tmp_path: Path) -> None:
    rows = "".join(f"some words {number},{'ab'[number % 2]}," + "\n" for number in range(COUNT))
    corpus = corpus_of(table(tmp_path / "y.csv", "text,label,\n" + rows))
    assert corpus.names == ["a", "b"] and sum(map(len, corpus.texts.values())) == COUNT


def test_a_first_row_is_no_header(tmp_path: Path) -> None:
    rows = "".join(f"some words {number},{'ab'[number % 2]}\n" for number in range(COUNT))
    with raises_sentence("'a'", "'some words 0'", "text,label"):
        corpus_of(table(tmp_path / "x.csv", rows))
    assert corpus_of(table(tmp_path / "y.csv", "a text,a\n" + rows.replace(",a", ",c"))).names == ["b", "c"]


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    halves = [f"some words {number};{number},5" for number in range(COUNT)]
    corpus = corpus_of(table(tmp_path / "x.csv", "text;score\n" + "\n".join(halves)))
    found = [number for split in corpus.numbers.values() for number in split]
    assert sorted(found) == [number + 0.5 for number in range(COUNT)]


def test_quotes_of_tsv_join_no_rows(tmp_path: Path) -> None:
    rows = read(table(tmp_path / "x.tsv", 'text\tlabel\n"To be\tgood\nfine\tbad\nnot to be"\tbad\nx "y"\tgood\n'))
    assert rows["text"][:] == ['"To be', "fine", 'not to be"', 'x "y"']
    assert rows["label"][:] == ["good", "bad", "bad", "good"]
    (row,) = read(table(tmp_path / "y.tsv", 'text\tlabel\n"one ""and""\nthe same"\tgood\n'))
    assert row["text"] == 'one "and"\nthe same'


def test_a_key_twice_is_named(tmp_path: Path) -> None:
    with raises_sentence("row 1", "'label'"):
        read(table(tmp_path / "x.jsonl", '{"text": "a", "label": "x", "label": "y"}\n'))


def test_utf_sixteen_without_its_mark_is_named(tmp_path: Path) -> None:
    path, text = tmp_path / "x.csv", "text,label\na,x\n"
    with raises_sentence(str(path), "utf-16-le"):
        read(table(path, text, "utf-16-le"))
    assert read(str(path), encoding="utf-16-le")["text"][:] == ["a"]


@pytest.mark.parametrize("names", [["pos", "pos ", " neg", "neg"], ["caf\u00e9", "cafe\u0301"]])
def test_classes_that_look_alike_are_said(names: list[str], tmp_path: Path, capsys: Any) -> None:
    rows = "".join(f"some words {number},{names[number % len(names)]}\n" for number in range(COUNT))
    assert {*corpus_of(table(tmp_path / "x.csv", "text,label\n" + rows)).names} == {*names}
    said = capsys.readouterr().err
    assert all(ascii(name) in said for name in names)
