"""espeak-ng is asked for one text after the other, each with its voice, from one seed."""

import ctypes
from typing import Any

import pytest

from qkv.scripts.example_data.espeak import PITCH, RATE, SEED, speak


class Library:
    """What stands for espeak-ng: it says as many samples as a text has letters, in two pieces."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def espeak_Initialize(self, *arguments: Any) -> int:
        return 22_050

    def espeak_SetSynthCallback(self, hear: Any) -> None:
        self.hear = hear

    def espeak_ng_SetRandSeed(self, seed: Any) -> None:
        self.calls.append(("seed", seed.value))

    def espeak_SetVoiceByName(self, name: bytes) -> int:
        self.calls.append(("voice", name))
        return int(name == b"nobody")

    def espeak_SetParameter(self, number: int, value: int, relative: int) -> None:
        self.calls.append((number, value))

    def espeak_Synth(self, data: bytes, size: int, *arguments: Any) -> None:
        assert size == len(data) and data.endswith(b"\0")
        samples = (ctypes.c_short * (size - 1))(*data[:-1])
        for start in (0, 2):
            part = ctypes.cast(ctypes.byref(samples, 2 * start), ctypes.POINTER(ctypes.c_short))
            self.hear(part, min(2, size - 1 - start) if start == 0 else size - 3, None)
        self.hear(None, 0, None)  # the end of a text

    def espeak_Synchronize(self) -> None:
        self.calls.append("waited")


def test_every_text_has_its_voice_and_its_samples() -> None:
    library = Library()
    samples, lengths, rate = speak(library, "home", [["abc", "en+m1", 150, 40], ["defg", "en+f1", 200, 60]])
    assert bytes(samples.tolist()) == b"abcdefg" and lengths == [3, 4] and rate == 22_050
    one = [("voice", b"en+m1"), (RATE, 150), (PITCH, 40), "waited"]
    other = [("voice", b"en+f1"), (RATE, 200), (PITCH, 60), "waited"]
    assert library.calls == [("seed", SEED), *one, *other]


def test_a_voice_that_is_not_there_is_told() -> None:
    with pytest.raises(RuntimeError, match="espeak-ng has no voice 'nobody'"):
        speak(Library(), "home", [["abc", "nobody", 150, 40]])
