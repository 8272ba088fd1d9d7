"""Show the attention of a model for an input: `qkv.attend`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.scripts.attention.layers import Indices, Layers
from qkv.scripts.attention_view.inputs import read_source
from qkv.scripts.attention_view.page import page
from qkv.scripts.attention_view.positions import token_labels
from qkv.scripts.attention_view.reading import Reading, capture, rows_of
from qkv.scripts.attention_view.stacks import Stack, fit
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.prediction.options import OPTIONS
from qkv.scripts.prediction.source import Source, open_source

BEST = 5  # tokens whose probability is shown in a step of generation
LOADING = ("revision", "trust_remote_code")


@dataclass
class AttentionView:
    """Attention of a model for an input: a page in a notebook and in a file.

    `stacks` have the captured weights with the positions of queries and keys; `answer` is the prediction, `film` the
    steps of generation, and `notes` name the parts of the input that are not shown.
    """

    title: str
    stacks: list[Stack]
    answer: str = ""
    notes: list[str] = field(default_factory=list)
    film: dict[str, Any] | None = None

    def page(self) -> tuple[str, list[str]]:
        """Return the page and its notes."""
        stacks, notes = fit(self.stacks)
        notes = [*self.notes, *notes]
        return page(self.title, stacks, {"answer": self.answer, "notes": notes, "film": self.film}), notes

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page()[0])}" sandbox="allow-scripts" title="{escape(self.title)}" '
            'style="width:100%;height:720px;border:0"></iframe>'
        )

    def save(self, path: str | Path) -> list[str]:
        """Write the page to a file .html, and return its notes."""
        content, notes = self.page()
        write_atomically(page_path(path), content)
        return notes


def page_path(path: str | Path) -> Path:
    """Return the file of a page; ValueError for another ending, or a missing folder."""
    path = Path(path).expanduser()
    if path.suffix.lower() != ".html" or not path.absolute().parent.is_dir():
        raise ValueError(f"{path} must end in .html, in a folder that exists")
    return path


def attend(
    model: nn.Module | str | Path,
    inputs: Mapping[str, Any] | str | Path,
    *,
    processor: Any = None,
    layers: Layers = None,
    heads: Indices = None,
    **options: Any,
) -> AttentionView:
    """Show which tokens attend to which in a model, for one input: in a notebook, or as a page.

        qkv.attend("runs/translate", "twenty-one")                       # a run, a model folder or a Hub id
        qkv.attend(model, tokenizer("a text", return_tensors="pt"), processor=tokenizer).save("attention.html")

    A run, folder or Hub id reads the inputs of `qkv predict`, and `options` are those of `qkv attend`: a text, with
    `pair=` a second one, the path of an image, a recording or a table. A model, ours or transformers', takes the inputs
    of its forward, as a dict; `processor`, its tokenizer or image processor, names tokens and restores images, and
    `row=` is the row of the batch. Of a model of pairs, `residue=` shows how the pairs of that residue, counted from 0,
    attend to each other: (i, q) to (i, s) in `starting`, (q, i) to (s, i) in `ending`, and at it the sequences of an
    alignment in `column`. `layers` and `heads` are those of `qkv.capture_attention`.

    ValueError for an unknown input, layer or option, and for a kernel without weights.
    """
    is_built = isinstance(model, nn.Module)
    known = ["row", "residue"] if is_built else [*OPTIONS["attend"], *LOADING]
    for key in options.keys() - set(known):
        raise ValueError(f"{key}= is no option here; {did_you_mean(key, known, 'options')}")
    if not is_built:
        source = open_source(str(model), **{key: options[key] for key in (*LOADING, "task") if key in options})
        return view_of(title_of(source), read_source(source, str(inputs), options), layers, heads)
    if not isinstance(inputs, Mapping):
        raise ValueError(f'inputs={inputs!r}, but a model takes a dict, as of tokenizer("a text", return_tensors="pt")')
    row, count = options.get("row", 0), rows_of(inputs)
    if not 0 <= row < count:
        raise ValueError(f"row={row}, but inputs have {count} rows; name one from 0 to {count - 1}")
    reading = Reading(model, dict(inputs), **parts_of(processor), row=row, residue=options.get("residue"))
    return view_of(type(model).__name__, reading, layers, heads)


def title_of(source: Source) -> str:
    """Return the title of the views of a model: its name and its class."""
    return f"{source.public_name}: {type(source.model).__name__}"


def parts_of(processor: Any) -> dict[str, Any]:
    """Return the tokenizer and the image processor of a processor, or of one of the two."""
    if hasattr(processor, "image_mean"):
        return {"tokenizer": None, "processor": processor}
    image = getattr(processor, "image_processor", None)
    return {"tokenizer": getattr(processor, "tokenizer", processor), "processor": image}


def view_of(title: str, reading: Reading, layers: Layers, heads: Indices) -> AttentionView:
    """Run the model once and return the view of its attention."""
    stacks = capture(reading, layers, heads)
    if any(float(stack.weights.min(initial=0)) < 0 for stack in stacks):
        reading.notes.append("Some weights are below zero, as linear attention has them; maps show them in orange")
    return AttentionView(title, stacks, answer_of(reading), reading.notes, film_of(reading, stacks))


def answer_of(reading: Reading) -> str:
    """Return the prediction of the model, where it is one class or a text."""
    logits = getattr(reading.outputs, "logits", None)
    names: Any = getattr(reading.model.config, "id2label", None)
    if reading.written is not None:
        return f"Written: {reading.written}"
    if isinstance(logits, Tensor) and logits.dim() == 2 and names and logits.shape[1] == len(names) > 1:
        share, index = logits[reading.row].float().softmax(-1).max(-1)
        return f"Predicted: {names.get(int(index), int(index))}, {float(share):.1%}"
    return ""


def film_of(reading: Reading, stacks: Sequence[Stack]) -> dict[str, Any] | None:
    """Return the steps of generation: the row of each, its token, and the most probable tokens.

    `taken` is the place of the token among these, -1 for another one.
    """
    names = ("decoder", "cross")
    shown = [number for number, stack in enumerate(stacks) if stack.name.rpartition(".")[2] in names]
    if reading.prompt is None or not shown:
        return None
    steps = []
    for row, token in list(enumerate(reading.next_tokens))[reading.prompt - 1 :]:
        probabilities = reading.outputs.logits[reading.row, row].float().softmax(-1).cpu()
        best = torch.topk(probabilities, min(BEST, len(probabilities)))
        ids, values = best.indices.tolist(), [round(value, 4) for value in best.values.tolist()]
        label, *labels = token_labels([token, *ids], reading.tokenizer)
        steps.append({
            "row": row,
            "token": label,
            "probability": round(float(probabilities[token]), 4),
            "best": [list(pair) for pair in zip(labels, values, strict=True)],
            "taken": ids.index(token) if token in ids else -1,
        })  # fmt: skip
    return {"stacks": shown, "steps": steps}
