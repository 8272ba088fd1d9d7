"""Damaged and hostile files of every kind that is read: one sentence of ours or a right result, and nothing else is done.

A few hundred inputs of each kind run with the other tests. `make fuzz` tries 100,000 of each, from the seed of
QKV_FUZZ_SEED, holds all of them to limits of time and memory, and writes a page.
"""

import json
import logging
import os
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import data_kinds
import model_kinds
import pytest
from damage import changed
from kinds import Kind, Meter, nothing_forbidden

import qkv
import tables
from checkout import ROOT
from pages import RecordedPage
from qkv.modeling.conversion.files import quiet

ON_REQUEST = "QKV_FUZZ" in os.environ
TRIES = int(os.environ.get("QKV_FUZZ", "150"))
SEED = int(os.environ.get("QKV_FUZZ_SEED", "0"))
KINDS = data_kinds.KINDS | model_kinds.KINDS
# What says what is wrong, and where it is said.
EXPECTED = (ValueError, OSError, qkv.IntegrityError)
OURS = re.compile(f"{re.escape(str(ROOT))}/(configuration|modeling|scripts|tests/fuzz)/")
# Inputs that once ended in another way, by what that was.
REGRESSIONS = tables.beside(__file__, "regressions.yaml")
# How many failures are told of.
TOLD = 20


def ended(kind: Kind, path: Path, whole: bytes, limits: AbstractContextManager[None]) -> str:
    """Read a file, and say in a word how that ended; AssertionError where it is neither refused nor right."""
    try:
        with limits, nothing_forbidden():
            read = kind.read(path)
    except EXPECTED as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        assert str(error).strip() and OURS.match(frame.f_code.co_filename), f"{frame}: {error!r}"
        return "refused"
    kind.check(path, whole, read)
    if path.read_bytes() == whole:
        return "not changed"
    return "refused" if kind.refuses(read) else "read"


@pytest.fixture(autouse=True)
def no_words() -> Iterator[None]:
    """Silence transformers and qkv, once for all: each change of it takes longer than reading a file."""
    ours = logging.getLogger("qkv")
    ours.setLevel(logging.ERROR)
    with quiet():
        yield
    ours.setLevel(logging.NOTSET)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, of damaged TIFF
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.costly(6)
def test_damage_ends_in_a_sentence(name: str, tmp_path: Path, page: RecordedPage) -> None:
    kind, began = KINDS[name], time.monotonic()
    path = kind.make(tmp_path)
    if kind.as_json:  # in the form of its changes
        path.write_text(json.dumps(json.loads(path.read_bytes())))
    whole = path.read_bytes()
    # This imports what reading takes, which compiles and runs code.
    assert ended(kind, path, whole, nullcontext()) == "not changed"
    outcomes, failures, meter, seen = Counter[str](), [], Meter() if ON_REQUEST else None, set[int]()
    for number in range(TRIES):
        path.write_bytes(data := changed(whole, f"{SEED} {name} {number}", as_json=kind.as_json))
        seen.add(hash(data))
        limits = meter.within_limits(number, partial(kind.memory, path)) if meter else nullcontext()
        try:
            outcomes[ended(kind, path, whole, limits)] += 1
        except Exception as error:
            failures.append(f"input {number}, {data[:300]!r}: {type(error).__name__}: {str(error)[:500]}")
            if len(failures) == TOLD:
                break
    assert not failures, "\n\n".join(failures)
    assert outcomes["refused"]
    if meter:
        memory = {"memory MiB": round(meter.largest[0] / 2**20, 1), "largest input": meter.largest[1]}
        times = {"seconds": round(meter.slowest[0], 3), "slowest input": meter.slowest[1]}
        counts = {each: outcomes[each] for each in ("refused", "read", "not changed")}
        page.add(name, SEED, began, inputs=TRIES, different=len(seen), **counts, **times, **memory)


@pytest.mark.parametrize(("name", "once"), [(name, once) for name, stored in REGRESSIONS.items() for once in stored])
def test_what_once_failed_ends_well(name: str, once: str, tmp_path: Path) -> None:
    path = KINDS[name].make(tmp_path)
    whole = path.read_bytes()
    data = REGRESSIONS[name][once]
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    assert ended(KINDS[name], path, whole, nullcontext()) in ("refused", "read")
