"""A disk that is full at any write: what was there stays whole, one sentence says how to go on, and so it goes on."""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers
from cases import Case, Scene, halves, left, leftovers
from watching import number

from qkv.scripts.publishing.export.flatten import flatten

NAMES = ("digits", "the best is kept", "more steps", "sweep", "publish", "publish --native",
         "convert", "convert back", "predict", "evaluate")  # fmt: skip
SENTENCE = re.compile(r"qkv: .*No space left on device.*make room, and give the same command again")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("full") / "scene")


def codes(folder: Path) -> dict[str, set[str]]:
    """Digests of files as `save_pretrained` writes them: configs name the release, and code is not shortened yet."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("config.json"):
        config = transformers.AutoConfig.from_pretrained(path.parent)
        saved = {"config.json": config.to_json_string(), **flatten(config, every_word=True).files}
        for name, text in saved.items():
            whole = hashlib.sha256(text.encode()).hexdigest()
            found.setdefault(str((path.parent / name).relative_to(folder)), set()).add(whole)
    return found


def check_refusal(case: Case, folder: Path, before: dict[str, str], after: dict[str, str]) -> None:
    """One sentence, as the last line; all that has its name is whole, and as it was before or will be."""
    said = case.said(folder)
    *_, last = said.splitlines()
    assert SENTENCE.match(last) and "Traceback" not in said, (case.name, said[-3000:])
    assert len(last) < 700 and last.count("make room") == 1, last
    assert halves(folder) == [], (case.name, said)
    kept = left(folder)
    growing = ("checkpoints", "metrics.jsonl")
    models = {name: digest for name, digest in before.items() if not any(part in name for part in growing)}
    whole = codes(folder) if models else {}
    other = [name for name in models if kept.get(name) not in {models[name], after[name], *whole.get(name, ())}]
    assert other == [], (case.name, said)


def check_going_on(case: Case, folder: Path, scene: Scene) -> None:
    """With room, the same command ends as if there had always been room."""
    assert case.run(folder) == [0] * case.processes, (case.name, case.said(folder))
    assert left(folder) == scene.whole(case).left, case.name
    assert leftovers(folder) == [], case.name


def untouched(case: Case, folder: Path) -> dict[str, str]:
    """What is there before."""
    folder.mkdir()
    case.prepare(folder)
    return left(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_may_be_full_at_any_write(scene: Scene, name: str, tmp_path: Path, record: Callable[..., None]) -> None:
    case, refused = scene.cases[name], 0
    writes = scene.whole(case, growing=True).writes
    every = number("WRITES", 1)
    for at in range(1, writes + 1, every):
        folder = tmp_path / f"full-{at}"
        before = untouched(case, folder)
        statuses = case.run(folder, full_from=at)
        if statuses != [0]:
            assert statuses == [1], case.said(folder)
            refused += 1
            check_refusal(case, folder, before, scene.whole(case).left)
        check_going_on(case, folder, scene)
        shutil.rmtree(folder)
    assert refused
    often = f"at each of {len(range(1, writes + 1, every))} writes"
    found = f"{refused} times one sentence, all that was there whole; then the same bits"
    record(f"a disk is full: {name}", often, found, writes=writes, refused=refused)
