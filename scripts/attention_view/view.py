"""Show the attention of a model for an input: `qkv.attend`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.scripts.attention.layers import Indices, Layers
from qkv.scripts.attention_view.arguments import FORMATS
from qkv.scripts.attention_view.figures import draw_view
from qkv.scripts.attention_view.inputs import read_source
from qkv.scripts.attention_view.page import page
from qkv.scripts.attention_view.positions import token_labels
from qkv.scripts.attention_view.reading import Reading, capture, row_of
from qkv.scripts.attention_view.reduction import BYTES, fit
from qkv.scripts.attention_view.stacks import Stack
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.words import did_you_mean, either
from qkv.scripts.prediction.options import OPTIONS
from qkv.scripts.prediction.source import Source, open_source

BEST = 5  # tokens whose probability is shown in a step of generation


@dataclass
class AttentionView:
    """Attention of a model for an input: a page in a notebook and in a file, or a figure.

    `stacks` have the weights as they were captured, with the positions of queries and keys; `answer` is what the model
    predicts, `film` the steps of what it wrote. `notes` say what of the input is not shown.
    """

    title: str
    stacks: list[Stack]
    answer: str = ""
    notes: list[str] = field(default_factory=list)
    film: dict[str, Any] | None = None

    def page(self, most: int = BYTES) -> tuple[str, list[str]]:
        """Return the page, whose weights take at most so many bytes, and the sentences in it on what is not shown."""
        stacks, notes = fit(self.stacks, most)
        notes = [*self.notes, *notes]
        facts = {"answer": self.answer, "notes": notes, "film": self.film}
        return page(self.title, stacks, facts), notes

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page()[0])}" sandbox="allow-scripts" title="{escape(self.title)}" '
            'style="width:100%;height:720px;border:0"></iframe>'
        )

    def save(self, path: str | Path) -> list[str]:
        """Write the page (.html) or a figure (.png, .svg), and return what it says is not shown.

        ValueError for another ending.
        """
        path = Path(path).expanduser()
        form = path.suffix.lower().removeprefix(".")
        if form not in FORMATS:
            raise ValueError(f"{path} must end in {either([f'.{each}' for each in FORMATS])}")
        if form == "html":
            content, notes = self.page()
            write_atomically(path, content)
            return notes
        write_atomically(path, draw_view(self.title, self.stacks, form))
        return self.notes


def attend(
    model: nn.Module | str | Path,
    inputs: Mapping[str, Any] | str | Path,
    *,
    processor: Any = None,
    layers: Layers = None,
    heads: Indices = None,
    **options: Any,
) -> AttentionView:
    """Show what attends to what in a model, for one input: in a notebook, as a page, or as a figure.

        qkv.attend("runs/translate", "twenty-one")                       # a run, a model folder or a Hub id
        qkv.attend(model, tokenizer("a text", return_tensors="pt"), processor=tokenizer).save("attention.html")

    A run, folder or Hub id reads what `qkv predict` reads, and `options` are those of `qkv attend`: a text, with
    `pair=` a second one, the path of an image, a recording or a table. A model, ours or transformers', takes the inputs
    of its forward, as a dict; `processor`, its tokenizer or image processor, names tokens and shows images as they
    were, and `row=` is the row of the batch. Of a model of pairs, `residue=` shows how the pairs of that residue,
    counted from 0, attend to each other: (i, q) to (i, s) in `starting`, (q, i) to (s, i) in `ending`, and at it the
    sequences of an alignment in `column`. `layers` and `heads` are those of `qkv.capture_attention`.

    ValueError for an input, a layer or an option that there is not, and for a kernel without weights.
    """
    if isinstance(model, nn.Module):
        unknown = options.keys() - {"row", "residue"}
        if unknown or not isinstance(inputs, Mapping):
            what = f"{sorted(unknown)[0]}=" if unknown else f"inputs={inputs!r}"
            raise ValueError(
                f"{what} is for a run, a folder or a Hub id; a model takes a dict of tensors, such as "
                'tokenizer("a text", return_tensors="pt"), and row= and residue= beside it'
            )
        row = row_of(inputs, options.get("row", 0))
        reading = Reading(model, dict(inputs), **parts_of(processor), row=row, residue=options.get("residue"))
        return view_of(type(model).__name__, reading, layers, heads)
    for key in options.keys() - OPTIONS["attend"].keys() - {"revision", "trust_remote_code"}:
        raise ValueError(f"{key}= is no option; {did_you_mean(key, list(OPTIONS['attend']), 'options')}")
    return attend_source(str(model), str(inputs), options, layers, heads)


def attend_source(
    name: str, given: str, options: dict[str, Any], layers: Layers = None, heads: Indices = None
) -> AttentionView:
    """Open a model and show its attention for an input from the shell."""
    source = open_source(name, options.pop("revision", None), trust_remote_code=options.pop("trust_remote_code", False))
    layers = indices_of("layers", options.pop("layers", None)) if layers is None else layers
    heads = indices_of("heads", options.pop("heads", None)) if heads is None else heads
    residue = options.pop("residue", None)
    reading = read_source(source, given, options)
    reading.residue = residue
    return view_of(title_of(source), reading, layers, heads)


def title_of(source: Source) -> str:
    """Return the title of the views of a model: its name and its class."""
    return f"{source.public_name}: {type(source.model).__name__}"


def indices_of(key: str, text: str | None) -> Indices:
    """Return the numbers in a text such as 0,5,-1; ValueError where it is none."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{key}={text} are no numbers between commas; write for example {key}=0,-1") from None


def parts_of(processor: Any) -> dict[str, Any]:
    """Return the tokenizer and the image processor of a processor, which may be one of them."""
    image = getattr(processor, "image_processor", None)
    is_image = hasattr(processor, "image_mean")
    tokenizer = getattr(processor, "tokenizer", None if is_image else processor)
    return {"tokenizer": tokenizer, "processor": processor if is_image else image}


def view_of(title: str, reading: Reading, layers: Layers, heads: Indices) -> AttentionView:
    """Run the model once and return the view of its attention."""
    stacks = capture(reading, layers, heads)
    if any(float(stack.weights.min(initial=0)) < 0 for stack in stacks):
        reading.notes.append("Some weights are below zero, as linear attention has them; maps show them in orange")
    return AttentionView(title, stacks, answer_of(reading), reading.notes, film_of(reading, stacks))


def answer_of(reading: Reading) -> str:
    """Return what the model predicts, where that is one class or a text."""
    logits = getattr(reading.outputs, "logits", None)
    names: Any = getattr(reading.model.config, "id2label", None)
    if reading.written is not None:
        return f"Written: {reading.written}"
    if isinstance(logits, Tensor) and logits.dim() == 2 and names and logits.shape[1] == len(names) > 1:
        share, index = logits[reading.row].float().softmax(-1).max(-1)
        return f"Predicted: {names.get(int(index), int(index))}, {float(share):.0%}"
    return ""


def film_of(reading: Reading, stacks: Sequence[Stack]) -> dict[str, Any] | None:
    """Return the steps of what a decoder wrote: the row of each, its token, and the most probable ones instead."""
    names = ("decoder", "cross")
    shown = [number for number, stack in enumerate(stacks) if stack.name.rpartition(".")[2] in names]
    if reading.prompt is None or not shown:
        return None
    written = list(enumerate(reading.next_tokens))[reading.prompt - 1 :]
    return {"stacks": shown, "steps": [step_of(reading, row, token) for row, token in written]}


def step_of(reading: Reading, row: int, token: int) -> dict[str, Any]:
    """Return a step of a film: the most probable tokens, and which of them was `taken`, -1 for another one."""
    probabilities = reading.outputs.logits[reading.row, row].float().softmax(-1).cpu()
    best = torch.topk(probabilities, min(BEST, len(probabilities)))
    ids, values = best.indices.tolist(), [round(value, 4) for value in best.values.tolist()]
    (label,) = token_labels([token], reading.tokenizer)
    return {
        "row": row,
        "token": label,
        "probability": round(float(probabilities[token]), 4),
        "best": [list(pair) for pair in zip(token_labels(ids, reading.tokenizer), values, strict=True)],
        "taken": ids.index(token) if token in ids else -1,
    }
