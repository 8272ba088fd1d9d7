"""What do the documents claim, what was measured, and does it hold? Every verdict is computed from a record."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from qkv.scripts.history.activations import BOTH, NEITHER
from qkv.scripts.history.contenders import ATTENTION, LEARNED, RNN, TRANSFORMER
from qkv.scripts.history.speed import growth

Record = dict[str, Any]
# What was measured in words, and whether the claim holds; None where nothing was measured that says so.
Finding = tuple[str, bool | None]
VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}
# By how large a share of letters one has to be better, what counts as learned, and as done.
GAP, LEARNT, DONE = 0.2, 0.5, 0.9
# What has vanished, and what has not, of a gradient; how many times faster is claimed, and what is slow.
VANISHED, KEPT, FASTER, SLOWER = 0.01, 0.1, 10, 2
LINEAR, MORE = (0.7, 1.3), 1.5
CENTRED, STEADY, NEAR, EXPLODED = 0.05, (0.9, 1.1), (0.5, 2.0), 10


@dataclass(frozen=True)
class Claim:
    """What a document says, and how a record answers; `rule` is when it holds."""

    source: str
    words: str
    rule: str
    look: Callable[[Record], Finding]


def right(record: Record, name: str, length: int) -> float:
    """The share of right letters of a model at a length."""
    return dict(map(tuple, record["quality"][name]))[length]


def lessons(record: Record) -> tuple[int, int]:
    """The shortest and the longest length of the lessons."""
    return min(record["size"]["lessons"]), max(record["size"]["lessons"])


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.1f} %"


def bottleneck(record: Record) -> Finding:
    """How much worse long sources are without attention."""
    short, long = lessons(record)
    first, last = right(record, RNN, short), right(record, RNN, long)
    text = f"{RNN}: {percent(first)} right at length {short}, {percent(last)} at {long}"
    return text, first - last >= GAP if first >= LEARNT else None


def better(record: Record, name: str, other: str, gap: float) -> Finding:
    """Whether one is better than another by a gap, at the longest length that both have learned."""
    length = lessons(record)[1]
    one, two = right(record, name, length), right(record, other, length)
    return f"at length {length} {name} {percent(one)}, {other} {percent(two)}", one - two >= gap


def beyond(record: Record, *, furthest: bool) -> Finding:
    """The Transformer at lengths that no lesson had: the next one, or the furthest."""
    length = (max if furthest else min)(n for n in record["size"]["exams"] if n > lessons(record)[1])
    share = right(record, TRANSFORMER, length)
    return f"{percent(share)} right at length {length}, lessons ended at {lessons(record)[1]}", share >= DONE


def stuck(record: Record) -> Finding:
    """Learned positions at the first length that no lesson had."""
    length = min(n for n in record["size"]["exams"] if n > lessons(record)[1])
    share = right(record, LEARNED, length)
    return f"{percent(share)} right at length {length}, lessons ended at {lessons(record)[1]}", share < LEARNT


def faded(record: Record, name: str) -> tuple[str, float]:
    """What is left of the gradient at the furthest distance of what it is at the nearest, before training."""
    curve = record["gradients"]["untrained"][name]
    share = curve[-1][1] / curve[0][1]
    return f"{name}, untrained: at distance {curve[-1][0]} {share:.1e} of what it is at {curve[0][0]}", share


def vanishes(record: Record, name: str) -> Finding:
    """Whether next to nothing is left of it."""
    text, share = faded(record, name)
    return text, share < VANISHED


def stays(record: Record, name: str) -> Finding:
    """Whether a good part of it is left."""
    text, share = faded(record, name)
    return text, share >= KEPT


def faster(record: Record, name: str, times: float, *, everywhere: bool) -> Finding:
    """How many times as long as the Transformer a model takes for a step; everywhere, or in the longest texts."""
    steps = record["steps"]
    found = [each[1] for each in steps["models"][name]["over"]]
    pairs = zip(steps["lengths"], found, strict=True)
    return "; ".join(f"n = {length}: {ratio:.2f}" for length, ratio in pairs), min(
        found[0 if everywhere else -1 :]
    ) > times


def slower(record: Record, name: str) -> Finding:
    """How much longer as many letters take in long texts than in short ones."""
    lengths, seconds = record["steps"]["lengths"], record["steps"]["models"][name]["seconds"]
    ratio = seconds[-1] / seconds[0]
    return f"{name}: {ratio:.2f} times as long at {lengths[-1]} as at {lengths[0]}", ratio >= SLOWER


def grows(record: Record, layer: str, what: str, *, more: bool) -> Finding:
    """The exponent in the length, and whether it is beyond linear or linear."""
    exponent = growth(record["layers"][layer][what])
    lengths = [int(length) for length, _ in record["layers"][layer][what][-2:]]
    holds = exponent >= MORE if more else LINEAR[0] <= exponent <= LINEAR[1]
    return f"{layer}: exponent {exponent:.2f} from {lengths[0]} to {lengths[1]}", holds


def starts(record: Record, variant: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """The starts of a variant, and what was seen from each."""
    for name, found in record["activations"].items():
        if name.startswith(f"{variant}, "):
            yield name.removeprefix(f"{variant}, "), found


def steady(record: Record) -> Finding:
    """Means and deviations behind all layers, with both."""
    texts, held = [], []
    for start, found in starts(record, BOTH):
        mean, least, most = max(map(abs, found["mean"][1:])), min(found["deviation"][1:]), max(found["deviation"][1:])
        texts.append(f"start {start}: mean within ±{mean:.1e}, deviation {least:.3f} to {most:.3f}")
        held.append(mean <= CENTRED and STEADY[0] <= least and most <= STEADY[1])
    return "; ".join(texts), all(held)


def explodes(record: Record) -> Finding:
    """The deviation behind the last layer, with neither."""
    found = {start: found["deviation"][-1] for start, found in starts(record, NEITHER)}
    text = "; ".join(f"start {start}: deviation {value:.1e} at the last layer" for start, value in found.items())
    return text, all(value >= EXPLODED for value in found.values())


def flows(record: Record) -> Finding:
    """The gradients at all layers, with both."""
    found = {start: found["gradient"][1:] for start, found in starts(record, BOTH)}
    text = "; ".join(f"start {start}: {min(all_):.2f} to {max(all_):.2f}" for start, all_ in found.items())
    return text, all(NEAR[0] <= value <= NEAR[1] for all_ in found.values() for value in all_)


def dries(record: Record) -> Finding:
    """The gradient at the first layer, with neither."""
    found = {start: found["gradient"][1] for start, found in starts(record, NEITHER)}
    text = "; ".join(f"start {start}: {value:.1e} at the first layer" for start, value in found.items())
    return text, all(value < KEPT for value in found.values())


def nothing(record: Record) -> Finding:
    """What this comparison does not look at."""
    return "—", None


BAHDANAU, VASWANI = "Bahdanau et al. 2015", "Vaswani et al. 2017"
LONGEST = "at the longest length of the lessons"
EVERY = "from every start"
AGAIN = f"{KEPT} of the nearest distance is left at the furthest"
CLAIMS = (
    Claim(
        f"001; 000 §1.1; {BAHDANAU}, figure 2", "Squeezed into one vector, long sources lose what they hold",
        f"without attention {100 * GAP:g} points fewer are right at the longest length of the lessons than at the "
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
        f"{100 * DONE:g} % are right at the next length", partial(beyond, furthest=False),
    ),
    Claim(
        "003 §2.1", "Learned positions do not: they know the lengths of training alone",
        f"less than {100 * LEARNT:g} % are right at the next length", stuck,
    ),
    Claim(
        "004", "A Transformer catches relations a thousand words apart",
        f"{100 * DONE:g} % are right at the furthest length", partial(beyond, furthest=True),
    ),
    Claim(
        "000 §1.1; 003 §1.3", "Gates or not, gradients of recurrence vanish with distance",
        f"less than {VANISHED} of the nearest distance is left at the furthest", partial(vanishes, name=RNN),
    ),
    Claim(
        "000 §2.1", "With attention a decoder jumps to any place, however far", AGAIN, partial(stays, name=ATTENTION),
    ),
    Claim(
        f"000 §3.1; 002 §5.1; {VASWANI}, table 1", "In a Transformer any two places are one step apart: O(1), not O(n)",
        AGAIN, partial(stays, name=TRANSFORMER),
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
        f"{EVERY} mean within ±{CENTRED} and deviation {STEADY[0]} to {STEADY[1]} behind each layer", steady,
    ),
    Claim(
        "003 §5.4.6", "Without both, activations explode", f"{EVERY} the last layer's deviation is {EXPLODED} or more",
        explodes,
    ),
    Claim(
        "003 §5.4.6", "With residual sums, gradient norms stay near 1 from layer to layer",
        f"{EVERY} {NEAR[0]} to {NEAR[1]} of the last layer's", flows,
    ),
    Claim(
        "003 §5.4.6", "Without, gradients vanish on the way to the first layer",
        f"{EVERY} less than {KEPT} of the last layer's arrives", dries,
    ),
    Claim(f"000 §5.3; {VASWANI}, table 1", "Costs grow with d² in recurrence and with d in attention", "—", nothing),
    Claim("004; 000 §5.3", "On GPUs the Transformer's parallel steps pay off most", "—", nothing),
    Claim(f"{VASWANI}, table 2", "28.4 BLEU from English to German", "—", nothing),
)  # fmt: skip


def judged(record: Record) -> list[dict[str, str]]:
    """All claims with what was measured and the verdict."""
    found = []
    for claim in CLAIMS:
        measured, holds = claim.look(record)
        found.append({
            "source": claim.source, "claim": claim.words, "rule": claim.rule, "measured": measured,
            "verdict": VERDICTS[holds],
        })  # fmt: skip
    return found
