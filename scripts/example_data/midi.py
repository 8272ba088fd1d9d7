"""How does a tune become sound? Notes and chords as a standard MIDI file, which any player plays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.scripts.common.files import sync

if TYPE_CHECKING:
    from mido import MidiTrack

TICKS = 480  # of a quarter note


@dataclass(frozen=True)
class Note:
    """A key of a piano, 60 being middle C, held from one moment to another, both counted in quarter notes."""

    key: int
    start: float
    end: float
    velocity: int = 80


def write_midi(path: Path, parts: Iterable[Sequence[Note]], *, tempo: float = 110.0) -> None:
    """Write parts that sound together, `tempo` quarter notes a minute; the file appears whole or not at all."""
    from mido import MetaMessage, MidiFile, bpm2tempo

    file = MidiFile(ticks_per_beat=TICKS)
    for channel, notes in enumerate(parts):
        file.tracks.append(track(notes, channel))
    file.tracks[0].insert(0, MetaMessage("set_tempo", tempo=bpm2tempo(tempo)))
    partial = path.with_suffix(".partial")
    file.save(str(partial))
    sync(partial)
    partial.replace(path)


def track(notes: Sequence[Note], channel: int) -> "MidiTrack":
    """The keys of a part as they go down and up, each so many ticks after the one before."""
    from mido import Message, MidiTrack

    # What ends does so before what begins at the same moment, or a repeated key would fall silent.
    events = sorted(
        [(note.end, 0, note) for note in notes] + [(note.start, 1, note) for note in notes],
        key=lambda event: event[:2],
    )
    found, now = MidiTrack(), 0
    for moment, begins, note in events:
        tick = round(moment * TICKS)
        velocity = note.velocity if begins else 0
        kind = "note_on" if begins else "note_off"
        found.append(Message(kind, channel=channel, note=note.key, velocity=velocity, time=tick - now))
        now = tick
    return found
