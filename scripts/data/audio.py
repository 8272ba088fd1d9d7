"""How does a wav file become what a pipeline hears? One channel of numbers between -1 and 1, at the model's rate.

transformers' pipeline opens files with ffmpeg and resamples with torchaudio; it takes what is made here as it is.
"""

import io
import wave
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

# What programs write that stream and so cannot know the length (espeak-ng, ffmpeg): no length at all.
UNKNOWN = 0x7FFFF000
# Bytes of a sample -> how it is written, and which number is silence.
SAMPLES: dict[int, tuple[Any, int]] = {
    1: (np.uint8, 128),
    2: (np.dtype("<i2"), 0),
    3: (np.uint8, 0),
    4: (np.dtype("<i4"), 0),
}


def read_wav(source: str | Path | bytes, sampling_rate: int = 16_000) -> dict[str, Any]:
    """`{"raw": samples, "sampling_rate": sampling_rate}` of a wav file or its bytes, for a speech pipeline.

    Any rate, any number of channels, 8, 16, 24 or 32 bits. Raises ValueError for what is no such file, or is cut short.
    """
    name = "these bytes" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    if not data:
        raise ValueError(f"{name} is empty; record it again")
    try:
        with wave.open(io.BytesIO(data)) as file:
            form, samples = file.getparams(), file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        reason = str(error) or "it ends within its header"
        raise ValueError(f"{name} is not a wav file of whole numbers ({reason}); save it as 16-bit PCM") from None
    size = form.sampwidth * form.nchannels
    refuse_cut(name, len(samples) // size, form)
    channels = numbers(samples[: len(samples) // size * size], form.sampwidth).reshape(-1, form.nchannels)
    return {"raw": resampled(channels.mean(axis=1), form.framerate, sampling_rate), "sampling_rate": sampling_rate}


def refuse_cut(name: str, frames: int, form: Any) -> None:
    """Raise on sound of no length, and on a file that promises more than it holds."""
    if not frames:
        raise ValueError(f"{name} holds no sound; record it again")
    if frames < form.nframes and form.nframes * form.sampwidth * form.nchannels < UNKNOWN:
        raise ValueError(
            f"{name} is cut short: it holds {frames / form.framerate:.2f} of {form.nframes / form.framerate:.2f} s; "
            "copy it again"
        )


def numbers(samples: bytes, width: int) -> NDArray[np.float32]:
    """Samples of that many bytes as numbers from -1 to 1; those of one byte are counted from 0."""
    kind, middle = SAMPLES[width]
    whole: NDArray[Any] = np.frombuffer(samples, kind)
    if width == 3:  # no number has three bytes: each becomes the upper ones of four
        padded = np.zeros((len(samples) // 3, 4), np.uint8)
        padded[:, 1:] = whole.reshape(-1, 3)
        whole, width = padded.view("<i4")[:, 0], 4
    return ((whole.astype(np.float64) - middle) / 2 ** (8 * width - 1)).astype(np.float32)


def resampled(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """The same sound at another rate, without what the new rate cannot hold."""
    if rate == wanted:
        return samples
    common = gcd(rate, wanted)
    return np.asarray(resample_poly(samples, wanted // common, rate // common), np.float32)


def wav_of(samples: NDArray[np.float32], sampling_rate: int = 16_000) -> bytes:
    """A wav file of 16-bit samples: what was read from such a file, as it was."""
    with io.BytesIO() as file:
        with wave.open(file, "wb") as opened:
            opened.setparams((1, 2, sampling_rate, len(samples), "NONE", "not compressed"))
            opened.writeframes((samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes())
        return file.getvalue()
