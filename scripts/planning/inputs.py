"""What does a step read? Batches of texts, images, sound, pairs or pictures with objects, by the head that reads them.

No number in them says anything, but all are such as models accept, so that a step can be taken with them and without.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from qkv.configuration.axes import TABLE_POSITIONS

Sizes = Mapping[str, int]
Inputs = dict[str, Any]
CHOICES = 4
# Longer texts than this are planned only where they are asked for, 30 s of sound at most, and pictures as large as DETR
# has those of COCO, with as many objects as these have on average.
# Source: Radford et al. 2023, Whisper, §2.2, https://arxiv.org/abs/2212.04356; Carion et al. 2020, DETR, §4,
#   https://arxiv.org/abs/2005.12872
LARGEST = {"tokens": 1024, "frames": 3000, "height": 800, "width": 1066, "objects": 7}
# Networks that go from token to token have been trained on shorter texts.
# Source: Bahdanau et al. 2015, §4.2, https://arxiv.org/abs/1409.0473
LARGEST_BY_FAMILY = {"qkv_recurrent": {"tokens": 50}}


@dataclass(frozen=True)
class Reading:
    """What an example is: the `unit` that work is counted in, its sizes, and what a model is given of so many.

    Sizes are what a config says, but not more than the largest that are planned. `contested` says that the examples of
    all devices compete, as pairs do, so that a step cannot be taken in parts.
    """

    unit: str
    sizes: Callable[[Any, Sizes], Sizes]
    inputs: Callable[[Any, Sizes, int], Inputs]
    contested: bool = False


def halves(config: Any) -> list[Any]:
    """The configs of a model's parts, or its own where it has none."""
    return [getattr(config, name) for name in config.sub_configs] or [config]


def readers(config: Any) -> list[Any]:
    """The configs of those parts that have positions for the tokens of a text."""
    texts = [part for part in halves(config) if getattr(part, "frontend", "tokens") == "tokens"]
    return [part for part in texts if hasattr(part, "max_position_embeddings")]


def refuse_too_long(config: Any, length: int) -> None:
    """Raise ValueError where a table of positions ends before a text of that many tokens."""
    tables = [part.max_position_embeddings for part in readers(config) if part.position in TABLE_POSITIONS]
    if tables and length > min(tables):
        raise ValueError(f"--length={length} is more than max_position_embeddings={min(tables)}; change one of them")


def marks(*shape: int) -> Tensor:
    """Which places of each row are real: not the last ones, since models leave out a mask that has no padding."""
    found = torch.ones(shape, dtype=torch.long)
    found[..., -(-3 * shape[-1] // 4) :] = 0
    return found


def text_sizes(config: Any, largest: Sizes) -> Sizes:
    """Tokens of a text."""
    return {"tokens": min([largest["tokens"], *(part.max_position_embeddings for part in readers(config))])}


def texts(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Rows of tokens, all of them real."""
    return {"input_ids": torch.zeros(batch, sizes["tokens"], dtype=torch.long)}


def choices(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Rows of tokens, of which some are the answers to one question."""
    return {"input_ids": torch.zeros(batch, CHOICES, sizes["tokens"], dtype=torch.long)}


def image_sizes(config: Any, largest: Sizes) -> Sizes:
    """Pixels of an image."""
    return dict(zip(("height", "width"), config.image_shape, strict=True))


def images(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Pixels, all of them real."""
    return {"pixel_values": torch.zeros(batch, config.num_channels, sizes["height"], sizes["width"])}


def sound_sizes(config: Any, largest: Sizes) -> Sizes:
    """Frames of sound, and tokens of what is said."""
    sound = halves(config)[0]
    frames = min(largest["frames"], sound.max_position_embeddings * prod(sound.conv_strides))
    return {"frames": frames, **text_sizes(config, largest)}


def labelled_sizes(config: Any, largest: Sizes) -> Sizes:
    """The same where each moment has a label: any text has room that has half as many tokens as there are moments."""
    sizes = sound_sizes(config, largest)
    return {**sizes, "tokens": min(sizes["tokens"], sizes["frames"] // prod(config.conv_strides) // 2)}


def sounds(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Frames, which of them are real where the model asks, and tokens of what is said, none of them a blank."""
    sound, frames = halves(config)[0], sizes["frames"]
    shape = (frames, sound.num_mel_bins) if sound.frame_layout == "frames_first" else (sound.num_mel_bins, frames)
    mask = {} if sound.frame_padding == "heard" else {"attention_mask": marks(batch, frames)}
    labels = torch.full((batch, sizes["tokens"]), int(config.pad_token_id == 0))
    return {"input_features": torch.zeros(batch, *shape), **mask, "labels": labels}


def pair_sizes(config: Any, largest: Sizes) -> Sizes:
    """Pixels of an image, and tokens of its text."""
    return {**image_sizes(config.vision_config, largest), **text_sizes(config, largest)}


def pairs(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Images and their texts, padded, each of which has an end."""
    shape, end = (batch, sizes["tokens"]), config.text_config.eos_token_id
    ids = torch.full(shape, end if isinstance(end, int) else 0)
    text = {"input_ids": ids, "attention_mask": marks(*shape), "return_loss": True}
    return images(config.vision_config, sizes, batch) | text


def scene_sizes(config: Any, largest: Sizes) -> Sizes:
    """Pixels of a picture, and objects in it."""
    objects = min(largest["objects"], config.num_queries)
    return {"height": largest["height"], "width": largest["width"], "objects": objects}


def scenes(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Pictures, padded, and a class and a box of each object."""
    classes, boxes = torch.zeros(sizes["objects"], dtype=torch.long), torch.zeros(sizes["objects"], 4)
    found = images(config.encoder, sizes, batch)
    mask = marks(batch, sizes["height"], sizes["width"])
    labels = [{"class_labels": classes.clone(), "boxes": boxes.clone()} for _ in range(batch)]
    return {**found, "pixel_mask": mask, "labels": labels}


TEXT, CHOICE = Reading("token", text_sizes, texts), Reading("token", text_sizes, choices)
IMAGE, SCENE = Reading("image", image_sizes, images), Reading("image", scene_sizes, scenes)
SOUND, LABELLED = Reading("clip", sound_sizes, sounds), Reading("clip", labelled_sizes, sounds)
PAIR = Reading("pair", pair_sizes, pairs, contested=True)
SHAPES: dict[str, Callable[[Any, Sizes], tuple[int, ...]]] = {
    "B": lambda config, sizes: (),
    "T": lambda config, sizes: (sizes["tokens"],),
    "N": lambda config, sizes: (prod(config.grid),),
}
# What a head reads, by the end of its class's name, and what beside it: one for each row (B), token (T) or patch (N).
HEADS: dict[str, tuple[Reading, dict[str, str]]] = {
    "ForCausalLM": (TEXT, {"labels": "T"}),
    "ForMaskedLM": (TEXT, {"labels": "T"}),
    "ForReplacedTokenDetection": (TEXT, {"labels": "T"}),
    "ForPreTraining": (TEXT, {"labels": "T", "next_sentence_label": "B"}),
    "ForTokenClassification": (TEXT, {"labels": "T"}),
    "ForConditionalGeneration": (TEXT, {"labels": "T"}),
    "ForSequenceClassification": (TEXT, {"labels": "B"}),
    "ForMultipleChoice": (CHOICE, {"labels": "B"}),
    "ForQuestionAnswering": (TEXT, {"start_positions": "B", "end_positions": "B"}),
    "ForImageClassification": (IMAGE, {"labels": "B"}),
    "ForMaskedImageModeling": (IMAGE, {"bool_masked_pos": "N"}),
    "ForSpeechSeq2Seq": (SOUND, {}),
    "ForCTC": (LABELLED, {}),
    "QkvDualEncoderModel": (PAIR, {}),
    "ForObjectDetection": (SCENE, {}),
}


def head_of(name: str) -> str:
    """The end of a class's name, or all of it where it has no head."""
    return name[max(name.find("For"), 0) :]


def inputs(head: str, config: Any, sizes: Sizes, batch: int) -> Inputs:
    """A batch of that many examples."""
    reading, targets = HEADS[head]
    found = reading.inputs(config, sizes, batch)
    for name, kind in targets.items():
        kept = torch.bool if kind == "N" else torch.long
        found[name] = torch.zeros(batch, *SHAPES[kind](config, sizes), dtype=kept)
    return found
