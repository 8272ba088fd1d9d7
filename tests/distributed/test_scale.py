"""A training is equal on one process and on several, by every strategy."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

import scale_worker as worker
from processes import run_together
from scale_worker import Curve

Training = tuple[str, str, str]
FAMILIES = ("encoder", "decoder", "encoder-decoder", "vit")
WAYS = ("ddp", "fsdp2", "tensor parallel")
# Each strategy once, the ties of each family where they are hardest to keep, and two counts of targets.
QUICK = [
    ("decoder", "ddp", "float64"),
    ("decoder", "tensor parallel", "float64"),
    ("encoder-decoder", "fsdp2", "float64"),
    ("decoder", "tensor parallel, resumed", "float64"),
    ("dropout", "tensor parallel", "float64"),
    ("pairs", "ddp, in one part", "float64"),
    ("scenes", "ddp", "float64"),
    ("mixture", "fsdp2", "float64"),
]
LONG = [
    *[(name, way, dtype) for name in (*FAMILIES, "packed") for way in WAYS for dtype in ("float64", "float32")],
    *[(name, "tensor parallel", "float64") for name in ("alibi", "t5")],
    *[("mixture", way, dtype) for way in WAYS for dtype in ("float64", "float32")],
    *[(name, way, "float64") for name in ("ctc", "speech") for way in ("ddp", "fsdp2")],
    ("normed heads", "tensor parallel, in one part", "float64"),
    ("recurrent", "ddp", "float64"),
    ("decoder", "fsdp2, resumed", "float64"),
]
# Two tensor-parallel groups, whose slices are sharded.
GROUPS = [(name, "tensor parallel and fsdp2", "float64") for name in (*FAMILIES, "packed", "t5")]
HALF = [(name, way, "float32") for way in ("fsdp2, bf16", "tensor parallel, bf16") for name in FAMILIES]
CLOSE = {"float64": 1e-10, "float32": 1e-5}
# Trainings by name: cases, steps, and the processes that take them together.
TOGETHER = {"quick": (QUICK, 3, 2), "long": (LONG, 50, 2), "four": (GROUPS, 3, 4), "half": (HALF, 3, 2)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with the logs and models of trainings, filled when they are first asked for."""

    class Folders(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            trainings, steps, processes = TOGETHER[name]
            self[name] = folder = tmp_path_factory.mktemp(name)
            run_together("scale_worker", [folder, json.dumps(trainings), steps], folder, processes)
            return folder

    return Folders()


def alone(training: Training, steps: int) -> tuple[Curve, PreTrainedModel]:
    """The log and the model of the same training on one process."""
    name, way, dtype = training
    shared = ("strategy", "tensor_parallel", "accumulate", "halt")
    fields = {key: value for key, value in worker.ENGINES[way].items() if key not in shared}
    with worker.fresh_state():
        return worker.curve(name, dtype, steps, **fields)


def log(folder: Path, training: Training) -> Curve:
    """The log that both processes have."""
    first, second = (json.loads(folder.joinpath(*training, f"{rank}.json").read_text()) for rank in "01")
    assert first == second
    return first


CHECKED = [
    *(("quick", training) for training in QUICK if training[0] != "dropout"),
    *(pytest.param("long", training, marks=pytest.mark.slow) for training in LONG),
    *(pytest.param("four", training, marks=pytest.mark.slow) for training in GROUPS),
]


@pytest.mark.parametrize(("group", "training"), CHECKED, ids=str)
def test_several_processes_take_the_steps_of_one(group: str, training: Training, results: dict[str, Path]) -> None:
    found, dtype = log(results[group], training), training[-1]
    expected, model = alone(training, TOGETHER[group][1])
    assert expected["loss"][0] != pytest.approx(expected["loss"][-1], abs=1e-3)
    for key in ("loss", "norm", "tokens", "evaluation"):
        assert found[key] == pytest.approx(expected[key], rel=0, abs=CLOSE[dtype]), key
    assert found["written"] == expected["written"]
    if dtype == "float64":  # in single precision AdamW's first steps amplify rounding
        folder, weights = results[group].joinpath(*training), model.state_dict()
        saved = load_file(folder / "model.safetensors")
        assert max((value - weights[key]).abs().max().item() for key, value in saved.items()) < 1e-10
        assert type(model).from_pretrained(folder, dtype=torch.float64).state_dict().keys() == weights.keys()


@pytest.mark.slow
@pytest.mark.parametrize("training", HALF, ids=", ".join)
def test_bf16_differs_by_its_rounding(training: Training, results: dict[str, Path]) -> None:
    """A sum in other order differs by the rounding of bfloat16, not by that of a loss of four to eight bits."""
    found, (expected, _) = log(results["half"], training), alone(training, 3)
    # Of equal weights: AdamW's first steps amplify the rounding of gradients.
    found["evaluation"], expected["evaluation"] = found["evaluation"][:1], expected["evaluation"][:1]
    for key, tolerance in {"loss": 5e-4, "evaluation": 5e-4, "norm": 5e-3}.items():
        assert found[key] == pytest.approx(expected[key], rel=0, abs=tolerance), key


def test_tensor_parallel_group_drops_alike(results: dict[str, Path]) -> None:
    found = log(results["quick"], ("dropout", "tensor parallel", "float64"))
    plain = log(results["quick"], ("decoder", "tensor parallel", "float64"))
    assert len(found["copies"]) > 10 and found["loss"] != pytest.approx(plain["loss"], abs=1e-3)
