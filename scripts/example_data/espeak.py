"""Speak lines with espeak-ng, which has to be done in a new process.

Its library draws random numbers and keeps its oscillators' phases from one text to the next, however often it is
initialized: only a fresh process with a fixed seed speaks the same texts with the same samples.
"""

import ctypes
from typing import Any

import numpy as np

# Of espeak-ng's speak_lib.h: samples are handed over as they are made, text is UTF-8, positions count characters.
SYNCHRONOUS, UTF8, CHARACTERS, RATE, PITCH = 2, 1, 1, 1, 3
SEED = 7
Speech = tuple["np.ndarray[Any, Any]", list[int], int]


def speak(library: Any, home: str, lines: list[Any]) -> Speech:
    """Return the samples of every [text, voice, words a minute, pitch], the length of each, and the sampling rate.

    RuntimeError where espeak-ng knows no such voice.
    """
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, home.encode(), 0)
    parts: list[Any] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def receive(samples: Any, count: int, events: Any) -> int:
        if samples and count:
            parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    library.espeak_SetSynthCallback(receive)
    library.espeak_ng_SetRandSeed(ctypes.c_long(SEED))
    lengths = []
    for text, voice, speed, pitch in lines:
        if library.espeak_SetVoiceByName(voice.encode()):
            raise RuntimeError(f"espeak-ng has no voice {voice!r}")
        library.espeak_SetParameter(RATE, speed, 0)
        library.espeak_SetParameter(PITCH, pitch, 0)
        first, data = len(parts), text.encode() + b"\0"
        library.espeak_Synth(data, len(data), 0, CHARACTERS, 0, UTF8, None, None)
        library.espeak_Synchronize()
        lengths.append(sum(map(len, parts[first:])))
    return np.concatenate(parts), lengths, rate


def speak_by_espeak(lines: list[Any]) -> Speech:
    """Speak lines by the library that the package espeakng-loader brings."""
    import espeakng_loader

    return speak(ctypes.CDLL(espeakng_loader.get_library_path()), espeakng_loader.get_data_path(), lines)
