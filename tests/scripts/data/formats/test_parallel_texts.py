"""Texts in several languages: Moses' files of lines, and translation memories."""

from pathlib import Path

import pytest

from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.formats.parallel_texts import is_language
from qkv.scripts.data.formats.readers import read_rows
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import identity, read, splits
from qkv.scripts.data.local_files import found_files
from qkv.scripts.tasks import registry

ENGLISH = ["one house", "two\u2028old cats", "three birds", "", "five dogs and a \u00e9t\u00e9"]
FRENCH = ["une maison", "deux vieux chats", "trois oiseaux", "quatre", "cinq chiens et un \u00e9t\u00e9"]


def moses(folder: Path, name: str = "corpus.en-fr", encoding: str = "utf-8") -> Path:
    """Files of lines, as OPUS has them in its archives, with the files that it puts beside them."""
    folder.mkdir(exist_ok=True)
    for language, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (folder / f"{name}.{language}").write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    for beside in ("README", "LICENSE.txt", f"{name}.scores"):
        (folder / beside).write_text("0.5\n")
    return folder


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_lines_of_two_files_are_rows(tmp_path: Path, encoding: str) -> None:
    lines = [line.replace("\u2028", " ") for line in ENGLISH] if encoding == "latin-1" else ENGLISH
    folder = moses(tmp_path / "opus", encoding="utf-8")
    for path in folder.glob("*.en"):
        path.write_bytes("\n".join(lines).encode(encoding))
    for path in folder.glob("*.fr"):
        path.write_bytes("\r\n".join(FRENCH).encode(encoding))
    table = read(str(folder), encoding="latin-1" if encoding == "latin-1" else "utf-8")
    assert (table["en"][:], table["fr"][:]) == (lines, FRENCH)
    named = read(str(next(folder.glob("*.fr"))), encoding="latin-1" if encoding == "latin-1" else "utf-8")
    assert named["en"][:] == lines
    assert found_files(folder)[1] == {"README": 1, ".txt": 1, ".scores": 1}


def test_splits_are_named_by_the_files(tmp_path: Path) -> None:
    for name in ("train", "dev", "newstest.test"):
        moses(tmp_path, name)
    assert splits(str(tmp_path)) == ["train", "validation", "test"]


def test_a_changed_translation_changes_the_data(tmp_path: Path) -> None:
    folder = moses(tmp_path / "opus")
    english = folder / "corpus.en-fr.en"
    before = identity(str(english)), read(str(english))["fr"][0]
    (folder / "corpus.en-fr.fr").write_text("\n".join(["la maison", *FRENCH[1:]]))
    assert (identity(str(english)) != before[0], read(str(english))["fr"][0], before[1]) == (
        True,
        "la maison",
        FRENCH[0],
    )


@pytest.mark.parametrize("shorter", ["en", "fr"])
def test_a_file_with_fewer_lines_is_refused(tmp_path: Path, shorter: str) -> None:
    folder = moses(tmp_path / "opus")
    path = folder / f"corpus.en-fr.{shorter}"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match=f"corpus.en-fr.{shorter} ends with line 2"):
        list(read_rows(folder / "corpus.en-fr.en"))


@pytest.mark.parametrize("words", [[], ["text.column=en"], ["task=seq2seq"]])
def test_the_direction_is_asked_for(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(ValueError, match="languages en, fr.*text.column=en text.target=fr"):
        infer(str(moses(tmp_path / "opus")), words)


@pytest.mark.parametrize(("source", "target"), [("en", "fr"), ("fr", "en")])
def test_pairs_are_read_in_the_direction_that_is_typed(tmp_path: Path, source: str, target: str) -> None:
    where, sides = str(moses(tmp_path / "opus")), dict(zip(("en", "fr"), (ENGLISH, FRENCH), strict=True))
    recipe, _ = infer(
        where,
        [
            f"text.column={source}",
            f"text.target={target}",
            "holdout=0",
            "bad_records=0.3",
            "test_size=0.3",
            "average=2",
        ],
    )
    task = registry.load(recipe)
    assert recipe.model.architecture == "QkvEncoderDecoderForConditionalGeneration" and recipe.output.watch is None
    pairs = set(zip(*sides.values(), strict=True)) - {("", "quatre")}
    texts = [text for own in task.corpus.texts.values() for text in own]
    targets = [text for own in task.corpus.targets.values() for text in own]
    found = set(zip(texts, targets, strict=True))
    assert found == (pairs if source == "en" else {(french, english) for english, french in pairs})
    assert task.data.invalid_records.summary()["skipped"] == 1


TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>Press <bpt i="1">&lt;b&gt;</bpt>Save<ept i="1">&lt;/b&gt;</ept> &amp; <hi>go</hi>.</seg></tuv>
<tuv xml:lang="pt-BR"><seg>Salve
e v\u00e1.</seg></tuv></tu>
<tu><tuv lang="en"><seg>Stop</seg></tuv><tuv lang="pt-BR"><seg>Pare</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="en"><seg>b</seg></tuv></tu>
<tu><tuv xml:lang="en"/></tu>
</body></tmx>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_units_of_a_translation_memory_are_rows(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "memory.tmx"
    path.write_bytes(TMX.replace('"1.0"', f'"1.0" encoding="{encoding}"').encode(encoding))
    rows = [row for _, row in read_rows(path)]
    assert rows[:2] == [{"en": "Press Save & go.", "pt-BR": "Salve\ne v\u00e1."}, {"en": "Stop", "pt-BR": "Pare"}]
    assert [type(row) for row in rows[2:]] == [InvalidRecord, InvalidRecord]
    recipe, _ = infer(str(path), ["text.column=en", "text.target=pt-BR"])
    assert (recipe.text.column, recipe.text.target) == ("en", "pt-BR")


def test_a_broken_translation_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(TMX[:400])
    with pytest.raises(ValueError, match="memory.tmx is not TMX"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("code", "known"),
    [("en", True), ("pt_BR", True), ("zh-Hans", True), ("sr@latin", True), ("py", False), ("md", False), ("", False)],
)
def test_languages_are_known_by_their_codes(code: str, known: bool) -> None:
    assert is_language(code) is known
