"""Public reports about recordings, each tried here on sound whose samples are known by hand."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

import qkv
import tiny
from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.audio import read_wav, write_wav
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import read
from qkv.scripts.data.validation import check_audio
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.registry import load

RATE = 16_000


def tone(rate: int, pitch: float = 440, seconds: float = 1.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)


def wav(samples: NDArray[Any], rate: int, subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_channels_are_mixed_before_the_rate_changes(channels: int, rate: int) -> None:
    heard = read_wav(wav(np.stack([tone(rate)] * channels, axis=1), rate))["raw"]
    assert heard.shape == (RATE,) and np.abs(np.fft.rfft(heard)).argmax() == 440
    assert np.abs(heard - tone(RATE))[200:-200].max() < 0.01


@pytest.mark.parametrize("other", [-1.0, -0.9, 0.0])
def test_channels_of_opposite_phase_are_heard(other: float) -> None:
    heard = read_wav(wav(np.stack([tone(RATE), other * tone(RATE)], axis=1), RATE))["raw"]
    assert np.abs(heard - tone(RATE) * (1.0 if other else 0.5)).max() < 1e-4


def test_recordings_of_one_table_have_any_rates(tmp_path: Path) -> None:
    rates = (32_000, 16_000, 8_000, 44_100, 11_025)
    for rate in rates:
        (tmp_path / f"{rate}.wav").write_bytes(wav(tone(rate), rate))
    where = write_rows(
        tmp_path / "x.jsonl", [{"audio": f"{rate}.wav", "text": "a tone"} for rate in (*rates, rates[0])]
    )
    heard = [check_audio(value) for value in read(str(where))["audio"]]
    for samples in heard:
        assert len(samples) == RATE and np.abs(samples - tone(RATE))[200:-200].max() < 0.01


def test_eight_bits_have_their_silence_in_the_middle() -> None:
    file = bytearray(wav(np.zeros(300), RATE, "PCM_U8"))
    file[-300:] = bytes([0, 128, 255] * 100)
    assert read_wav(bytes(file))["raw"][:3].tolist() == [-1.0, 0.0, 127 / 128]


LENGTHS = (13, 14, 15, 16, 17, 18, 23, 31)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["speech", "plain"])
def test_a_recording_is_heard_beside_a_longer_one_as_alone(kind: str) -> None:
    torch.manual_seed(0)
    model = tiny.jitter(qkv.QkvAudioEncoderForCTC(tiny.audio_encoder(kind, frame_padding="zeroed"))).eval()
    stored = -2 if kind == "speech" else -1  # the axis of frames

    def logits(features: torch.Tensor, length: int) -> tuple[torch.Tensor, int]:
        mask = (torch.arange(features.shape[1]) < torch.tensor([[length], [features.shape[1]]])).long()[: len(features)]
        found = model(features if stored == -2 else features.mT, attention_mask=mask).logits
        return found[0], int(model.base_model.padding_mask(mask, found)[0].sum())

    longer = torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(1))
    for length in LENGTHS:
        beside = longer.clone()
        beside[0, length:] = 0
        (alone, count), (padded, real) = logits(beside[:1, :length], length), logits(beside, length)
        assert count == real == len(alone)
        assert (padded[:real] - alone).abs().max() < 1e-5


@pytest.mark.parametrize("labels", [[7, 8, 9, 10, 11], [7, 7, 7]])
def test_a_text_longer_than_its_sound_is_refused(labels: list[int]) -> None:
    model = qkv.QkvAudioEncoderForCTC(tiny.audio_encoder("speech"))
    sound = torch.randn(1, 13, 6, generator=torch.Generator().manual_seed(1))
    with raises_sentence("row 0", "5 tokens", "4 tokens", "ctc_zero_infinity=True"):
        model(input_features=sound, labels=torch.tensor([labels]))
    assert model(input_features=sound, labels=torch.tensor([[7, 8, 9]])).loss.isfinite()


def test_a_recording_of_minutes_is_read_to_its_end(tmp_path: Path) -> None:
    seconds = [95, *[1] * 11]
    for number, length in enumerate(seconds):
        noise = np.random.default_rng(number).normal(scale=0.1, size=length * RATE).astype(np.float32)
        (tmp_path / f"{number}.wav").write_bytes(write_wav(noise))
    rows = [{"audio": f"{number}.wav", "text": f"noise {number}"} for number in range(len(seconds))]
    task = load(infer(str(write_rows(tmp_path / "x.jsonl", rows)), ["leaked_records=1"])[0])
    found = sorted(length for split in (task.train, *task.splits.values()) for length in split.lengths)
    assert found == sorted(1 + (length * RATE - 400) // 160 for length in seconds)  # 25 ms each 10 ms


def test_word_errors_are_of_all_words_in_any_order() -> None:
    written, said = ["x", "b c d e", "", "f g"], ["a", "b c d e", "h", "f g"]
    assert measure(["wer"], written, said) == measure(["wer"], written[::-1], said[::-1])
    assert measure(["wer"], written, said)["wer"] == 2 / 8  # one other word, and a text that was not written
    assert measure(["wer"], ["i am", "i good"], ["i", "am i good"])["wer"] == 2 / 4  # an insertion and a deletion
    assert measure(["wer"], ["noise", "c"], ["", "c"])["wer"] == 1.0
