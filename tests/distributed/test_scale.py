"""A training is the same on one process and on several, whatever they share: data, weights or layers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import scale_worker as worker
from processes import run_together
from sampling import sampled
from scale_worker import CASES, Curve
from tiny import CASES as HEADS

FAMILIES = ("encoder", "decoder", "encoder-decoder", "vit")
WAYS = ("ddp", "fsdp2", "tensor parallel")
# Each way of sharing once, the ties of each family where they are hardest to keep, and two counts of targets.
QUICK = [
    ("decoder", "ddp", "float64"),
    ("decoder", "tensor parallel", "float64"),
    ("encoder-decoder", "fsdp2", "float64"),
    ("decoder", "fsdp2, averaged", "float64"),
    ("decoder", "tensor parallel, averaged", "float64"),
    ("dropout", "tensor parallel", "float64"),
    ("pairs", "ddp, in one part", "float64"),
    ("scenes", "ddp", "float64"),
]
LONG = [
    *[(name, way, dtype) for name in (*FAMILIES, "packed") for way in WAYS for dtype in ("float64", "float32")],
    *[(name, "tensor parallel", "float64") for name in ("alibi", "t5")],
    *[(name, way, "float64") for name in ("ctc", "speech") for way in ("ddp", "fsdp2")],
    ("normed heads", "tensor parallel, in one part", "float64"),
    ("recurrent", "ddp", "float64"),
]
# Two groups that share layers, each with a piece of its slices.
GROUPS = [(name, "tensor parallel and fsdp2", "float64") for name in (*FAMILIES, "packed", "t5")]
DEEPSPEED = [(name, way, "float32") for way in ("zero2", "zero3") for name in FAMILIES]
HALF = [(name, way, "float32") for way in ("fsdp2, bf16", "tensor parallel, bf16") for name in FAMILIES]
CLOSE = {"float64": 1e-10, "float32": 1e-5}


def train(folder: Path, trainings: list[Any], steps: int, processes: int = 2) -> Path:
    """The folder in which the processes leave what came out."""
    run_together("scale_worker", [folder, json.dumps(trainings), steps], folder, processes)
    return folder


def alone(name: str, dtype: str, steps: int, way: str = "ddp") -> tuple[Curve, dict[str, torch.Tensor]]:
    shared = ("strategy", "tensor_parallel", "accumulate", "halt")
    fields = {key: value for key, value in worker.ENGINES[way].items() if key not in shared}
    with worker.fresh_state():
        found, model = worker.curve(name, dtype, steps, **fields)
    return found, {key: value.detach().clone() for key, value in model.state_dict().items()}


def assert_close(found: Curve, expected: Curve, tolerance: float) -> None:
    for key in ("loss", "norm", "tokens", "evaluation"):
        assert found[key] == pytest.approx(expected[key], rel=0, abs=tolerance), key


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("quick"), QUICK, steps=3)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("long"), LONG, steps=50)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("four"), GROUPS, steps=3, processes=4)


@pytest.fixture(scope="module")
def zero(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("deepspeed")
    return train(tmp_path_factory.mktemp("zero"), DEEPSPEED, steps=3)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("half"), HALF, steps=3)


def logs(folder: Path, training: tuple[str, str, str]) -> tuple[Curve, Curve]:
    first, second = (json.loads(folder.joinpath(*training, f"{rank}.json").read_text()) for rank in "01")
    return first, second


def check(folder: Path, training: tuple[str, str, str], steps: int) -> None:
    """Both processes log what one alone logs, and the saved model is whole and the same."""
    name, way, dtype = training
    found, other = logs(folder, training)
    assert found == other
    expected, weights = alone(name, dtype, steps, way)
    assert expected["loss"][0] != pytest.approx(expected["loss"][-1], abs=1e-3)
    assert_close(found, expected, CLOSE[dtype])
    assert found.get("written") == expected.get("written")
    if dtype == "float64":  # in single precision AdamW's first steps amplify rounding
        saved = load_file(folder.joinpath(*training, "model.safetensors"))
        assert max((value - weights[key]).abs().max().item() for key, value in saved.items()) < 1e-10
        loaded = CASES[name][0].from_pretrained(folder.joinpath(*training), dtype=torch.float64)
        assert loaded.state_dict().keys() == weights.keys()


@pytest.mark.parametrize("training", [training for training in QUICK if training[0] != "dropout"], ids=", ".join)
def test_two_processes_take_the_steps_of_one(training: tuple[str, str, str], quick: Path) -> None:
    check(quick, training, steps=3)


@pytest.mark.slow
@pytest.mark.parametrize("training", LONG, ids=", ".join)
def test_curves_of_two_processes_are_those_of_one(training: tuple[str, str, str], long: Path) -> None:
    check(long, training, steps=50)


@pytest.mark.slow
@pytest.mark.parametrize("training", GROUPS, ids=", ".join)
def test_groups_that_share_layers_take_the_steps_of_one(training: tuple[str, str, str], four: Path) -> None:
    check(four, training, steps=3)


@pytest.mark.slow
@pytest.mark.parametrize("training", DEEPSPEED, ids=", ".join)
def test_deepspeed_takes_the_steps_of_one(training: tuple[str, str, str], zero: Path) -> None:
    check(zero, training, steps=3)


@pytest.mark.slow
@pytest.mark.parametrize("training", HALF, ids=", ".join)
def test_half_the_precision_is_not_half_of_it_again(training: tuple[str, str, str], half: Path) -> None:
    """A sum in other order differs by the rounding of bfloat16, not by that of a loss of four to eight bits."""
    name, way, dtype = training
    found, other = logs(half, training)
    expected, _ = alone(name, dtype, 3, way)
    assert found == other
    for key, tolerance in {"loss": 5e-4, "evaluation": 5e-4, "norm": 5e-3}.items():
        assert found[key] == pytest.approx(expected[key], rel=0, abs=tolerance), key


def test_processes_that_share_layers_drop_alike(quick: Path) -> None:
    found, other = logs(quick, ("dropout", "tensor parallel", "float64"))
    assert found == other and len(found["copies"]) > 10
    assert found["loss"] != pytest.approx(logs(quick, ("decoder", "tensor parallel", "float64"))[0]["loss"], abs=1e-3)


def test_the_usual_mistake_would_be_noticed(quick: Path) -> None:
    mistaken = json.loads((quick / "mistaken-0.json").read_text())
    expected, _ = alone("decoder", "float64", steps=3)
    assert abs(mistaken["norm"][0] - expected["norm"][0]) > 1e-2


@pytest.mark.parametrize("case", sampled([case for case in HEADS if "For" in case.name], 2), ids=lambda case: case.name)
def test_every_parameter_of_a_head_gets_a_gradient(case: Any) -> None:
    """Or DDP would wait for it for ever, unless it were told to look for what is not used at every step."""
    model = case.build().train()
    model(**case.inputs()).loss.backward()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and [name for name, parameter in trained.items() if parameter.grad is None] == []
