"""Tiny trained runs of own data, one of each kind: what is predicted and evaluated in tests."""

import csv
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset
from PIL import Image

from qkv.scripts.cli import main
from qkv.scripts.data.audio import write_wav
from qkv.scripts.example_data.peptides import TORSIONS, fold
from sine_waves import tone

WORDS = "warm dull bright poor naïve façade great slow".split()
SMALL = ["model.hidden_size=8", "model.num_hidden_layers=1", "model.num_attention_heads=2", "max_steps=2"]
CONTACTS = "{hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, contact_head: outer_product}"
# The words after `qkv train DATA`, by kind.
KINDS: dict[str, list[str]] = {
    "classes": SMALL,
    "numbers": SMALL,
    "pairs": SMALL,
    "tags": SMALL,
    "targets": SMALL,
    "responses": [*SMALL, "architecture=QkvDecoderForCausalLM"],
    "texts": [*SMALL, "text.length=16"],
    "denoised": [*SMALL, "task=denoising", "text.length=16"],
    "tasks": [*SMALL, "text.task=job"],
    "chats": [*SMALL, "text.length=128"],
    "infilled": [*SMALL, "text.length=32", "text.fim_rate=0.5"],
    "masked": [*SMALL, "architecture=QkvEncoderForMaskedLM", "text.length=16", "text.mask=0.5"],
    "images": [*SMALL, "model.image_size=8", "model.patch_size=4"],
    "captions": [*SMALL, "model.vision_config.image_size=8", "model.vision_config.patch_size=4"],
    "boxes": ["model.hidden_size=16", "model.num_attention_heads=2", "model.num_queries=5", "max_steps=2"],
    "speech": [*SMALL, "text.length=16"],
    "ctc": [*SMALL, "text.length=16", "architecture=QkvAudioEncoderForCTC", "model.conv_strides=[1,1]"],
    "answers": [*SMALL, "text.length=32"],
    "decoder-answers": [*SMALL, "text.length=32", "architecture=QkvDecoderForQuestionAnswering"],
    "seq2seq-answers": [*SMALL, "text.length=32", "architecture=QkvEncoderDecoderForQuestionAnswering"],
    "folds": [*SMALL, "model.pair_hidden_size=4", "architecture=QkvPairForContactPrediction"],
    "proteins": ["model.structure_hidden_size=8", "model.num_structure_layers=2", *SMALL],
    "encoder-folds": [f"model={CONTACTS}", "max_steps=2", "architecture=QkvEncoderForContactPrediction"],
}


def text(random: Random) -> str:
    return " ".join([*random.choices(WORDS, k=4), f"ä{random.randrange(10**6)}"])


def hairpin(stem: list[str], loop: list[str]) -> dict[str, Any]:
    """A chain that folds back on itself, and which of its residues pair."""
    back = [dict(zip("ACGU", "UGCA", strict=True))[letter] for letter in reversed(stem)]
    structure = "(" * len(stem) + "." * len(loop) + ")" * len(stem)
    return {"sequence": "".join([*stem, *loop, *back]), "structure": structure}


def peptide(random: Random) -> dict[str, Any]:
    """A chain with the positions of its backbone, of which one atom is unknown."""
    chain = "".join(random.choices("".join(TORSIONS), k=random.randrange(6, 12)))
    positions = fold([chain])[0].round(3).tolist()
    positions[2][3] = None
    return {"sequence": chain, "coordinates": positions}


def asked(text: str, number: int) -> dict[str, Any]:
    """A question about a text, whose answer is its last word; every third has none."""
    word = text.split()[-1]
    answers = [{"text": word, "answer_start": text.index(word)}] if number % 3 else []
    return {"answers": answers, "question": "which word is last?", "context": text}


def chat(question: str, answer: str) -> list[dict[str, str]]:
    said = (("system", "be short"), ("user", "hi"), ("assistant", "yes?"), ("user", question), ("assistant", answer))
    return [{"role": role, "content": content} for role, content in said]


def rows(kind: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a kind, media as the names of their files."""
    random = Random(f"{kind} {seed}")
    made = []
    for number in range(count):
        label = ("good", "bad")[number % 2]
        both = text(random), text(random)
        stem, loop = (random.choices("ACGU", k=random.randrange(3, 6)) for _ in range(2))
        made.append({
            "classes": {"text": both[0], "label": label},
            "numbers": {"text": both[0], "score": round(random.random() * 10, 3) + 0.0001},
            "pairs": {"premise": both[0], "hypothesis": both[1], "label": label},
            "tags": {"tokens": both[0].split(), "tags": [f"B-{label}", "I-" + label, "O", "O", "O"]},
            "targets": {"source": both[0], "target": both[1]},
            "responses": {"prompt": both[0], "response": both[1]},
            "texts": {"text": " ".join((*both, *both))},
            "denoised": {"text": " ".join(both)},
            "tasks": {"job": ("shout", "repeat")[number % 2], "source": both[0], "target": both[1]},
            "chats": {"messages": chat(*both)},
            "infilled": {"text": " ".join((*both, *both))},
            "masked": {"text": " ".join(both)},
            "images": {"image": f"files/{number}.png", "label": label},
            "captions": {"image": f"files/{number}.png", "text": both[0]},
            "boxes": {"image": f"files/{number}.png", "objects": [{"bbox": [1, 1, 6, 6], "category": label}]},
            "speech": {"audio": f"files/{number}.wav", "text": " ".join(both[0].split()[:2])},
            "ctc": {"audio": f"files/{number}.wav", "text": " ".join(both[0].split()[:2])},
            **dict.fromkeys(("answers", "decoder-answers", "seq2seq-answers"), asked(both[0], number)),
            "folds": hairpin(stem, loop),
            "encoder-folds": hairpin(stem, loop),
            "proteins": peptide(random) if kind == "proteins" else {},
        }[kind])  # fmt: skip
    return made


def data(kind: str, folder: Path, count: int = 30, seed: int = 0) -> Path:
    """Write rows of a kind as JSON Lines, with the files that they name beside them; the path of the table."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    own = rows(kind, count, seed)
    for number, row in enumerate(own):
        if "image" in row:
            pixels = np.random.default_rng((seed, number)).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / row["image"])
        if "audio" in row:
            (folder / row["audio"]).write_bytes(write_wav(tone(40, number)))
    path = folder / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in own), encoding="utf-8")
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the form that the ending says, lists in cells as JSON; `.disk` is what `save_to_disk` leaves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".csv", ".tsv"):
        cells = [[json.dumps(each) if isinstance(each, list) else each for each in row.values()] for row in rows]
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=",\t"[path.suffix == ".tsv"]).writerows([list(rows[0]), *cells])
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    elif path.suffix == ".disk":
        Dataset.from_list(rows).save_to_disk(path)
    elif path.suffix == ".txt":
        path.write_text("\n\n".join(row["text"] for row in rows))
    else:
        path.write_text(json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows)))
    return path


@cache
def trained(kind: str, base: Path) -> Path:
    """The run folder of a kind below `base`, trained once; its data are `KIND.jsonl` in `base/data-KIND`."""
    table, run = data(kind, base / f"data-{kind}"), base / f"run-{kind}"
    assert main(["train", str(table), *KINDS[kind], "holdout=0", f"out={run}"]) == 0
    return run
