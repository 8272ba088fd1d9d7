"""Digits that are spoken: voices held out, the same data every time, and a sentence without espeak-ng."""

import ctypes
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from qkv.scripts.data.corpus import SpeechData
from qkv.scripts.example_data import spoken_digits as digits
from qkv.scripts.example_data.espeak import PITCH, RATE, SEED, speak
from recipes import recipe_of
from sine_waves import tone

RECIPE = recipe_of(text=dict(made=30))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the data go, with tones for voices."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digits, "speak", lambda lines: [tone(len(line[0]), line[2]) for line in lines])
    monkeypatch.setattr(digits, "TEST_SIZE", 20)
    monkeypatch.setattr(digits, "version", lambda name: "1")
    monkeypatch.setattr(digits, "require", lambda module: None)
    return tmp_path / "cache" / "qkv"


def rows(source: SpeechData) -> dict[str, list[dict[str, Any]]]:
    return {split: pq.read_table(Path(source.where) / f"{split}.parquet").to_pylist() for split in ("train", "test")}


def test_voices_of_the_test_are_never_trained_on(cache: Path) -> None:
    found = rows(digits.spoken_digits(RECIPE))
    assert {split: len(lines) for split, lines in found.items()} == {"train": 30, "test": 20}
    voices = {split: {line["voice"].partition("+")[2] for line in lines} for split, lines in found.items()}
    assert voices["train"].isdisjoint(voices["test"]) and voices["test"] <= set(digits.HELD_OUT)
    assert len(digits.HELD_OUT) == 4 and len(digits.VOICES) == 12 and len(digits.ACCENTS) == 5
    words = [line["text"].split() for line in found["train"]]
    assert {len(text) for text in words} == {1, 2, 3, 4} and set(sum(words, [])) <= set(digits.DIGITS)


def test_the_same_data_come_every_time_and_are_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digits.spoken_digits(RECIPE)
    before = rows(first)
    Path(first.where).rename(cache / "before")
    assert rows(digits.spoken_digits(RECIPE)) == before
    more = digits.spoken_digits(recipe_of(text=dict(made=40)))
    assert more.where != first.where and rows(more)["test"] == before["test"]
    monkeypatch.setattr(digits, "speak", None)
    assert digits.spoken_digits(RECIPE) == first
    assert sorted(path.name for path in cache.iterdir()) == sorted(
        ["before", Path(first.where).name, Path(more.where).name]
    )


def test_each_call_speaks_in_a_new_process() -> None:
    lines = [["one", "en-us+m1", 150, 40], ["two three", "en-us+f1", 200, 60]]
    first, again = digits.speak(lines), digits.speak(lines)
    assert [part.dtype for part in first] == [np.float32] * 2 and all(map(np.array_equal, first, again))
    with pytest.raises(RuntimeError, match="nobody"):
        digits.speak([["one", "nobody", 150, 40]])


def test_noise_is_as_loud_as_drawn() -> None:
    sound = np.sin(np.arange(20_000) / 10).astype(np.float32)
    noises = (digits.add_noise(sound, np.random.default_rng(seed)) - sound for seed in range(30))
    levels = [10 * np.log10((sound**2).mean() / (noise**2).mean()) for noise in noises]
    low, high = digits.NOISE
    assert low - 0.5 < min(levels) < low + 5 and high - 5 < max(levels) < high + 0.5


def test_every_text_has_its_voice_and_its_samples() -> None:
    """The library hands over as many samples as a text has letters, in two pieces."""
    library = mock.Mock()
    library.espeak_Initialize.return_value = 22_050
    library.espeak_SetVoiceByName.side_effect = lambda name: int(name == b"nobody")

    def synthesize(data: bytes, size: int, *_: Any) -> None:
        receive = library.espeak_SetSynthCallback.call_args.args[0]
        for part in (data[:2], data[2 : size - 1]):
            receive((ctypes.c_short * len(part))(*part), len(part), None)
        receive(None, 0, None)

    library.espeak_Synth.side_effect = synthesize
    samples, lengths, rate = speak(library, "home", [["abc", "en+m1", 150, 40], ["defg", "en+f1", 200, 60]])
    assert (bytes(samples.tolist()), lengths, rate) == (b"abcdefg", [3, 4], 22_050)
    called = [name.removeprefix("espeak_") for name, *_ in library.mock_calls]
    assert called[3:] == ["SetVoiceByName", "SetParameter", "SetParameter", "Synth", "Synchronize"] * 2
    assert library.espeak_ng_SetRandSeed.call_args.args[0].value == SEED
    assert library.espeak_SetVoiceByName.call_args_list == [mock.call(b"en+m1"), mock.call(b"en+f1")]
    values = [(RATE, 150), (PITCH, 40), (RATE, 200), (PITCH, 60)]
    assert library.espeak_SetParameter.call_args_list == [mock.call(*value, 0) for value in values]
    with pytest.raises(RuntimeError, match="nobody"):
        speak(library, "home", [["abc", "nobody", 150, 40]])
