"""What a browser sends is checked: who asks, and how large images and recordings are."""

import io
import wave

import numpy as np
import pytest
from PIL import Image

from qkv.scripts.data.audio import write_wav
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.web_demo import requests
from qkv.scripts.web_demo.requests import RefusedError, check_duration, check_sender, check_size, labels_of


def test_who_may_ask() -> None:
    check_sender({"Host": "127.0.0.1:7860", "Origin": "http://127.0.0.1:7860"}, "127.0.0.1")
    check_sender({"Host": "[::1]:7860"}, "::1")
    check_sender({"Host": "box.local:7860"}, "0.0.0.0")  # whoever reaches it may use it
    check_sender({"Host": "10.1.2.3", "Origin": "https://you-name.hf.space"}, "0.0.0.0", "you-name.hf.space")
    for given, host in [
        ({"Host": "evil.example"}, "127.0.0.1"),
        ({}, "127.0.0.1"),
        ({"Host": "box.local", "Origin": "https://evil.example"}, "0.0.0.0"),
    ]:
        with pytest.raises(RefusedError):
            check_sender(given, host)


def test_an_image_of_too_many_pixels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with io.BytesIO() as file:
        Image.new("RGB", (20, 30)).save(file, "PNG")
        data = file.getvalue()
    check_size(data)
    monkeypatch.setattr(requests, "MOST_PIXELS", 599)
    with pytest.raises(RefusedError, match="20 x 30 pixels, at most 599"):
        check_size(data)
    with pytest.raises(InvalidRecord):
        check_size(data[:20])


def test_a_recording_of_too_many_seconds_is_refused() -> None:
    check_duration(write_wav(np.zeros(60 * 16_000, np.float32)))
    with pytest.raises(RefusedError, match="more than 60 s"):
        check_duration(write_wav(np.zeros(60 * 16_000 + 1, np.float32)))
    with io.BytesIO() as file:
        with wave.open(file, "wb") as opened:  # a few bytes of many seconds
            opened.setparams((1, 1, 1000, 0, "NONE", ""))
            opened.writeframes(b"\x80" * 60_001)
        with pytest.raises(RefusedError):
            check_duration(file.getvalue())
    streamed = bytearray(write_wav(np.zeros(32_000, np.float32)))
    streamed[40:44] = (0x7FFFF000).to_bytes(4, "little")  # as espeak-ng writes
    check_duration(bytes(streamed))
    check_duration(b"no recording")  # which its reader refuses


def test_texts_to_choose_from() -> None:
    assert labels_of({"labels": " a cat\n\na dög \na cat"}) == ["a cat", "a dög"]
    for labels in ("", "one", "\n".join(map(str, range(65)))):
        with pytest.raises(RefusedError, match="give 2 to 64, one a line"):
            labels_of({"labels": labels})
