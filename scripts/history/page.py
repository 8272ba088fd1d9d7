"""Write the page of a record in Markdown, in which every number is the record's."""

from collections.abc import Iterable
from textwrap import fill
from typing import Any

from qkv.scripts.common.tables import markdown_table
from qkv.scripts.history.claims import VERDICTS, percent, verdicts
from qkv.scripts.history.models import LEARNED, TRANSFORMER

Record = dict[str, Any]
HEAD = """\
# RNN, RNN with attention, Transformer

<!-- Written by `qkv compare-history` from record.json. Change the program, never this file. -->

The course notes from which this project began (000 to 004) and the papers behind them say what each step of this
history gained. Here the three stand beside each other as configurations of our families, of one size, on one task, for
the same CPU seconds, and each claim beside what was measured. It is one run of small models, seed {seed}, on one thread
of a CPU: what does not hold here may hold elsewhere, and the other way round.

The task: write random letters (of {letters}) in reverse. Training lengths are {training_lengths}
letters, new sources at each step, the same for all models; longer ones were **not seen in training**. The models take
steps in turns, so that each gets {seconds:g} CPU seconds. One optimizer and learning rate ({learning_rate:g}) for all;
nothing was tuned for one of them, except that the Transformer is pre-norm and initialised as in the recipe `translate`.
"""
TAIL = """\
## Reproduce

`{command}` at commit {commit}; `qkv compare-history --quick` runs it in seconds.
{cpu:.0f} CPU seconds, {processor}, {threads} thread; {versions}.
Times are those of a shared machine: ratios are taken within a turn. CPU seconds limit the training, so another run
gives other numbers.
"""


def page(record: Record) -> str:
    """Return the page of a record."""
    size = record["size"]
    lengths = ", ".join(map(str, size["training_lengths"]))
    shown = {name: size[name] for name in ("seconds", "learning_rate")}
    parts = [
        HEAD.format(**record | shown | {"training_lengths": lengths}),
        models(record), claims(record), quality(record), steps(record), distances(record), layers(record),
        tail(record),
    ]  # fmt: skip
    return "\n".join(parts)


def models(record: Record) -> str:
    """Return the table of models and their training."""
    header = ["", "class", "parameters", "CPU seconds", "steps", "tokens seen"]
    rows = [
        [
            name, f"`{model['architecture']}`", f"{model['parameters']:,}",
            *(f"{record['training'][name][key]:,.0f}" for key in ("cpu_s", "steps", "tokens")),
        ]
        for name, model in record["models"].items()
    ]  # fmt: skip
    note = f"*{LEARNED}* is there for the claims about its positions; it is larger by their table."
    return f"{markdown_table(header, rows)}\n\n{note}\n"


def claims(record: Record) -> str:
    """Return the claims, what was measured, and how many of them hold."""
    judged = verdicts(record)
    header = ["the documents", "say", "which holds when", "measured", "verdict"]
    rows = [[one["source"], one["claim"], one["rule"], one["measured"], f"**{one['verdict']}**"] for one in judged]
    counts = (f"“{word}” {sum(one['verdict'] == word for one in judged)}" for word in VERDICTS.values())
    intro = f"Verdicts are computed from the figures by the rule beside them: {', '.join(counts)}."
    return f"## The documents' claims\n\n{intro}\n\n{markdown_table(header, rows)}\n"


def quality(record: Record) -> str:
    """Return the accuracy by length."""
    names, longest = list(record["quality"]), max(record["size"]["training_lengths"])
    rows = [
        [str(points[0][0]), "yes" if points[0][0] <= longest else "no", *(percent(share) for _, share in points)]
        for points in zip(*record["quality"].values(), strict=True)
    ]
    text = (
        "Letters that are right in their positions, by greedy decoding. "
        f"About {record['size']['test_tokens']:,} letters per length, chance is {percent(1 / record['letters'])}."
    )
    return section("Quality by length", "quality", text, ["length", "in training", *names], rows)


def steps(record: Record) -> str:
    """Return the seconds of a training step by length, and their ratios."""
    lengths, times = record["steps"]["lengths"], record["steps"]["models"]
    others = [name for name in times if name != TRANSFORMER]
    rows = [
        [
            str(length), *(f"{model['seconds'][place]:.3f}" for model in times.values()),
            *("{1:.2f} ({0:.2f} to {2:.2f})".format(*times[name]["over"][place]) for name in others),
        ]
        for place, length in enumerate(lengths)
    ]  # fmt: skip
    tokens, turns = record["size"]["timed_tokens"], record["size"]["turns"]
    text = (
        f"Median CPU seconds of forward, backward and update on about {tokens:,} letters, so in the fewer texts the "
        f"longer they are, in turns ({turns}). Then the ratio to the Transformer's "
        "step of the same turn: median, least, most. All score the same targets. Subnormal numbers count as zeros, or "
        f"an LSTM's vanished gradients make its longest steps several times as long. `{record['steps']['command']}` at "
        f"commit {record['steps']['commit']}."
    )
    header = ["length", *(f"{name}, s" for name in times), *(f"{name} / {TRANSFORMER}" for name in others)]
    return section("Time of a training step by length", "steps", text, header, rows)


def distances(record: Record) -> str:
    """Return the gradient norms by distance, before training."""
    curves = record["gradients"]["untrained"]
    rows = [
        [str(points[0][0]), *(f"{norm:.1e}" for _, norm in points)] for points in zip(*curves.values(), strict=True)
    ]
    text = (
        "The gradient of the loss at one output with respect to the embedding of the letter that it has to repeat, by "
        "the steps that a recurrence takes from the one to the other, before training: the mean norm over texts of "
        f"{record['size']['gradient_length']} letters. The picture has the gradients after training too, at the "
        "longest training length. The loss is about letters drawn at random, for a model that is certain has no other "
        "gradient."
    )
    return section("Gradient by distance", "gradients", text, ["distance", *curves], rows)


def layers(record: Record) -> str:
    """Return deviations and gradients by layer."""
    variants = record["activations"]
    depth = len(next(iter(variants.values()))["deviation"]) - 1
    rows = [
        [name, f"{seen['mean'][-1]:.1e}", *(f"{seen['deviation'][place]:.2g}" for place in (1, depth // 2, depth)),
         *(f"{seen['gradient'][place]:.2g}" for place in (1, depth // 2))]
        for name, seen in variants.items()
    ]  # fmt: skip
    text = (
        f"{depth} layers of width {record['size']['activation_width']} at initialisation, on inputs of mean 0 and "
        "deviation 1. Weights start with the deviation in the first column. Gradient norms are over that at the last "
        "layer."
    )
    places = (1, depth // 2, depth)
    header = ["", f"mean, layer {depth}", *(f"deviation, layer {place}" for place in places)]
    return section(
        "Activations by layer", "activations", text, [*header, *(f"gradient, layer {n}" for n in places[:2])], rows
    )


def section(title: str, picture: str, text: str, header: list[str], rows: Iterable[list[str]]) -> str:
    """Return a heading, an explanation, the picture, and the numbers."""
    return f"## {title}\n\n{fill(text, 120)}\n\n![{title}]({picture}.png)\n\n{markdown_table(header, rows)}\n"


def tail(record: Record) -> str:
    """Return how to reproduce the page."""
    versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("python", "torch", "transformers", "qkv"))
    device = {name: record["device"][name] for name in ("processor", "threads")}
    return TAIL.format(
        command=record["command"], commit=record["commit"], cpu=record["time"]["cpu_s"], versions=versions, **device
    )
