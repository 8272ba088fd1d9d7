"""Who speaks? espeak-ng, in a process of its own: run by path, it says what it reads from standard input.

Its library draws breath at random and keeps its oscillators' phases from one text to the next, however often it is
initialised: only a fresh process with a fixed seed says the same texts with the same samples.
"""

import ctypes
import json
import sys
from typing import Any

import numpy as np

# Of espeak-ng's speak_lib.h: samples are handed over as they are made, text is UTF-8, positions count characters.
SYNCHRONOUS, UTF8, CHARACTERS, RATE, PITCH = 2, 1, 1, 1, 3
SEED = 7


Heard = tuple["np.ndarray[Any, Any]", list[int], int]


def speak(library: Any, home: str, lines: list[Any]) -> Heard:
    """The samples of every [text, voice, words a minute, pitch], how many each has, and how many make a second."""
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, home.encode(), 0)
    heard: list[Any] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def hear(samples: Any, count: int, events: Any) -> int:
        if samples and count:
            heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    library.espeak_SetSynthCallback(hear)
    library.espeak_ng_SetRandSeed(ctypes.c_long(SEED))
    lengths = []
    for text, voice, speed, pitch in lines:
        first = len(heard)
        say(library, text, voice, {RATE: speed, PITCH: pitch})
        lengths.append(sum(map(len, heard[first:])))
    return np.concatenate(heard), lengths, rate


def say(library: Any, text: str, voice: str, parameters: dict[int, int]) -> None:
    """One text; RuntimeError where espeak-ng knows no such voice."""
    if library.espeak_SetVoiceByName(voice.encode()):
        raise RuntimeError(f"espeak-ng has no voice {voice!r}")
    for number, value in parameters.items():
        library.espeak_SetParameter(number, value, 0)
    data = text.encode() + b"\0"
    library.espeak_Synth(data, len(data), 0, CHARACTERS, 0, UTF8, None, None)
    library.espeak_Synchronize()


def main(path: str) -> None:
    """Say what there is to say, and write down how it sounds."""
    import espeakng_loader

    library = ctypes.CDLL(espeakng_loader.get_library_path())
    samples, lengths, rate = speak(library, espeakng_loader.get_data_path(), json.load(sys.stdin))
    np.savez(path, samples=samples, lengths=lengths, rate=rate)


if __name__ == "__main__":
    main(sys.argv[1])
