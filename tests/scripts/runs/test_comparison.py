"""Runs are compared by what differs in their recipes and by the metric that each is judged by."""

from pathlib import Path

from qkv.scripts.runs.comparison import differences, flattened, lines, main_metric, result
from qkv.scripts.runs.reading import Run


def finished(folder: str, **recipe: object) -> Run:
    record = {"recipe": recipe, "steps": {"taken": 5}, "metrics": {"test": {"loss": 0.5, "perplexity": 2.0}}}
    return Run(Path(folder), record | {"time": {"training_wall_s": 30.0}})


def test_only_fields_that_differ_among_runs_of_one_recipe_are_told() -> None:
    runs = [
        finished("a", name="x", seed=0, out="a", log_every=5, model={"position": "rope", "hidden_size": 8}),
        finished("b", name="x", seed=1, out="b", model={"hidden_size": 8}),
        finished("c", name="y", seed=2, out="c"),
    ]
    assert differences(runs) == [["seed=0", "model.position=rope"], ["seed=1"], []]


def test_fields_are_under_the_keys_that_are_typed() -> None:
    fields = {"out": "a", "card": {"title": "A"}, "model": {"encoder": {"norm": "rms"}, "name": "kept"}}
    assert flattened(fields) == {"model.encoder.norm": "rms", "model.name": "kept"}


def test_a_split_is_judged_by_its_first_metric_or_its_loss() -> None:
    assert main_metric({"loss": 1.0, "wer": 0.5}) == "wer" and main_metric({"loss": 1.0}) == "loss"
    assert result({}) == "" and result({"wer": 0.5, "loss": 1.0}) == "wer 50.00 %"


def test_a_line_has_what_a_run_reached() -> None:
    (line,) = lines([finished("runs/a", name="x")])
    assert line == {"run": "runs/a", "steps": "5", "validation": "", "test": "perplexity 2.0000", "min": "0.5"}
