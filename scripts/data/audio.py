"""Read and write recordings as speech pipelines take them: one channel of floats from -1 to 1, at the model's rate.

transformers' pipeline needs ffmpeg to open files and torchaudio to resample them.
"""

import io
import re
from fractions import Fraction
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from qkv.scripts.common import extras

BLOCK = 2**20  # samples that are read at a time from formats without an index
# Programs that write a stream, as espeak-ng and ffmpeg do, give no length or at least this one.
UNKNOWN = 0x7FFFF000
# libsndfile's log about a chunk of samples whose header promises more bytes than the file holds.
SHORTER = re.compile(r"^\s*(?:data|SSND|Data Size|riff)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE)


def read_wav(data: bytes, sampling_rate: int = 16_000) -> dict[str, Any]:
    """Read the bytes of a recording as `{"raw": samples, "sampling_rate": sampling_rate}`, for a speech pipeline.

    Any format of libsndfile, rate and number of channels. ValueError for another file, or a truncated one.
    """
    if not data:
        raise ValueError("an empty file; record it again")
    soundfile = extras.load("soundfile")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            log, frames, rate = file.extra_info, file.frames, file.samplerate
            if not 1_000 <= rate <= 384_000:  # before memory is taken for it
                raise ValueError(f"it says {rate} samples a second, expected 1,000 to 384,000; record it again")
            how: Any = {"dtype": "float32", "always_2d": True}
            blocks = takewhile(len, (file.read(BLOCK, **how) for _ in count()))
            channels: NDArray[np.float32] = file.read(**how) if file.seekable() else np.concatenate([*blocks])
    except soundfile.SoundFileError as error:
        reason = str(error).rpartition(": ")[2].rstrip(".").replace(". ", ", ")
        raise ValueError(f"no recording that libsndfile reads ({reason}); save it as 16-bit PCM") from None
    said, held = next((map(int, numbers) for numbers in SHORTER.findall(log)), (0, 0))
    if len(channels) < frames or held < said < UNKNOWN:
        raise ValueError("cut short: it holds less sound than its header says; copy it again")
    if not len(channels) or not np.isfinite(channels).all():
        raise ValueError("it holds no sound, or samples that are no finite numbers; record it again")
    mono = channels.mean(axis=1) if channels.shape[1] > 1 else channels[:, 0]
    if channels.shape[1] > 1 and np.square(mono).mean() < 0.01 * (powers := np.square(channels).mean(axis=0)).max():
        mono = channels[:, powers.argmax()]  # of opposite phase, so that the mean is silence
    return {"raw": resample(mono, rate, sampling_rate), "sampling_rate": sampling_rate}


def sound_notes(data: bytes) -> list[str]:
    """Return in which ways `read_wav` changes a recording."""
    info, notes = extras.load("soundfile").info(io.BytesIO(data)), list[str]()
    notes += [f"recordings resampled from {info.samplerate} a second"] if info.samplerate != 16_000 else []
    return notes + (["recordings of several channels, of which the mean is read"] if info.channels > 1 else [])


def resample(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Resample sound, without frequencies above half the new rate."""
    if rate == wanted:
        return samples
    # Exact for the rates that recorders have, and for any other to 50 parts in a million, which a sound card keeps: the
    # filter of a fraction of larger numbers takes more memory than most recordings.
    ratio = Fraction(wanted, rate).limit_denominator(20_000)
    return np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator), np.float32)


def write_wav(samples: NDArray[np.float32]) -> bytes:
    """Return the bytes of a 16-bit wav file at 16 kHz; samples read from such a file come out unchanged."""
    whole = (samples * 32768).round().clip(-32768, 32767).astype(np.int16)
    with io.BytesIO() as file:
        extras.load("soundfile").write(file, whole, 16_000, format="WAV", subtype="PCM_16")
        return file.getvalue()
