"""Time loading a published decoder with its own code against the installed qkv, in turns and with equal outputs."""

import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median

import torch

import qkv
from qkv.modeling.conversion.files import write_json
from qkv.scripts.common.environment import versions
from qkv.scripts.common.inspector import Job
from qkv.scripts.common.tables import print_table
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.clean_process import Loaded, load_in_clean_process

MODES = ("installed", "remote")
Laps = dict[str, list[dict[str, float]]]


def run(arguments: Namespace) -> None:
    """Measure, and print and write the results."""
    if arguments.runs < 1:
        raise ValueError(f"--runs={arguments.runs} measures nothing; use at least 1")
    with tempfile.TemporaryDirectory() as name:
        torch.manual_seed(0)
        model = qkv.QkvDecoderForCausalLM(qkv.presets.gpt2())
        folder = build_folder(model, Path(name) / "gpt2")
        laps = in_turns(folder, "AutoModelForCausalLM", arguments.runs, Path(name))
    figures = {part: ratio(laps, part) for part in ("first", "again")}
    size = f"{model.num_parameters() / 1e6:.0f} million weights"
    print_table(f"loading a GPT-2 of {size}, {arguments.runs} turns", rows(laps, figures))
    if arguments.json:
        record = {"versions": versions(), "runs": arguments.runs, "seconds": laps, "remote over installed": figures}
        write_json(arguments.json, record)


def in_turns(folder: Path, auto_class: str, runs: int, home: Path) -> Laps:
    """Load in turns after a warm-up of each; RuntimeError when the outputs differ."""
    laps: Laps = {mode: [] for mode in MODES}
    answers = []
    for turn in range(-1, runs):
        # Who goes first alternates, for the second finds warm files.
        for mode in MODES if turn % 2 else reversed(MODES):
            lap = load(folder, auto_class, mode, home)
            answers.append(lap.outputs["logits"])
            laps[mode] += [lap.report["seconds"]] * (turn >= 0)
    if not all(torch.equal(answer, answers[0]) for answer in answers):
        raise RuntimeError("the published model has other outputs than the installed one; there is nothing to time")
    return laps


def load(folder: Path, auto_class: str, mode: str, home: Path) -> Loaded:
    """Load once in a new process."""
    installed = mode == "installed"
    job = Job(folder, auto_class, {"input_ids": torch.arange(8)[None]}, remote=not installed, timed=True)
    (lap,) = load_in_clean_process([job], home, installed=installed)
    if installed != lap.report["module"].startswith("qkv."):
        raise RuntimeError(f"{mode} loading took the class from {lap.report['module']}")
    return lap


def ratio(laps: Laps, part: str) -> list[float]:
    """Return remote over installed, turn by turn: least, median, most."""
    ratios = sorted(one[part] / other[part] for one, other in zip(laps["remote"], laps["installed"], strict=True))
    return [ratios[0], median(ratios), ratios[-1]]


def rows(laps: Laps, figures: dict[str, list[float]]) -> dict[str, str]:
    """Return the rows of the table: seconds of both sides, and their ratios."""
    table = {"answers": "equal bit by bit"}
    for part, (least, middle, most) in figures.items():
        for mode in MODES:
            table[f"{part} load, {mode}"] = f"{median(lap[part] for lap in laps[mode]):.3f} s"
        table[f"{part} load, remote / installed"] = f"{middle:.2f} ({least:.2f} to {most:.2f})"
    return table
