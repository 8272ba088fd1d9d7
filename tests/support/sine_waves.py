"""Recordings of tones: what stands for speech where only its path counts."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.audio import write_wav

WORDS = ("low", "mid", "high")


def tone(length: int, seed: int = 0) -> NDArray[np.float32]:
    """So many hundredths of a second, at least ten, of a tone in noise."""
    random = np.random.default_rng(seed)
    time = np.arange(160 * max(length, 10)) / 16_000
    return (0.3 * np.sin(2000 * (1 + seed % 3) * time) + 0.05 * random.standard_normal(len(time))).astype(np.float32)


def recordings(folder: Path, count: int = 12) -> Path:
    """A folder of sound with a table that names the files, in a training and a test split."""
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
        lines = []
        for number in range(count if split == "train" else 4):
            (folder / split / f"{number}.wav").write_bytes(
                write_wav(tone(15 + 3 * number, number + 30 * (split == "test")))
            )
            lines.append(json.dumps({"file_name": f"{number}.wav", "text": f"{WORDS[number % 3]} {WORDS[number % 2]}"}))
        (folder / split / "metadata.jsonl").write_text("\n".join(lines))
    return folder
