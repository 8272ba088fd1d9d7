"""A batch that does not fit is answered before the training with the words that take the same step, or what else helps."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from errors import raises_sentence
from qkv.scripts import cli
from qkv.scripts.common.run_folder import read_metrics
from qkv.scripts.recipes.loading import changed, load
from qkv.scripts.training import run as run_module
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.memory import step_plan
from qkv.scripts.training.memory.step_cost import StepCost, bytes_of, gradient_bytes, held_bytes
from qkv.scripts.training.memory.step_plan import StepPlan, plan_steps, spoken
from qkv.scripts.training.run import train
from tiny_training import manager

TINY = ["max_steps=2", "log_every=1", "eval_every=2", "model.hidden_size=16", "model.num_hidden_layers=1"]
COST = StepCost(0.5, held=1000, each=1000.0, gradients=500, batch_size=4)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the bytes that are free."""
    return lambda size: monkeypatch.setattr(step_plan, "free_memory", lambda device: size)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """A training of 10 steps of 4 examples."""
    yield manager(tmp_path / "run").loop


def test_what_is_typed_as_told_fits_and_trains_the_same(
    tmp_path: Path, free: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(load("digits", [*TINY, f"out={tmp_path / 'whole'}"]), "qkv train digits")
    said = capsys.readouterr().err
    assert "2 steps of about" in said and "memory at the peak is about 332 kB of" in said
    free(250_000)
    words = ["train", "digits", *TINY, f"out={tmp_path / 'parts'}"]
    assert cli.main(words) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "qkv: batch_size=32 takes about 316 kB at its peak, and 266 kB are free on the CPU; accumulate=2 takes the "
        "same step in parts of 16 examples, to the same result, in about 199 kB"
    )
    parts = train(load("digits", [*TINY, f"out={tmp_path / 'parts'}", "accumulate=2"]), "qkv train digits")
    ours, theirs = (read_metrics(one.folder)[0]["loss"] for one in (whole, parts))
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_the_fewest_parts_that_fit_are_named(loop: Loop) -> None:
    assert StepPlan(loop, 5000, COST).check() is None
    with raises_sentence("and 5 kB are free on the CPU; accumulate=2 takes"):
        StepPlan(loop, 4999, COST).check()
    with raises_sentence("accumulate=4 takes the same step in parts of 1 examples"):
        StepPlan(loop, 2999, COST).check()


def test_one_example_may_be_too_much(loop: Loop) -> None:
    with raises_sentence("one example at a time is too much already: try gradient_checkpointing=true"):
        StepPlan(loop, 2400, COST).check()
    loop.recipe = changed(loop.recipe, accumulate=4)
    loop.loader.share = loop.loader.share.of(loop.accelerator, loop.recipe)
    with raises_sentence("batch_size=4 in accumulate=4 parts takes about 2.5 kB"):
        StepPlan(loop, 2400, COST).check()


def test_in_batch_negatives_are_not_split(loop: Loop) -> None:
    type(loop.task).in_batch_negatives = True
    with raises_sentence("a step cannot be split: model.embedding_chunk_size=16 gives"):
        StepPlan(loop, 4999, COST).check()


def test_weights_that_do_not_fit_are_not_copied(loop: Loop, free: Callable[[int], None]) -> None:
    weights, needed = bytes_of(loop.model.parameters()), held_bytes(loop) + gradient_bytes(loop)
    free(needed - 1)
    assert plan_steps(loop).cost is None
    free(needed - weights - 1)
    with raises_sentence("one example at a time is too much already"):
        plan_steps(loop)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_step_that_finds_no_memory_says_what_to_type(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After what was predicted to fit, and where nothing could be measured."""

    def steps(self: Loop) -> Iterator[object]:
        raise error
        yield

    monkeypatch.setattr(Loop, "steps", steps)
    monkeypatch.setattr(step_plan, "free_memory", lambda device: 10**9)
    assert cli.main(["train", "digits", *TINY, f"out={tmp_path / 'run'}"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "qkv: batch_size=32 found no memory on the CPU after step 0: 1 GB were free before, and a step was to take "
        "about 332 kB; accumulate=2 takes the same step in parts of 16 examples, to the same result, in about 206 kB"
    )
    monkeypatch.setattr(run_module, "plan_steps", StepPlan)
    assert cli.main(["train", "digits", *TINY, f"out={tmp_path / 'other'}"]) == 1
    assert capsys.readouterr().err.endswith(
        ": none was left; accumulate=2 takes the same step in parts of 16 examples, to the same result\n"
    )


def test_other_errors_stay_as_they_are(loop: Loop) -> None:
    with pytest.raises(RuntimeError, match="^shapes differ$"), StepPlan(loop).explained():
        raise RuntimeError("shapes differ")


def test_the_steps_that_are_left_are_counted(loop: Loop) -> None:
    plan = StepPlan(loop, 10_000, COST)
    assert plan.sentence() == (
        "10 steps of about 0.5 s take about 5 s, evaluations apart; memory at the peak is about 5 kB of 10 kB that are "
        "free"
    )
    loop.done = 8
    assert plan.sentence().startswith("2 steps of about 0.5 s take about 1 s, ")
    assert StepPlan(loop, 10_000).sentence() == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "about 0 s"), (89, "about 89 s"), (150, "about 2 minutes"), (9000, "about 2.5 hours")]
)
def test_times_are_said_in_their_unit(seconds: float, words: str) -> None:
    assert spoken(seconds) == words


LIMITED = """
import resource, sys
from qkv.scripts import cli, train
from qkv.scripts.training.memory import step_plan
mode, *words = sys.argv[1:]
if mode == "unmeasured":
    train.train.__globals__["plan_steps"] = step_plan.StepPlan
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 800_000_000,) * 2)
sys.exit(cli.main(words))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["measured", "unmeasured"])
def test_an_allocator_that_fails_is_answered(tmp_path: Path, mode: str) -> None:
    """The process may take 0.8 GB more, and the batch would take 6: while it is measured, or at the first step."""
    words = ["train", "digits", "max_steps=1", "batch_size=1024", "model.num_hidden_layers=8", "threads=1"]
    words += ["model.intermediate_size=4096", f"out={tmp_path / 'run'}"]
    ran = subprocess.run([sys.executable, "-c", LIMITED, mode, *words], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1, ran.stderr
    assert "qkv: batch_size=1024 found no memory on the CPU after step 0" in ran.stderr
    assert "accumulate=2 takes the same step in parts of 512 examples, to the same result" in ran.stderr
