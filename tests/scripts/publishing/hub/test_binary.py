"""Texts of binary files are read where they are, in characters of one byte and of two."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.scripts.publishing.hub.binary import metadata, readable

PNG = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content), kind) + content + b"crc."


@pytest.mark.parametrize("encoding", ["ascii", "utf-16-le", "utf-16-be"])
def test_runs_are_found_with_their_offsets(encoding: str) -> None:
    data = b"\x80\x81" * 5 + "a word or two".encode(encoding) + b"\x80\x81"
    assert [(start, text) for start, text in readable(data) if start == 10] == [(10, "a word or two")]


def test_texts_of_a_picture_are_its_metadata_and_its_pixels_are_not() -> None:
    packed = zlib.compress(b"what is compressed")
    data = PNG + b"".join(
        chunk(kind, content)
        for kind, content in (
            (b"tEXt", b"Title\0what is plain"),
            (b"zTXt", b"Title\0\0" + packed),
            (b"iTXt", b"Title\0\1\0\0\0" + packed),
            (b"IDAT", b"rows of pixels"),
        )
    )
    found = [text for _, text in metadata(data)]
    assert found == ["what is plain", "what is compressed", "what is compressed"]
    assert any("rows of pixels" in text for _, text in readable(data))


def test_comments_of_a_jpeg_are_before_its_scan() -> None:
    data = b"\xff\xd8\xff\xfe\x00\x20what is said\xff\xdawhat is drawn"
    (text,) = (text for _, text in metadata(data))
    assert "what is said" in text
    assert not [text for _, text in metadata(data) if "drawn" in text]


@given(st.binary())
def test_damaged_pictures_are_read_as_far_as_they_go(data: bytes) -> None:
    for whole in (data, PNG + data, PNG + chunk(b"zTXt", data), b"\xff\xd8" + data):
        assert all(0 <= start < len(whole) for start, _ in readable(whole))


def test_a_text_that_grows_without_end_is_read_to_a_limit() -> None:
    data = PNG + chunk(b"zTXt", b"\0" * 8 + zlib.compress(b"x" * (1 << 24), 9))
    assert max(len(text) for _, text in metadata(data)) <= 1 << 20
