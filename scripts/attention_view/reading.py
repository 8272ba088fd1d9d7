"""The inputs of one forward of a model, and the stacks of attention that are captured meanwhile."""

import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.attention.capture import capture_attention
from qkv.scripts.attention.captured import CapturedAttention
from qkv.scripts.attention.layers import AXES, Indices, Layers, attention_layers, chosen_layers
from qkv.scripts.attention_view.grids import residues_of, sequences_mask, shown_layers
from qkv.scripts.attention_view.media import image_picture, power_spectrogram, spectrogram_picture
from qkv.scripts.attention_view.positions import Positions, frames, numbered, objects, patches, shortened, token_labels
from qkv.scripts.attention_view.stacks import Stack, select, stack_of

IMAGES, SOUNDS = ("pixel_values",), ("input_features", "input_values")
OBJECTS = 20  # object queries that are shown, those of the highest score
CAPTURED = 2**26  # weights that are captured at most, which take a quarter of a gigabyte


@dataclass
class Reading:
    """The inputs of one forward, of which `row` is shown, and what names their parts.

    With `residue` pairs of that residue are shown, too, and the sequences of an alignment at it.
    `prompt` is the number of tokens that were given to a decoder which wrote the others, `last` of them it did not read
    again; None of a model that writes nothing.
    """

    model: Any
    inputs: dict[str, Any]
    tokenizer: Any = None
    processor: Any = None
    row: int = 0
    residue: int | None = None
    prompt: int | None = None
    last: list[int] = field(default_factory=list)
    seconds: float | None = None
    notes: list[str] = field(default_factory=list)
    outputs: Any = None

    @property
    def is_encoder_decoder(self) -> bool:
        """True where a decoder reads what an encoder makes."""
        return "decoder_input_ids" in self.inputs

    def weights_row(self, stack: str) -> tuple[int, int]:
        """Return the row of captured weights that is shown, and how many there are.

        Of an alignment there is one for each sequence, and the first is shown; of pairs one for each residue.
        """
        alignment, count, place = self.inputs.get("msa_ids"), 1, 0
        if stack in AXES.values():
            count, place = residues_of(self.inputs), self.residue or 0
        elif alignment is not None:
            count = 1 + alignment.shape[1]
        return self.row * count + place, rows_of(self.inputs) * count

    @property
    def next_tokens(self) -> list[int]:
        """The ids of the tokens that follow those which the decoder reads, one for each of its rows."""
        ids = self.inputs["decoder_input_ids" if self.is_encoder_decoder else "input_ids"][self.row].tolist()
        return ids[1:] + self.last

    @property
    def written(self) -> str | None:
        """The text that the model wrote, or is said to have written; None of a model that writes none."""
        if self.prompt is None or self.tokenizer is None:
            return None
        return str(self.tokenizer.decode(self.next_tokens[self.prompt - 1 :], skip_special_tokens=True))


@torch.no_grad()
def capture(reading: Reading, layers: Layers = None, heads: Indices = None) -> list[Stack]:
    """Run the model once and return the stacks of attention that it computed, the row's own alone.

    ValueError for layers or heads that there are not, and for kernels without weights.
    """
    names = inspect.signature(type(reading.model).forward).parameters
    inputs = reading.inputs | ({"use_cache": False} if "use_cache" in names else {})
    layers = shown_layers(reading, layers)
    queries, was_training = queries_captured(reading, layers), reading.model.training
    reading.model.eval()
    try:
        with capture_attention(reading.model, inputs, layers=layers, heads=heads, queries=queries) as captured:
            reading.outputs = captured.outputs
    finally:
        reading.model.train(was_training)
    return stacks_of(reading, captured)


def queries_captured(reading: Reading, layers: Layers) -> slice | None:
    """Return the first queries of a long text whose weights fit in memory; None for all."""
    ids = reading.inputs.get("input_ids")
    if ids is None:
        return None
    chosen = chosen_layers(attention_layers(reading.model), layers)
    config: Any = reading.model.config
    heads = getattr(config.get_text_config(), "num_attention_heads", None) or 1
    rows = sum(1 if layer.is_of_tokens else ids.shape[1] for layer in chosen)
    most = max(CAPTURED // (rows * heads * ids.numel()), 1)
    if most >= ids.shape[1]:
        return None
    reading.notes.append(
        f"Of {ids.shape[1]:,} tokens only the first {most:,} are shown as queries, for memory; layers= shows more of "
        "fewer layers"
    )
    return slice(0, most)


def stacks_of(reading: Reading, captured: CapturedAttention) -> list[Stack]:
    """Return the stacks of captured attention; layers of other shapes are stacks of their own."""
    groups: dict[tuple[str, tuple[int, ...]], list[Any]] = {}
    recycled = getattr(reading.model.config, "num_recycles", 0)
    for record in captured.select(step=max(record.step for record in captured) if recycled else None):
        if len(record.weights) > reading.weights_row(record.stack)[1]:
            raise ValueError(f"{type(reading.model).__name__} attends within windows of its input, which are not shown")
        groups.setdefault((record.stack, tuple(record.weights.shape[1:])), []).append(record)
    counts = Counter(name for name, _ in groups)
    namer, stacks = Namer(reading), []
    for (name, shape), records in groups.items():
        queries, keys = (
            namer.positions(name, "queries", records[0].num_queries),
            namer.positions(name, "keys", shape[2]),
        )
        if len(records[0].queries) < len(queries):
            queries = queries.select(records[0].queries, rest=len(queries) - len(records[0].queries))
        own = name if counts[name] == 1 else f"{name}, {shape[1]} x {shape[2]}"
        own = f"{own}, residue {reading.residue}" if name in AXES.values() else own
        stacks.append(stack_of(own, records, reading.weights_row(name)[0], queries, keys))
    return without_padding(reading, namer, stacks)


class Namer:
    """Name the positions of the stacks of a reading; the same sequence is the same object in all of them."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.made = reading, dict[tuple[str, int], Positions]()

    def positions(self, stack: str, side: str, count: int) -> Positions:
        """Return the positions of the queries or keys of a stack; numbers where they are not those of an input."""
        sequence = self.sequence_of(stack, side)
        if (sequence, count) not in self.made:
            named = getattr(self, sequence)(count)
            fits = named is not None and len(named) == count
            self.made[sequence, count] = named if fits else numbered(count)
        return self.made[sequence, count]

    def sequence_of(self, stack: str, side: str) -> str:
        """Return which sequence it is: text, image, sound, target, or the rows that wrote a token."""
        inputs, name = self.reading.inputs, stack.rpartition(".")[2]
        if stack == AXES["column_attn"]:
            return "sequences"
        if name in ("text", "image") and {"input_ids", "pixel_values"} <= inputs.keys():
            return name
        if (name == "cross" and side == "queries") or (name == "decoder" and self.has_target):
            writes = self.reading.is_encoder_decoder and self.reading.prompt is not None
            return "written" if writes and side == "queries" else "target"
        if any(key in inputs for key in IMAGES):
            return "image"
        return "sound" if any(key in inputs for key in SOUNDS) else "text"

    @property
    def has_target(self) -> bool:
        """True where the decoder is beside an encoder, and reads a sequence of its own."""
        return self.reading.is_encoder_decoder or getattr(self.reading.outputs, "pred_boxes", None) is not None

    def text(self, count: int) -> Positions | None:
        """Name the tokens of the input."""
        return self.tokens("input_ids")

    def sequences(self, count: int) -> Positions | None:
        """Name the sequences of an alignment, of which the chain is the first."""
        return Positions("tokens", ["chain", *(f"sequence {number}" for number in range(1, count))])

    def target(self, count: int) -> Positions | None:
        """Name the tokens that the decoder reads, or its object queries by what they predict."""
        return self.tokens("decoder_input_ids") if self.reading.is_encoder_decoder else self.detected()

    def written(self, count: int) -> Positions | None:
        """Name the rows of the decoder by the tokens that they wrote."""
        return Positions("tokens", token_labels(self.reading.next_tokens, self.reading.tokenizer))

    def tokens(self, name: str) -> Positions | None:
        """Name the tokens of an input."""
        ids = self.reading.inputs.get(name)
        if ids is None:
            return None
        return Positions(
            "tokens", token_labels(ids[min(self.reading.row, len(ids) - 1)].tolist(), self.reading.tokenizer)
        )

    def image(self, count: int) -> Positions | None:
        """Name the patches of the image."""
        pixels = self.reading.inputs["pixel_values"]
        if pixels.dim() != 4:
            return None
        own = pixels[min(self.reading.row, len(pixels) - 1)]
        config: Any = self.reading.model.config
        patch = getattr(getattr(config, "vision_config", config), "patch_size", None)
        picture = image_picture(own, self.reading.processor)
        return patches(count, own.shape[-2], own.shape[-1], patch, picture)

    def sound(self, count: int) -> Positions | None:
        """Name the frames of the recording, with its spectrogram, of which padding is no part."""
        inputs, row = self.reading.inputs, self.reading.row
        own = next(inputs[name] for name in SOUNDS if name in inputs)[row]
        mask = inputs.get("attention_mask")
        end = None if mask is None else int(mask[row].sum())
        if own.dim() == 1:
            return frames(count, self.reading.seconds, spectrogram_picture(power_spectrogram(own[:end].cpu())))
        bins = getattr(self.reading.model.config, "num_mel_bins", None)
        own = own if own.shape[0] == bins or (bins is None and own.shape[0] < own.shape[1]) else own.transpose(0, 1)
        return frames(count, self.reading.seconds, spectrogram_picture(own[:, :end]))

    def detected(self) -> Positions | None:
        """Name object queries by the class that each predicts, "no object" among them, and its probability."""
        outputs, model = self.reading.outputs, self.reading.model
        names: Any = model.config.id2label
        scores = outputs.logits[self.reading.row].float().softmax(-1)[:, :-1].max(-1)
        best = zip(scores.values.tolist(), scores.indices.tolist(), strict=True)
        labels = [shortened(f"{names.get(index, index)} {score:.0%}") for score, index in best]
        return objects(labels, outputs.pred_boxes[self.reading.row].tolist())


def without_padding(reading: Reading, namer: Namer, stacks: list[Stack]) -> list[Stack]:
    """Return stacks without the positions that are padding, and with the object queries of the highest scores."""
    for (sequence, count), positions in namer.made.items():
        kept = kept_positions(reading, sequence, count)
        if kept is not None and kept != list(range(count)):
            is_detection = positions.kind == "objects"
            stacks = select(stacks, positions, kept, rest=is_detection)
            if is_detection and len(kept) < count:
                reading.notes.append(f"{len(kept)} of {count} object queries are shown, those of the highest scores")
    return stacks


def kept_positions(reading: Reading, sequence: str, count: int) -> list[int] | None:
    """Return the positions of a sequence that are shown; None where all are."""
    masks = {"text": "attention_mask", "target": "decoder_attention_mask", "sound": "attention_mask"}
    if sequence == "target" and not reading.is_encoder_decoder:
        scores = reading.outputs.logits[reading.row].float().softmax(-1)[:, :-1].amax(-1)
        return scores.argsort(descending=True)[:OBJECTS].tolist()
    mask = reading.inputs.get(masks.get(sequence, "")) if sequence != "sequences" else sequences_mask(reading.inputs)
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return None
    own = mask[min(reading.row, len(mask) - 1)].bool()
    if sequence == "sound":
        return list(range(-(-int(own.sum()) * count // len(own))))
    return own.nonzero().flatten().tolist() if len(own) == count else None


def rows_of(inputs: Mapping[str, Any]) -> int:
    """Return how many rows the inputs have."""
    return max((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), default=0)


def row_of(inputs: Mapping[str, Any], row: int) -> int:
    """Return a row of the inputs; ValueError where there is none."""
    count = rows_of(inputs)
    if not 0 <= row < count:
        raise ValueError(f"row={row}, but inputs have {count} rows; name one from 0 to {count - 1}")
    return row
