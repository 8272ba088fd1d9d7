"""Decide the claims of the course notes and papers by the figures of a record."""

from collections.abc import Callable
from math import inf
from operator import sub
from typing import Any

from qkv.scripts.common.files import table
from qkv.scripts.lab.history.lengths import FIT_FROM, fitted_exponent
from qkv.scripts.lab.history.speed import growth

Record = dict[str, Any]
Layers = dict[str, list[float]]
# The measurement in words, and whether the claim holds; None where nothing was measured that decides it.
Finding = tuple[str, bool | None]
VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}
CLAIMS: list[dict[str, Any]] = table(__file__)
SMALL_MODELS = ("choices", "heads")


def verdicts(record: Record) -> list[dict[str, str]]:
    """Return all claims with what was measured and the verdict."""
    rows = []
    for claim in CLAIMS:
        measured, holds = claim.get("why", "—"), None
        if "decide" in claim:
            measured, holds = DECISIONS[claim["decide"]](record, **claim["of"], **claim["limits"])
        rule = claim.get("rule", "—").format(**claim.get("limits", {}))
        rows.append({"source": claim["source"], "claim": claim["claim"], "rule": rule, "measured": measured,
                     "verdict": VERDICTS[holds], "decide": claim.get("decide")})  # fmt: skip
    return rows


def accuracy(record: Record, model: str, length: int) -> float:
    """Return the accuracy of a model at a length."""
    return dict(map(tuple, record["quality"][model]))[length]


def percent(share: float) -> str:
    """Format a share."""
    return f"{100 * share:.1f} %"


def bottleneck(record: Record, model: str, points: float, learned: float) -> Finding:
    """Compare a model's accuracy on long sources with that on short ones, if it has learned these."""
    lengths = record["size"]["training_lengths"]
    first, last = accuracy(record, model, min(lengths)), accuracy(record, model, max(lengths))
    text = f"{model}: {percent(first)} right at length {min(lengths)}, {percent(last)} at {max(lengths)}"
    return text, first - last >= points / 100 if first >= learned / 100 else None


def better(record: Record, model: str, other: str, points: float) -> Finding:
    """Compare two models at the longest training length."""
    length = max(record["size"]["training_lengths"])
    one, two = accuracy(record, model, length), accuracy(record, other, length)
    return f"at length {length} {model} {percent(one)}, {other} {percent(two)}", one - two >= points / 100


def extrapolates(record: Record, model: str, length: str, at_least: float = 0, below: float = inf) -> Finding:
    """Measure a model at the next length beyond those of training, or at the furthest."""
    last = max(record["size"]["training_lengths"])
    beyond = [tested for tested in record["size"]["test_lengths"] if tested > last]
    tested = min(beyond) if length == "next" else max(beyond)
    share = accuracy(record, model, tested)
    text = f"{percent(share)} right at length {tested}, trained up to {last}"
    return text, at_least / 100 <= share < below / 100


def gradient(record: Record, model: str, at_least: float = 0, below: float = inf) -> Finding:
    """Compare the gradient at the furthest distance with the one at the nearest, before training."""
    curve = record["gradients"]["untrained"][model]
    share = curve[-1][1] / curve[0][1]
    text = f"{model}, untrained: at distance {curve[-1][0]} {share:.1e} of what it is at {curve[0][0]}"
    return text, at_least <= share < below


def faster(record: Record, model: str, times: float, *, everywhere: bool) -> Finding:
    """Compare the step of a model with the Transformer's, at every length or at the longest."""
    steps = record["steps"]
    ratios = [median for _, median, _ in steps["models"][model]["over"]]
    text = "; ".join(f"n = {length}: {ratio:.2f}" for length, ratio in zip(steps["lengths"], ratios, strict=True))
    return text, (min(ratios) if everywhere else ratios[-1]) > times


def slower(record: Record, model: str, times: float) -> Finding:
    """Compare the step on as many letters in long sources with the one in short sources."""
    lengths, seconds = record["steps"]["lengths"], record["steps"]["models"][model]["seconds"]
    ratio = seconds[-1] / seconds[0]
    return f"{model}: {ratio:.2f} times as long at {lengths[-1]} as at {lengths[0]}", ratio >= times


def grows(record: Record, layer: str, cost: str, at_least: float, at_most: float = inf) -> Finding:
    """Compute the exponent by which a cost grows with the length."""
    curve = record["layers"][layer][cost]
    exponent, (before, after) = growth(curve), [int(length) for length, _ in curve[-2:]]
    return f"{layer}: exponent {exponent:.2f} from {before} to {after}", at_least <= exponent <= at_most


def scales(record: Record, stack: str, cost: str, at_least: float, at_most: float = inf) -> Finding:
    """Fit the exponent by which a cost of a stack grows with the length of long texts."""
    curve = record["lengths"]["stacks"][stack][cost]
    exponent, lengths = fitted_exponent(curve), [int(length) for length, _ in curve if length >= FIT_FROM]
    if exponent is None:
        return f"{stack}: no two lengths from {FIT_FROM} on", None
    return f"{stack}: exponent {exponent:.2f} from {lengths[0]} to {lengths[-1]}", at_least <= exponent <= at_most


def from_every_start(judge: Callable[..., Finding]) -> Callable[..., Finding]:
    """Judge a variant of the layers from every initialisation."""

    def judged(record: Record, variant: str, **limits: float) -> Finding:
        starts = {name.removeprefix(f"{variant}, "): judge(layers, **limits)
                  for name, layers in record["activations"].items() if name.startswith(f"{variant}, ")}  # fmt: skip
        texts = "; ".join(f"start {start}: {text}" for start, (text, _) in starts.items())
        return texts, all(holds for _, holds in starts.values())

    return judged


def steady(layers: Layers, mean: float, at_least: float, at_most: float) -> Finding:
    """Compute the largest mean behind all layers, and the least and the largest deviation."""
    deviations, largest = layers["deviation"][1:], max(map(abs, layers["mean"][1:]))
    least, most = min(deviations), max(deviations)
    text = f"mean within ±{largest:.1e}, deviation {least:.3f} to {most:.3f}"
    return text, largest <= mean and at_least <= least and most <= at_most


def last_deviation(layers: Layers, at_least: float) -> Finding:
    """Look at the deviation behind all layers."""
    last = layers["deviation"][-1]
    return f"deviation {last:.1e} at the last layer", last >= at_least


def gradients(layers: Layers, at_least: float, at_most: float) -> Finding:
    """Compute the least and the largest gradient norm of all layers."""
    least, most = min(layers["gradient"][1:]), max(layers["gradient"][1:])
    return f"{least:.2f} to {most:.2f}", at_least <= least and most <= at_most


def first_gradient(layers: Layers, below: float) -> Finding:
    """Look at the gradient norm of the first layer."""
    first = layers["gradient"][1]
    return f"{first:.1e} at the first layer", first < below


def in_each_seed(
    record: Record, more: list[str], less: list[str] | None = None, by: float = 0, at_least: float = -inf
) -> Finding:
    """Compare a figure of a small model with a limit, and with that of another or another of its own, seed by seed."""
    models = {name: runs for part in SMALL_MODELS for name, runs in record.get(part, {"found": {}})["found"].items()}
    figures = {f"{model}, {figure.replace('_', ' ')}": [run[figure] for run in models.get(model, [])]
               for model, figure in (more, less or more)}  # fmt: skip
    one, two = list(figures.values())[0], list(figures.values())[-1]
    if not one or not two:
        return "—", None
    text = "; ".join(
        f"{name}: {', '.join(f'{round(value, 3):,}' for value in values)}" for name, values in figures.items()
    )
    return text, min(one) >= at_least and min(map(sub, one, two)) >= by


# How the claims in claims.yaml are decided, by the word there.
DECISIONS: dict[str, Callable[..., Finding]] = {
    judge.__name__: judge
    for judge in (bottleneck, better, extrapolates, gradient, faster, slower, grows, scales, in_each_seed)
} | {judge.__name__: from_every_start(judge) for judge in (steady, last_deviation, gradients, first_gradient)}
