"""Read and write wav files as speech pipelines take them: one channel of floats from -1 to 1, at the model's rate.

transformers' own pipeline needs ffmpeg to open files and torchaudio to resample them.
"""

import io
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from qkv.scripts.common.files import named_bytes

# The data length that programs write which stream, as espeak-ng and ffmpeg do: none at all.
UNKNOWN = 0x7FFFF000
LOWEST_RATE, HIGHEST_RATE = 1_000, 384_000
# Bytes of a sample -> its type, and the number of silence.
SAMPLES: dict[int, tuple[Any, int]] = {
    1: (np.uint8, 128),
    2: (np.dtype("<i2"), 0),
    3: (np.uint8, 0),
    4: (np.dtype("<i4"), 0),
}


def read_wav(source: str | Path | bytes, sampling_rate: int = 16_000) -> dict[str, Any]:
    """Read a wav file or its bytes as `{"raw": samples, "sampling_rate": sampling_rate}`, for a speech pipeline.

    Rates from 1 to 384 kHz, any number of channels, 8, 16, 24 or 32 bits. Raises ValueError for what is no such file,
    or is truncated.
    """
    name, data = named_bytes(source, "record it again")
    try:
        with wave.open(io.BytesIO(data)) as file:
            header, samples = file.getparams(), file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError) as error:
        reason = str(error) or "it ends within its header"
        raise ValueError(f"{name} is not a wav file of whole numbers ({reason}); save it as 16-bit PCM") from None
    check_header(name, header)
    size = header.sampwidth * header.nchannels
    check_complete(name, len(samples) // size, header)
    channels = to_floats(samples[: len(samples) // size * size], header.sampwidth).reshape(-1, header.nchannels)
    mono = channels.mean(axis=1) if header.nchannels > 1 else channels[:, 0]
    return {"raw": resample(mono, header.framerate, sampling_rate), "sampling_rate": sampling_rate}


def check_header(name: str, header: Any) -> None:
    """Raise ValueError for a rate or width that no recording has, before memory is taken for it."""
    if not LOWEST_RATE <= header.framerate <= HIGHEST_RATE or header.sampwidth not in SAMPLES:
        raise ValueError(
            f"{name} says that it has {header.framerate} samples a second of {8 * header.sampwidth} bits, expected "
            f"{LOWEST_RATE} to {HIGHEST_RATE} of 8, 16, 24 or 32; save it as 16-bit PCM"
        )


def check_complete(name: str, frames: int, header: Any) -> None:
    """Raise ValueError for a recording without samples, and for a truncated file."""
    if not frames:
        raise ValueError(f"{name} holds no sound; record it again")
    if frames < header.nframes and header.nframes * header.sampwidth * header.nchannels < UNKNOWN:
        seconds, whole = frames / header.framerate, header.nframes / header.framerate
        raise ValueError(f"{name} is cut short: it holds {seconds:.2f} of {whole:.2f} s; copy it again")


def to_floats(samples: bytes, width: int) -> NDArray[np.float32]:
    """Convert PCM samples of `width` bytes to floats from -1 to 1; those of one byte are unsigned."""
    kind, middle = SAMPLES[width]
    whole: NDArray[Any] = np.frombuffer(samples, kind)
    if width == 3:  # no number has three bytes: each becomes the upper ones of four
        padded = np.zeros((len(samples) // 3, 4), np.uint8)
        padded[:, 1:] = whole.reshape(-1, 3)
        whole, width = padded.view("<i4")[:, 0], 4
    floats = whole.astype(np.float32)  # rounds samples of 32 bits, once; all that follows is exact
    floats -= middle
    floats /= 2 ** (8 * width - 1)
    return floats


def resample(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Resample sound, without frequencies above half the new rate."""
    if rate == wanted:
        return samples
    # Exact for the rates that recorders have, and for any other to 50 parts in a million, which a sound card keeps: the
    # filter of a fraction of larger numbers takes more memory than most recordings.
    ratio = Fraction(wanted, rate).limit_denominator(20_000)
    return np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator), np.float32)


def write_wav(samples: NDArray[np.float32], sampling_rate: int = 16_000) -> bytes:
    """Return the bytes of a 16-bit wav file; samples read from such a file come out unchanged."""
    with io.BytesIO() as file:
        with wave.open(file, "wb") as opened:
            opened.setparams((1, 2, sampling_rate, len(samples), "NONE", "not compressed"))
            opened.writeframes((samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes())
        return file.getvalue()
