"""Spoken digits: espeak-ng with many voices and at many speeds, some voices in the test alone."""

import hashlib
import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from qkv.scripts.common.extras import require
from qkv.scripts.common.files import cache_folder, make_durable
from qkv.scripts.data.audio import resample, write_wav
from qkv.scripts.data.corpus import SpeechData
from qkv.scripts.example_data import espeak
from qkv.scripts.recipes.schema import Recipe

PACKAGE, HOME = "espeakng-loader", "https://github.com/espeak-ng/espeak-ng"
DIGITS = "zero one two three four five six seven eight nine".split()
ACCENTS = ("en-us", "en-gb-x-rp", "en-gb-scotland", "en-029", "en-gb-x-gbclan")
VOICES = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5")
HELD_OUT = VOICES[1::3]  # voices of the test alone
TEST_SIZE = 400  # utterances
MAX_DIGITS = 4  # of an utterance
SPEED, PITCH, NOISE = (140, 230), (20, 80), (10.0, 35.0)  # words a minute, of a hundred, decibels below the voice
SAMPLING_RATE = 16_000


def spoken_digits(recipe: Recipe) -> SpeechData:
    """Make a folder of `text.made` utterances for training and 400 for the test, unless it is there.

    ModuleNotFoundError without the package that brings espeak-ng.
    """
    require("espeakng_loader")
    programs = (Path(each).read_text(encoding="utf-8") for each in (espeak.__file__, __file__))
    facts = [recipe.text.made, version(PACKAGE), *programs]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    folder = cache_folder() / f"spoken-digits-{name}"
    if not folder.is_dir():
        make(recipe.text.made, folder)
    return SpeechData("spoken-digits", "digits synthesised by espeak-ng", HOME, str(folder))


def make(count: int, folder: Path) -> None:
    """Write the data of both splits, whole or not at all."""
    train_voices = [voice for voice in VOICES if voice not in HELD_OUT]
    splits = {"test": draw(TEST_SIZE, HELD_OUT, 1), "train": draw(count, train_voices, 0)}
    # The test comes first, to be the same whatever else is made.
    sounds = iter(speak([line for lines in splits.values() for line in lines]))
    random = np.random.default_rng(2)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as place:
        for name, lines in splits.items():
            audio = [{"bytes": write_wav(add_noise(next(sounds), random)), "path": ""} for _ in lines]
            columns = {"audio": audio, "text": [line[0] for line in lines], "voice": [line[1] for line in lines]}
            pq.write_table(pa.table(columns), Path(place) / f"{name}.parquet")
        make_durable(Path(place))
        with suppress(OSError):  # another process was first, with the same bytes
            os.rename(place, folder)


def draw(count: int, voices: Any, seed: int) -> list[list[Any]]:
    """Draw texts of one to four digits, each with a voice, a speed and a pitch."""
    random, lines = np.random.default_rng(seed), []
    for _ in range(count):
        digits = random.integers(0, len(DIGITS), random.integers(1, MAX_DIGITS + 1))
        voice = f"{random.choice(ACCENTS)}+{random.choice(voices)}"
        speed, pitch = (int(random.integers(low, high + 1)) for low, high in (SPEED, PITCH))
        lines.append([" ".join(DIGITS[digit] for digit in digits), voice, speed, pitch])
    return lines


def speak(lines: list[list[Any]]) -> list[NDArray[np.float32]]:
    """Return the samples of each line at 16 kHz; RuntimeError when espeak-ng fails."""
    with ProcessPoolExecutor(1) as process:
        samples, lengths, rate = process.submit(espeak.speak_by_espeak, lines).result()
    parts = np.split(np.asarray(samples / 32768, np.float32), np.cumsum(lengths)[:-1])
    return [resample(part, rate, SAMPLING_RATE) for part in parts]


def add_noise(sound: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Add white noise of a random level."""
    level = np.sqrt((sound**2).mean()) * 10 ** (-random.uniform(*NOISE) / 20)
    return np.asarray(sound + level * random.standard_normal(len(sound)), np.float32)
