"""The inputs of one forward of a model, and the stacks of attention that are captured meanwhile."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.attention.capture import capture_attention, evaluating, without_cache
from qkv.scripts.attention.layers import AXES, Indices, Layers, attention_layers, chosen_layers
from qkv.scripts.attention.records import CapturedAttention
from qkv.scripts.attention.statistics import grid_of
from qkv.scripts.attention_view.positions import Positions, image_picture, shortened, spectrogram_picture, token_labels
from qkv.scripts.attention_view.stacks import Stack, select, stack_of

SOUNDS = ("input_features", "input_values")
OBJECTS = 20  # object queries that are shown, by their scores
CAPTURED = 2**26  # weights that are captured at most, which take a quarter of a gigabyte


@dataclass
class Reading:
    """The inputs of one forward, of which `row` is shown, and the tokenizer and processor that name their parts.

    With `residue` pairs of that residue are shown, too, and the sequences of an alignment at it. `prompt` is the number
    of tokens given to a decoder that wrote the others, of which it did not read the `last`; None without writing.
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
        """True where a decoder reads the output of an encoder."""
        return "decoder_input_ids" in self.inputs

    @property
    def next_tokens(self) -> list[int]:
        """The id of the next token for each input token of the decoder."""
        ids = self.inputs["decoder_input_ids" if self.is_encoder_decoder else "input_ids"][self.row].tolist()
        return ids[1:] + self.last

    @property
    def written(self) -> str | None:
        """The text of the decoder, generated or given; None for a model without one."""
        if self.prompt is None or self.tokenizer is None:
            return None
        return str(self.tokenizer.decode(self.next_tokens[self.prompt - 1 :], skip_special_tokens=True))

    def own(self, name: str) -> Tensor:
        """Return the shown row of an input."""
        return self.inputs[name][min(self.row, len(self.inputs[name]) - 1)]

    @property
    def residues(self) -> int:
        """The number of residues of the chains of a batch, with padding."""
        return int(self.inputs["input_ids" if "input_ids" in self.inputs else "inputs_embeds"].shape[1])

    @property
    def objects(self) -> Tensor | None:
        """Class probabilities of object queries, without the class no object; None for a model without boxes."""
        if getattr(self.outputs, "pred_boxes", None) is None:
            return None
        return self.outputs.logits[self.row].float().softmax(-1)[:, :-1]

    def weights_row(self, stack: str) -> tuple[int, int]:
        """Return the row of captured weights that is shown, and the number of rows.

        An alignment has a row for each sequence, the chain first; pairs have one for each residue.
        """
        count, place = 1, 0
        if stack in AXES.values():
            count, place = self.residues, self.residue or 0
        elif "msa_ids" in self.inputs:
            count = 1 + self.inputs["msa_ids"].shape[1]
        return self.row * count + place, rows_of(self.inputs) * count


@torch.no_grad()
def capture(reading: Reading, layers: Layers = None, heads: Indices = None) -> list[Stack]:
    """Run the model once and return the stacks of attention of the shown row.

    ValueError for layers or heads that do not exist, and for kernels without weights.
    """
    model, inputs = reading.model, without_cache(reading.model, reading.inputs)
    layers = shown_layers(reading, layers)
    rows: Any = {"layers": layers, "heads": heads, "queries": queries_captured(reading, layers)}
    with evaluating(model), capture_attention(model, inputs, **rows) as captured:
        reading.outputs = captured.outputs
    return stacks_of(reading, captured)


def shown_layers(reading: Reading, layers: Layers) -> Layers:
    """Return the layers that are shown; with a residue, also the layers of attention between its pairs.

    ValueError for a model without pairs, for an unknown residue, and for pairs without a residue.
    """
    stacks = {layer.stack: layer.is_of_tokens for layer in attention_layers(reading.model)}
    named = layers if isinstance(layers, Mapping) else {}
    if reading.residue is None:
        for stack in named:
            if not stacks.get(stack, True):
                raise ValueError(f"layers names {stack!r}, which is shown of one residue; name it by residue=")
        return layers
    if all(stacks.values()):
        name = type(reading.model).__name__
        raise ValueError(f"residue={reading.residue} is for attention of pairs, and {name} has none; leave it out")
    length = int(reading.own("attention_mask").sum()) if "attention_mask" in reading.inputs else reading.residues
    if reading.residue not in range(length):
        raise ValueError(f"residue={reading.residue}, but the chain has {length}; name one from 0 to {length - 1}")
    everywhere: Any = layers
    return named or dict.fromkeys(stacks, everywhere)


def queries_captured(reading: Reading, layers: Layers) -> slice | None:
    """Return the first queries of a long text whose weights fit in memory; None for all."""
    ids = reading.inputs.get("input_ids")
    if ids is None:
        return None
    chosen = chosen_layers(attention_layers(reading.model), layers)
    heads = getattr(reading.model.config.get_text_config(), "num_attention_heads", None) or 1
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
    """Return the stacks of captured attention; layers of different shapes are separate stacks."""
    groups: dict[tuple[str, tuple[int, ...]], list[Any]] = {}
    recycled = getattr(reading.model.config, "num_recycles", 0)
    for record in captured.select(step=max(record.step for record in captured) if recycled else None):
        if len(record.weights) > reading.weights_row(record.stack)[1]:
            raise ValueError(
                f"{type(reading.model).__name__} attends in {record.stack} within windows of its input, which are not "
                "shown; qkv.capture_attention has their weights"
            )
        groups.setdefault((record.stack, tuple(record.weights.shape[1:])), []).append(record)
    counts, made, stacks = Counter(name for name, _ in groups), dict[tuple[str, int], Positions](), []
    for (name, shape), records in groups.items():
        own = name if counts[name] == 1 else f"{name}, {shape[1]} x {shape[2]}"
        own = f"{own}, residue {reading.residue}" if name in AXES.values() else own
        chosen, count = records[0].queries, records[0].num_queries
        queries, keys = (named(reading, made, name, *side) for side in (("queries", count), ("keys", shape[2])))
        queries = queries.select(chosen, rest=count - len(chosen)) if len(chosen) < count else queries
        stacks.append(stack_of(own, records, reading.weights_row(name)[0], queries, keys))
    for (sequence, _), positions in made.items():
        stacks = without_padding(reading, sequence, positions, stacks)
    return stacks


def named(reading: Reading, made: dict[tuple[str, int], Positions], stack: str, side: str, count: int) -> Positions:
    """Name the queries or keys of a stack; the same sequence is the same object in all stacks."""
    sequence = sequence_of(reading, stack, side)
    if (sequence, count) not in made:
        positions = NAMES[sequence](reading, count)
        if positions is None or len(positions) != count:
            positions = Positions("tokens", [str(number) for number in range(count)])
        made[sequence, count] = positions
    return made[sequence, count]


def without_padding(reading: Reading, sequence: str, positions: Positions, stacks: list[Stack]) -> list[Stack]:
    """Return stacks without the positions of a sequence that are padding, and with the best object queries."""
    count, is_objects = len(positions), positions.kind == "objects"
    kept = kept_positions(reading, sequence, count)
    if kept is None or kept == list(range(count)):
        return stacks
    if is_objects and len(kept) < count:
        reading.notes.append(f"{len(kept)} of {count} object queries are shown, those of the highest scores")
    return select(stacks, positions, kept, rest=is_objects)


def sequence_of(reading: Reading, stack: str, side: str) -> str:
    """Return the sequence of the queries or keys of a stack, a key of `NAMES`."""
    inputs, name = reading.inputs, stack.rpartition(".")[2]
    if stack == AXES["column_attn"]:
        return "sequences"
    if name in ("text", "image") and {"input_ids", "pixel_values"} <= inputs.keys():
        return name
    has_target = reading.is_encoder_decoder or reading.objects is not None
    if (name == "cross" and side == "queries") or (name == "decoder" and has_target):
        writes = reading.is_encoder_decoder and reading.prompt is not None
        target = "target" if reading.is_encoder_decoder else "objects"
        return "written" if writes and side == "queries" else target
    if "pixel_values" in inputs:
        return "image"
    return "sound" if any(key in inputs for key in SOUNDS) else "text"


def name_tokens(reading: Reading, name: str) -> Positions | None:
    """Name the tokens of an input."""
    if name not in reading.inputs:
        return None
    prompt = 0 if reading.is_encoder_decoder else reading.prompt or 0
    return Positions("tokens", token_labels(reading.own(name).tolist(), reading.tokenizer), prompt=prompt)


def name_patches(reading: Reading, count: int) -> Positions | None:
    """Name the patches of the image; None where they fill no grid of its shape."""
    pixels = reading.own("pixel_values")
    found = grid_of(reading.model.config, count, pixels) if pixels.dim() == 3 else None
    if found is None:
        return None
    (rows, columns), prefix = found
    names = (["class"] + [f"extra {number}" for number in range(1, prefix)])[:prefix]
    names += [f"({row}, {column})" for row in range(1, rows + 1) for column in range(1, columns + 1)]
    return Positions("patches", names, (rows, columns), prefix, image_picture(pixels, reading.processor))


def name_frames(reading: Reading, count: int) -> Positions:
    """Name the frames of the recording by the time at which they begin, if known; its spectrogram has no padding."""
    own, seconds = reading.own(next(name for name in SOUNDS if name in reading.inputs)), reading.seconds
    end = int(reading.own("attention_mask").sum()) if "attention_mask" in reading.inputs else None
    bins = getattr(reading.model.config, "num_mel_bins", None)
    if own.dim() == 2 and own.shape[0] != bins and (bins is not None or own.shape[0] >= own.shape[1]):
        own = own.transpose(0, 1)
    labels = [f"{number * seconds / count:.2f} s" if seconds else f"frame {number}" for number in range(count)]
    return Positions("frames", labels, picture=spectrogram_picture(own[..., :end].cpu()))


def name_objects(reading: Reading, count: int) -> Positions | None:
    """Name object queries by the class that each predicts and its probability.

    The model's boxes are (centre x, centre y, width, height), as shares.
    """
    if reading.objects is None:
        return None
    names, best = reading.model.config.id2label, reading.objects.max(-1)
    found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    labels = [shortened(f"{names.get(index, index)} {score:.0%}") for score, index in found]
    corners = [(x - w / 2, y - h / 2, w, h) for x, y, w, h in reading.outputs.pred_boxes[reading.row].tolist()]
    return Positions("objects", labels, boxes=[[round(value, 4) for value in box] for box in corners])


NAMES: dict[str, Callable[[Reading, int], Positions | None]] = {
    "text": lambda reading, _: name_tokens(reading, "input_ids"),
    "target": lambda reading, _: name_tokens(reading, "decoder_input_ids"),
    "written": lambda reading, _: Positions("tokens", token_labels(reading.next_tokens, reading.tokenizer)),
    "sequences": lambda _, count: Positions("tokens", ["chain", *(f"sequence {each}" for each in range(1, count))]),
    "image": name_patches,
    "sound": name_frames,
    "objects": name_objects,
}
MASKS = {"text": "attention_mask", "target": "decoder_attention_mask", "sound": "attention_mask"}


def kept_positions(reading: Reading, sequence: str, count: int) -> list[int] | None:
    """Return the positions of a sequence that are shown, no padding and the best objects; None where all are."""
    if sequence == "objects" and reading.objects is not None:
        return reading.objects.amax(-1).argsort(descending=True)[:OBJECTS].tolist()
    mask = reading.inputs.get("msa_attention_mask" if sequence == "sequences" else MASKS.get(sequence, ""))
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return None
    own = mask[min(reading.row, len(mask) - 1)].bool()
    if sequence == "sound":
        return list(range(-(-int(own.sum()) * count // len(own))))
    own = torch.cat((own.new_ones(1), own)) if sequence == "sequences" else own
    return own.nonzero().flatten().tolist() if len(own) == count else None


def rows_of(inputs: Mapping[str, Any]) -> int:
    """Return the number of rows of the inputs."""
    return max((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), default=0)
