"""Encodings: a byte order mark is believed, anything else is what the recipe says, and what is wrong is said."""

from pathlib import Path

import pytest

from errors import raises_sentence
from qkv.scripts.data.encoding import check_encoding, encoding_of, open_bytes
from qkv.scripts.data.loading import read

TEXT = 'text,label\nKäse,a\n"日本\n語",b\n„Zitat“,c\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(TEXT, encoding=encoding, newline="")
    assert encoding_of(path, "latin-1") == {"utf-8": "latin-1", "utf-8-sig": "utf-8"}.get(encoding, encoding)
    assert read(str(path))["text"][:] == ["Käse", "日本\n語", "„Zitat“"]


@pytest.mark.parametrize(
    ("encoding", "text", "guess"),
    [("latin-1", "Käse", "latin-1"), ("cp1252", "„Käse“", "cp1252"), ("shift_jis", "日本語", "cp1252")],
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".txt"])
def test_another_encoding_is_read_when_it_is_given(
    tmp_path: Path, encoding: str, text: str, guess: str, suffix: str
) -> None:
    path = tmp_path / f"x{suffix}"
    record = f'{{"text": "{text}"}}'
    content = {".csv": f"text,n\n{text},1\n", ".jsonl": record, ".json": f"[{record}]", ".txt": text}[suffix]
    path.write_bytes(content.encode(encoding))
    assert read(str(path), encoding=encoding)["text"][:] == [text]
    with raises_sentence("row", "byte", f"encoding={guess}"):
        read(str(path))


def test_a_header_in_another_encoding_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("Käse,n\na,1\n".encode("latin-1"))
    with raises_sentence("header", "byte 1", "encoding=latin-1"):
        read(str(path))
    assert read(str(path), encoding="latin-1").column_names[0] == "Käse"


def test_what_cannot_be_decoded_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xff\xfea\x00b")
    with raises_sentence("UTF-16", "byte 4"):
        open_bytes(str(path), "utf-16")
    for word in ("latin1x", "hex"):
        with raises_sentence(f"encoding='{word}'", "utf-8"):
            check_encoding(word)
