"""Notes come out of the file as they went in, as any player reads it."""

from pathlib import Path

from mido import MidiFile

from qkv.scripts.example_data.midi import TICKS, Note, write_midi


def heard(path: Path) -> list[tuple[int, float, float, int]]:
    """(key, start, end, channel) of each note, in quarter notes, as mido reads them."""
    found, down = [], {}
    for track in MidiFile(path).tracks:
        now = 0
        for message in track:
            now += message.time
            if message.type == "note_on":
                down[message.channel, message.note] = now
            elif message.type == "note_off":
                start = down.pop((message.channel, message.note))
                found.append((message.note, start / TICKS, now / TICKS, message.channel))
    assert not down
    return sorted(found, key=lambda note: (note[3], note[1:]))


def test_notes_and_chords_come_out_as_they_went_in(tmp_path: Path) -> None:
    melody = [Note(60, 0.0, 0.5), Note(60, 0.5, 1.5), Note(64, 2.0, 3.0)]  # one key twice, without a pause
    chords = [Note(48, 0.0, 4.0, 50), Note(52, 0.0, 4.0, 50)]
    write_midi(tmp_path / "a.mid", [melody, chords], tempo=90)
    assert heard(tmp_path / "a.mid") == [(60, 0.0, 0.5, 0), (60, 0.5, 1.5, 0), (64, 2.0, 3.0, 0), (48, 0.0, 4.0, 1),
                                         (52, 0.0, 4.0, 1)]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["a.mid"]
    # Four quarters at 90 a minute.
    assert abs(MidiFile(tmp_path / "a.mid").length - 4 * 60 / 90) < 0.01


def test_silence_is_a_file_too(tmp_path: Path) -> None:
    write_midi(tmp_path / "a.mid", [[], []])
    assert heard(tmp_path / "a.mid") == []
