"""Recordings of a folder: heard once, batched with their texts, bad ones counted, written down or labelled."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Speech2TextFeatureExtractor, Speech2TextForConditionalGeneration

from errors import raises_sentence
from qkv.scripts.data.audio import read_wav, write_wav
from qkv.scripts.data.examples import model_inputs
from qkv.scripts.lab.stock_model import STOCK, build_stock
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task
from sine_waves import recordings, tone

TINY = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2", "max_steps=2",
        "warmup_steps=1", "batch_size=4", "threads=1"]  # fmt: skip
KINDS = {"decoder": [], "labels": ["architecture=QkvAudioEncoderForCTC", "model.conv_strides=[1,1]"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recordings(tmp_path / "sound")


def task_of(folder: Path, *words: str) -> Task:
    return data.load(recipe.load("spoken-digits", [f"data={folder}", "holdout=0.1", *words]))


def test_features_are_those_of_the_extractor_and_padding_is_marked(folder: Path) -> None:
    task = task_of(folder, "holdout=0")
    batch = task.collate(task.train.__getitems__([0, 5]), [0, 1])
    sounds = [read_wav((folder / "train" / f"{number}.wav").read_bytes())["raw"] for number in (0, 5)]
    expected = Speech2TextFeatureExtractor()(sounds, sampling_rate=16_000, padding=True, return_tensors="pt")
    assert torch.equal(batch["input_features"], expected["input_features"])
    assert torch.equal(batch["attention_mask"], expected["attention_mask"].long())
    decode = task.processor.parts[1].decode
    assert [decode(row[row != -100]) for row in batch["labels"]] == ["low low</s>", "high mid</s>"]
    assert task.count(batch) == 17 and task.lengths()[:2] == [13, 16]


def test_labels_are_the_characters_and_answers_what_stays_once(folder: Path) -> None:
    task = task_of(folder, *KINDS["labels"])
    batch = task.collate(task.splits["test"].__getitems__([0, 2]), None)
    tokenizer = task.processor.parts[1]
    assert tokenizer.decode(batch["labels"][1, :8], group_tokens=False) == "high low"
    spelt = tokenizer.convert_tokens_to_ids(list("llo<pad>w||<pad>"[:3]) + ["<pad>", "w", "|", "|", "m"])
    logits = torch.nn.functional.one_hot(torch.tensor([spelt, spelt]), len(tokenizer)).float()
    keep = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    model = type("Model", (), {"base_model": type("Base", (), {"padding_mask": lambda self, mask, logits: keep})()})()
    answers = task.answer(model, type("Outputs", (), {"logits": logits}), batch)
    assert answers == [("low m", "low low"), ("low", "high low")]


def test_bad_recordings_are_counted_like_other_bad_records(folder: Path, tmp_path: Path) -> None:
    train_folder = folder / "train"
    (train_folder / "0.wav").write_bytes(b"")
    (train_folder / "1.wav").write_bytes(write_wav(tone(20))[:900])
    (train_folder / "2.wav").unlink()
    (train_folder / "3.wav").write_bytes(write_wav(np.zeros(4000, np.float32)))
    (train_folder / "4.wav").write_bytes(write_wav(tone(20)[:300]))
    lines = (train_folder / "metadata.jsonl").read_text().splitlines()
    lines[5] = json.dumps({"file_name": "5.wav", "text": ""})
    (train_folder / "metadata.jsonl").write_text("\n".join(lines))
    task = task_of(folder, "bad_records=0.9", "holdout=0")
    assert task.sizes() == {"train": 6, "test": 4}
    skipped = task.data.invalid_records.skipped
    assert [line["reason"].partition(":")[0] for line in skipped] == ["audio"] * 5 + ["text"]
    assert [line["row"] for line in skipped] == [1, 2, 3, 4, 5, 6] and "2.wav" in skipped[2]["reason"]
    with pytest.raises(ValueError, match="6 of 12 records .*bad_records=0.1"):
        task_of(folder, "bad_records=0.1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["text.column=txt"], "'txt'"),
        (["streaming=true"], "streaming=true"),
        ([*KINDS["labels"], "text.tokenizer=bpe"], "text.tokenizer='bpe'"),
    ],
)
def test_what_cannot_be_heard_is_refused(words: list[str], said: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=said):
        task_of(folder, *words)


def test_lengths_and_parts_are_compared_with_the_sound(folder: Path) -> None:
    path = folder / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lengths = [len(read_wav((path.parent / row["file_name"]).read_bytes())["raw"]) / 16_000 for row in rows]
    for unit in (1, 1000):
        known = [row | {"duration": unit * length} for row, length in zip(rows, lengths, strict=True)]
        known[4]["duration"] *= 3
        path.write_text("\n".join(map(json.dumps, known)))
        assert [line["row"] for line in task_of(folder, "bad_records=0.9").data.invalid_records.skipped] == [5]
    for name in ("offset", "end"):
        path.write_text("\n".join(json.dumps(row | {name: 0.1 * number}) for number, row in enumerate(rows)))
        with raises_sentence(f"'{name}'"):
            task_of(folder)
    path.write_text("\n".join(json.dumps(row | {"offset": 0.0}) for row in rows))
    task = task_of(folder)
    assert task.sizes()["train"] == 11 and task.data.read.files == {".jsonl": 2, ".wav": 16}


def test_the_stock_model_hears_the_same_and_has_our_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "conv_channels"):
        monkeypatch.setitem(STOCK["spoken-digits"], name, 16)
    words = [f"data={folder}", "holdout=0.1", *TINY]
    task = task_of(folder)
    model = build_stock(recipe.load("spoken-digits", words), task).eval()
    assert type(model) is Speech2TextForConditionalGeneration
    records = task.train.__getitems__([0, 5])
    batch = task.collate(records, None)
    outputs = model(**model_inputs(batch), num_items_in_batch=3)
    expected = torch.nn.functional.cross_entropy(
        outputs.logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum"
    )
    assert float(outputs.loss) == pytest.approx(float(expected) / 3, rel=1e-5)
    assert [said for _, said in task.answer(model, outputs, batch)] == [record["text"] for record in records]


def test_texts_without_an_alignment_are_counted(folder: Path) -> None:
    # 13 to 46 frames, a label for each with strides of 1: "mid high low" and a blank between each two equal letters.
    lines = (folder / "train" / "metadata.jsonl").read_text().splitlines()
    lines[0] = json.dumps({"file_name": "0.wav", "text": "mmmiiihhh"})  # 9 labels and 6 blanks in 13 frames
    (folder / "train" / "metadata.jsonl").write_text("\n".join(lines))
    (folder / "test" / "metadata.jsonl").write_text("\n".join([*lines[:1], *lines[2:4]]))
    words = [*KINDS["labels"], "holdout=0", "leaked_records=1"]
    task = task_of(folder, *words, "bad_records=0.1")
    assert task.sizes() == {"train": 11, "test": 3}
    (reason,) = [name for name in task.data.read.left_out if "CTC" in name]
    assert task.data.read.left_out[reason] == 1 and [*task.data.read.mended.values()] == [1]
    batch = task.collate(task.train.__getitems__([0]), [0])
    assert task.references[batch["_target"]] == "mid mid"
    with pytest.raises(ValueError, match=r"1 of 12 .*'mmmiiihhh'.* 15 .* 13 .*conv_strides.*bad_records=0.09"):
        task_of(folder, *words)
