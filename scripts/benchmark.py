"""Time loading a published decoder: with its own code, against the installed qkv, in turns and with equal answers.

Every load is a fresh process. What is printed is ratios: both sides run on the same machine in the same minutes.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import qkv
from qkv.modeling.conversion.files import write_json
from qkv.scripts.common.environment import versions
from qkv.scripts.common.tables import show
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.clean_process import clean_environment

EXAMPLE = "qkv benchmark --runs 9"
STOPWATCH = Path(__file__).parent / "publishing" / "integrity" / "stopwatch.py"
MODES = ("installed", "remote")
Laps = dict[str, list[dict[str, Any]]]


def add_arguments(parser: ArgumentParser) -> None:
    """How often, and where the figures go."""
    parser.add_argument("--runs", type=int, default=9, help="loads of each kind (9)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def run(arguments: Namespace) -> None:
    """Measure, print a table, and keep the figures."""
    if arguments.runs < 1:
        raise ValueError(f"--runs={arguments.runs} measures nothing; use at least 1")
    with tempfile.TemporaryDirectory() as name:
        torch.manual_seed(0)
        model = qkv.QkvDecoderForCausalLM(qkv.presets.gpt2())
        folder = build_folder(model, Path(name) / "gpt2")
        laps = in_turns(folder, "AutoModelForCausalLM", arguments.runs, Path(name))
    figures = {part: ratio(laps, part) for part in ("first", "again")}
    size = f"{model.num_parameters() / 1e6:.0f} million weights"
    show(f"loading a GPT-2 of {size}, {arguments.runs} turns", rows(laps, figures))
    if arguments.json:
        record = {"versions": versions(), "runs": arguments.runs, "seconds": laps, "remote over installed": figures}
        write_json(arguments.json, record)


def in_turns(folder: Path, auto_class: str, runs: int, home: Path) -> Laps:
    """Load in turns, after one load of each that counts for nothing; RuntimeError when the answers differ."""
    laps: Laps = {mode: [] for mode in MODES}
    answers = set()
    for turn in range(-1, runs):
        # Who goes first changes, for the second finds files that are warm.
        for mode in MODES if turn % 2 else reversed(MODES):
            lap = load(folder, auto_class, mode, home)
            answers.add(lap.pop("answer"))
            laps[mode] += [lap] * (turn >= 0)
    if len(answers) > 1:
        raise RuntimeError("the published model gives other numbers than the installed one; there is nothing to time")
    return laps


def load(folder: Path, auto_class: str, mode: str, home: Path) -> dict[str, Any]:
    """One load in a fresh process."""
    words = [str(folder), auto_class, mode, str(qkv.__file__), qkv.__path__[0]]
    result = subprocess.run(
        [sys.executable, STOPWATCH, *words], env=clean_environment(home), capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"{mode} loading failed: {result.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def ratio(laps: Laps, part: str) -> list[float]:
    """Remote over installed, turn by turn: least, median, most."""
    found = sorted(one[part] / other[part] for one, other in zip(laps["remote"], laps["installed"], strict=True))
    return [found[0], median(found), found[-1]]


def rows(laps: Laps, figures: dict[str, list[float]]) -> dict[str, str]:
    """The table: seconds of both sides, and their ratios."""
    table = {"answers": "equal bit by bit"}
    for part, (least, middle, most) in figures.items():
        for mode in MODES:
            table[f"{part} load, {mode}"] = f"{median(lap[part] for lap in laps[mode]):.3f} s"
        table[f"{part} load, remote / installed"] = f"{middle:.2f} ({least:.2f} to {most:.2f})"
    return table


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["benchmark", *sys.argv[1:]]))
