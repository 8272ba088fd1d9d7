"""The claims of the course notes and papers, each with the rule by which a record decides it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from qkv.scripts.history.activations import BOTH, NEITHER
from qkv.scripts.history.models import ATTENTION, LEARNED, RNN, TRANSFORMER
from qkv.scripts.history.speed import growth

Record = dict[str, Any]
Layers = dict[str, list[float]]
# The measurement in words, and whether the claim holds; None where nothing was measured that decides it.
Finding = tuple[str, bool | None]
VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}
# The difference in accuracy that counts as better, and the accuracies that count as learned and as solved.
GAP, LEARNT, DONE = 0.2, 0.5, 0.9
# The shares of a gradient that count as vanished and as kept, the claimed speed-up, and the ratio that counts as slow.
VANISHED, KEPT, FASTER, SLOWER = 0.01, 0.1, 10, 2
LINEAR, MORE = (0.7, 1.3), 1.5
CENTRED, STEADY, NEAR, EXPLODED = 0.05, (0.9, 1.1), (0.5, 2.0), 10


@dataclass(frozen=True)
class Claim:
    """A claim of a source, and how a record decides it; `rule` says when it holds."""

    source: str
    words: str
    rule: str
    decide: Callable[[Record], Finding]


def accuracy(record: Record, name: str, length: int) -> float:
    """Return the accuracy of a model at a length."""
    return dict(map(tuple, record["quality"][name]))[length]


def training_lengths(record: Record) -> tuple[int, int]:
    """Return the shortest and the longest training length."""
    return min(record["size"]["training_lengths"]), max(record["size"]["training_lengths"])


def percent(share: float) -> str:
    """Format a share."""
    return f"{100 * share:.1f} %"


def bottleneck(record: Record) -> Finding:
    """Compare long with short sources, without attention."""
    short, long = training_lengths(record)
    first, last = accuracy(record, RNN, short), accuracy(record, RNN, long)
    text = f"{RNN}: {percent(first)} right at length {short}, {percent(last)} at {long}"
    return text, first - last >= GAP if first >= LEARNT else None


def better(record: Record, name: str, other: str, gap: float) -> Finding:
    """Compare two models at the longest training length."""
    length = training_lengths(record)[1]
    one, two = accuracy(record, name, length), accuracy(record, other, length)
    return f"at length {length} {name} {percent(one)}, {other} {percent(two)}", one - two >= gap


def extrapolates(record: Record, name: str, *, longest: bool = False, fails: bool = False) -> Finding:
    """Measure a model at the next length beyond those of training, or at the longest; `fails` asks for the contrary."""
    last = training_lengths(record)[1]
    length = (max if longest else min)(n for n in record["size"]["test_lengths"] if n > last)
    share = accuracy(record, name, length)
    return (
        f"{percent(share)} right at length {length}, trained up to {last}",
        share < LEARNT if fails else share >= DONE,
    )


def gradient(record: Record, name: str, *, vanishes: bool) -> Finding:
    """Compare the gradient at the furthest distance with the one at the nearest, before training."""
    curve = record["gradients"]["untrained"][name]
    share = curve[-1][1] / curve[0][1]
    text = f"{name}, untrained: at distance {curve[-1][0]} {share:.1e} of what it is at {curve[0][0]}"
    return text, share < VANISHED if vanishes else share >= KEPT


def faster(record: Record, name: str, times: float, *, everywhere: bool) -> Finding:
    """Compare the step of a model with the Transformer's, at every length or at the longest."""
    steps = record["steps"]
    ratios = [median for _, median, _ in steps["models"][name]["over"]]
    text = "; ".join(f"n = {length}: {ratio:.2f}" for length, ratio in zip(steps["lengths"], ratios, strict=True))
    return text, (min(ratios) if everywhere else ratios[-1]) > times


def slower(record: Record, name: str) -> Finding:
    """Compare the step on as many letters in long sources with the one in short sources."""
    lengths, seconds = record["steps"]["lengths"], record["steps"]["models"][name]["seconds"]
    ratio = seconds[-1] / seconds[0]
    return f"{name}: {ratio:.2f} times as long at {lengths[-1]} as at {lengths[0]}", ratio >= SLOWER


def grows(record: Record, layer: str, what: str, *, more: bool) -> Finding:
    """Compute the exponent in the length, and whether it is beyond linear or linear."""
    exponent = growth(record["layers"][layer][what])
    lengths = [int(length) for length, _ in record["layers"][layer][what][-2:]]
    holds = exponent >= MORE if more else LINEAR[0] <= exponent <= LINEAR[1]
    return f"{layer}: exponent {exponent:.2f} from {lengths[0]} to {lengths[1]}", holds


def behind_layers(
    record: Record, variant: str, text: Callable[[Layers], str], holds: Callable[[Layers], bool]
) -> Finding:
    """Check a variant of the layers from every initialisation, and put each into words."""
    starts = {name.removeprefix(f"{variant}, "): layers for name, layers in record["activations"].items()
              if name.startswith(f"{variant}, ")}  # fmt: skip
    texts = "; ".join(f"start {start}: {text(layers)}" for start, layers in starts.items())
    return texts, all(map(holds, starts.values()))


def mean_and_deviations(layers: Layers) -> tuple[float, float, float]:
    """Return the largest mean behind all layers, and the least and the largest deviation."""
    deviations = layers["deviation"][1:]
    return max(map(abs, layers["mean"][1:])), min(deviations), max(deviations)


def is_steady(layers: Layers) -> bool:
    """Tell whether means stay near 0 and deviations near 1."""
    mean, least, most = mean_and_deviations(layers)
    return mean <= CENTRED and STEADY[0] <= least and most <= STEADY[1]


# Nothing was measured that decides it.
UNMEASURED: Finding = "—", None
BAHDANAU, VASWANI = "Bahdanau et al. 2015", "Vaswani et al. 2017"
LONGEST = "at the longest training length"
EVERY = "from every start"
AGAIN = f"{KEPT} of the nearest distance is left at the furthest"
CLAIMS = (
    Claim(
        f"001; 000 §1.1; {BAHDANAU}, figure 2", "Squeezed into one vector, long sources lose what they hold",
        f"without attention {100 * GAP:g} points fewer are right at the longest training length than at the "
        f"shortest, where {100 * LEARNT:g} % are", bottleneck,
    ),
    Claim(
        f"001; 000 §2.1; {BAHDANAU}, §5.1", "Attention helps where sources are long",
        f"{LONGEST} {100 * GAP:g} points more are right with it", partial(better, name=ATTENTION, other=RNN, gap=GAP),
    ),
    Claim(
        "001; 000 §3.1", "Self-attention is better at long sources than recurrence with attention",
        f"{LONGEST} it has as many right or more", partial(better, name=TRANSFORMER, other=ATTENTION, gap=0.0),
    ),
    Claim(
        "003 §2.1", "Within the lengths of training, learned positions are the better ones",
        f"{LONGEST} they have as many right or more", partial(better, name=LEARNED, other=TRANSFORMER, gap=0.0),
    ),
    Claim(
        "000 §3.3; 003 §2.1", "Sinusoids carry over to texts longer than those of training",
        f"{100 * DONE:g} % are right at the next length", partial(extrapolates, name=TRANSFORMER),
    ),
    Claim(
        "003 §2.1", "Learned positions do not: they know the lengths of training alone",
        f"less than {100 * LEARNT:g} % are right at the next length",
        partial(extrapolates, name=LEARNED, fails=True),
    ),
    Claim(
        "004", "A Transformer catches relations a thousand words apart",
        f"{100 * DONE:g} % are right at the furthest length", partial(extrapolates, name=TRANSFORMER, longest=True),
    ),
    Claim(
        "000 §1.1; 003 §1.3", "Gates or not, gradients of recurrence vanish with distance",
        f"less than {VANISHED} of the nearest distance is left at the furthest",
        partial(gradient, name=RNN, vanishes=True),
    ),
    Claim(
        "000 §2.1", "With attention a decoder jumps to any place, however far", AGAIN,
        partial(gradient, name=ATTENTION, vanishes=False),
    ),
    Claim(
        f"000 §3.1; 002 §5.1; {VASWANI}, table 1", "In a Transformer any two places are one step apart: O(1), not O(n)",
        AGAIN, partial(gradient, name=TRANSFORMER, vanishes=False),
    ),
    Claim(
        "001; 003 §1.3", "A Transformer trains faster than recurrence, here an LSTM",
        "its step is the shorter one at every length (one CPU thread)",
        partial(faster, name=RNN, times=1.0, everywhere=True),
    ),
    Claim(
        "001; 003 §1.3", "The same, said of an LSTM with attention",
        "its step is the shorter one at every length (one CPU thread)",
        partial(faster, name=ATTENTION, times=1.0, everywhere=True),
    ),
    Claim(
        "004", "More than ten times faster than an LSTM", f"{FASTER} times at the longest length (one CPU thread)",
        partial(faster, name=RNN, times=FASTER, everywhere=False),
    ),
    Claim(
        "004", "The same, said of an LSTM with attention", f"{FASTER} times at the longest length (one CPU thread)",
        partial(faster, name=ATTENTION, times=FASTER, everywhere=False),
    ),
    Claim(
        "000 §1.1", "Going word by word makes training slow for long texts",
        f"as many letters take {SLOWER} times as long in the longest texts as in the shortest",
        partial(slower, name=RNN),
    ),
    Claim(
        "000 §1.1", "The same, said of an LSTM with attention",
        f"as many letters take {SLOWER} times as long in the longest texts as in the shortest",
        partial(slower, name=ATTENTION),
    ),
    Claim(
        f"000 §5.3; {VASWANI}, table 1", "Recurrence takes O(n d²) time: linear in n",
        f"exponent {LINEAR[0]} to {LINEAR[1]}", partial(grows, layer="LSTM", what="seconds", more=False),
    ),
    Claim(
        f"000 §5.3; {VASWANI}, table 1", "Self-attention takes O(n² d) time: quadratic in n",
        f"exponent {MORE} or more", partial(grows, layer="attention, eager", what="seconds", more=True),
    ),
    Claim(
        "000 §5.3", "Recurrence takes O(n d) space",
        f"exponent {LINEAR[0]} to {LINEAR[1]} of what is kept for backward",
        partial(grows, layer="LSTM", what="bytes", more=False),
    ),
    Claim(
        "000 §5.3", "Self-attention takes O(n² + n d) space", f"exponent {MORE} or more of what is kept for backward",
        partial(grows, layer="attention, eager", what="bytes", more=True),
    ),
    Claim(
        "000 §5.3", "The same, said of a fused kernel", f"exponent {MORE} or more of what is kept for backward",
        partial(grows, layer="attention, sdpa", what="bytes", more=True),
    ),
    Claim(
        "003 §5.4.6", "With residual sums and norms, six layers keep mean 0 and deviation 1",
        f"{EVERY} mean within ±{CENTRED} and deviation {STEADY[0]} to {STEADY[1]} behind each layer",
        partial(
            behind_layers, variant=BOTH, holds=is_steady,
            text=lambda layers: "mean within ±{:.1e}, deviation {:.3f} to {:.3f}".format(*mean_and_deviations(layers)),
        ),
    ),
    Claim(
        "003 §5.4.6", "Without both, activations explode", f"{EVERY} the last layer's deviation is {EXPLODED} or more",
        partial(
            behind_layers, variant=NEITHER, holds=lambda layers: layers["deviation"][-1] >= EXPLODED,
            text=lambda layers: f"deviation {layers['deviation'][-1]:.1e} at the last layer",
        ),
    ),
    Claim(
        "003 §5.4.6", "With residual sums, gradient norms stay near 1 from layer to layer",
        f"{EVERY} {NEAR[0]} to {NEAR[1]} of the last layer's",
        partial(
            behind_layers, variant=BOTH,
            holds=lambda layers: all(NEAR[0] <= value <= NEAR[1] for value in layers["gradient"][1:]),
            text=lambda layers: f"{min(layers['gradient'][1:]):.2f} to {max(layers['gradient'][1:]):.2f}",
        ),
    ),
    Claim(
        "003 §5.4.6", "Without, gradients vanish on the way to the first layer",
        f"{EVERY} less than {KEPT} of the last layer's arrives",
        partial(
            behind_layers, variant=NEITHER, holds=lambda layers: layers["gradient"][1] < KEPT,
            text=lambda layers: f"{layers['gradient'][1]:.1e} at the first layer",
        ),
    ),
    Claim(f"000 §5.3; {VASWANI}, table 1", "Costs grow with d² in recurrence and with d in attention", "—",
          lambda record: UNMEASURED),
    Claim("004; 000 §5.3", "On GPUs the Transformer's parallel steps pay off most", "—", lambda record: UNMEASURED),
    Claim(f"{VASWANI}, table 2", "28.4 BLEU from English to German", "—", lambda record: UNMEASURED),
)  # fmt: skip


def verdicts(record: Record) -> list[dict[str, str]]:
    """Return all claims with what was measured and the verdict."""
    rows = []
    for claim in CLAIMS:
        measured, holds = claim.decide(record)
        rows.append({
            "source": claim.source, "claim": claim.words, "rule": claim.rule, "measured": measured,
            "verdict": VERDICTS[holds],
        })  # fmt: skip
    return rows
