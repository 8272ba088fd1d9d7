"""Make the inputs of a step by the head that reads them: text, images, audio, pairs, or images with objects.

Their numbers mean nothing, but models accept them, so that a step can be taken with real tensors and with fake ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.common.resources import table
from qkv.scripts.data.pretrained import most_tokens, text_configs

Sizes = Mapping[str, int]
Inputs = dict[str, Any]
CHOICES = 4
# Longer texts are planned only on request, 30 s of sound at most, and images as large as DETR has those of COCO, with
# as many objects as these have on average.
# Source: Radford et al. 2023, Whisper, §2.2, https://arxiv.org/abs/2212.04356; Carion et al. 2020, DETR, §4,
#   https://arxiv.org/abs/2005.12872
LARGEST = {"tokens": 1024, "frames": 3000, "height": 800, "width": 1066, "objects": 7}
# Recurrent networks have been trained on shorter texts, AlphaFold 2 on parts of chains with 127 sequences beside them.
# Source: Bahdanau et al. 2015, §4.2, https://arxiv.org/abs/1409.0473; Jumper et al. 2021, supplement, table 4,
#   https://doi.org/10.1038/s41586-021-03819-2
LARGEST_BY_FAMILY = {"qkv_recurrent": {"tokens": 50}, "qkv_pair": {"tokens": 256, "sequences": 127}}


@dataclass(frozen=True)
class Example:
    """The `unit` that work is counted in, the sizes of an example, and the inputs of a batch.

    Sizes are what a config says, up to the largest that are planned. `in_batch_negatives` says that the examples of all
    devices are contrasted, so that a step cannot be split into micro-batches.
    """

    unit: str
    sizes: Callable[[Any, Sizes], Sizes]
    inputs: Callable[[Any, Sizes, int], Inputs]
    in_batch_negatives: bool = False


def part_configs(config: Any) -> list[Any]:
    """Return the configs of a model's parts, or its own where it has none."""
    return [getattr(config, name) for name in config.sub_configs] or [config]


def sized(sizes: Sizes) -> str:
    """Describe the size of an example."""
    others = dict(sizes)
    pixels = [f"{others.pop('height')} x {others.pop('width')} pixels"] if "height" in sizes else []
    return ", ".join([*pixels, *(f"{size} {name}" for name, size in others.items())])


def check_length(config: Any, length: int) -> None:
    """Raise ValueError where a table of positions ends before a text of that many tokens."""
    limit = most_tokens(config)
    if limit is not None and length > limit:
        raise ValueError(f"--length={length} is more than max_position_embeddings={limit}; change one of them")


def padding_mask(*shape: int) -> Tensor:
    """Return a mask that pads the last quarter of each row, as models drop masks without padding."""
    mask = torch.ones(shape, dtype=torch.long)
    mask[..., -(-3 * shape[-1] // 4) :] = 0
    return mask


def text_sizes(config: Any, largest: Sizes) -> Sizes:
    """Return the tokens of a text, and the sequences that are aligned with it where a model reads these."""
    tokens = min([largest["tokens"], *(part.max_position_embeddings for part in text_configs(config))])
    aligned = getattr(config, "column_attention", False)
    return {"tokens": tokens, **({"sequences": largest["sequences"]} if aligned else {})}


def texts(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return rows of tokens without padding, and what is aligned with each."""
    shapes: dict[str, tuple[int, ...]] = {"input_ids": (batch, sizes["tokens"])}
    if "sequences" in sizes:
        shapes["msa_ids"] = (batch, sizes["sequences"], sizes["tokens"])
    return {name: torch.zeros(shape, dtype=torch.long) for name, shape in shapes.items()}


def choices(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return the rows of tokens of several choices."""
    return {"input_ids": torch.zeros(batch, CHOICES, sizes["tokens"], dtype=torch.long)}


def image_sizes(config: Any, largest: Sizes) -> Sizes:
    """Return the pixels of an image."""
    return dict(zip(("height", "width"), config.image_shape, strict=True))


def images(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return images without padding."""
    return {"pixel_values": torch.zeros(batch, config.num_channels, sizes["height"], sizes["width"])}


def audio_sizes(config: Any, largest: Sizes) -> Sizes:
    """Return the frames of a clip, and the tokens of its transcription."""
    audio = part_configs(config)[0]
    frames = min(largest["frames"], audio.max_position_embeddings * prod(audio.conv_strides))
    return {"frames": frames, **text_sizes(config, largest)}


def ctc_sizes(config: Any, largest: Sizes) -> Sizes:
    """Return the same for CTC, which has room for any text of half as many tokens as frames after convolution."""
    sizes = audio_sizes(config, largest)
    return {**sizes, "tokens": min(sizes["tokens"], sizes["frames"] // prod(config.conv_strides) // 2)}


def clips(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return clips, a mask where the model takes one, and the tokens of transcriptions, none of them a blank."""
    audio, frames = part_configs(config)[0], sizes["frames"]
    shape = (frames, audio.num_mel_bins) if audio.frame_layout == "frames_first" else (audio.num_mel_bins, frames)
    mask = {} if audio.frame_padding == "unmasked" else {"attention_mask": padding_mask(batch, frames)}
    labels = torch.full((batch, sizes["tokens"]), int(config.pad_token_id == 0))
    return {"input_features": torch.zeros(batch, *shape), **mask, "labels": labels}


def pair_sizes(config: Any, largest: Sizes) -> Sizes:
    """Return the pixels of an image, and the tokens of its text."""
    return {**image_sizes(config.vision_config, largest), **text_sizes(config, largest)}


def pairs(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return images and their padded texts, each with an end token."""
    shape, end = (batch, sizes["tokens"]), config.text_config.eos_token_id
    ids = torch.full(shape, end if isinstance(end, int) else 0)
    text = {"input_ids": ids, "attention_mask": padding_mask(*shape), "return_loss": True}
    return images(config.vision_config, sizes, batch) | text


def scene_sizes(config: Any, largest: Sizes) -> Sizes:
    """Return the pixels of an image, and the objects in it."""
    objects = min(largest["objects"], config.num_queries)
    return {"height": largest["height"], "width": largest["width"], "objects": objects}


def scenes(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return padded images, and a class and a box of each object."""
    classes, boxes = torch.zeros(sizes["objects"], dtype=torch.long), torch.zeros(sizes["objects"], 4)
    mask = padding_mask(batch, sizes["height"], sizes["width"])
    labels = [{"class_labels": classes.clone(), "boxes": boxes.clone()} for _ in range(batch)]
    return {**images(config.encoder, sizes, batch), "pixel_mask": mask, "labels": labels}


EXAMPLES = {
    "text": Example("token", text_sizes, texts),
    "choice": Example("token", text_sizes, choices),
    "image": Example("image", image_sizes, images),
    "scene": Example("image", scene_sizes, scenes),
    "audio": Example("clip", audio_sizes, clips),
    "ctc": Example("clip", ctc_sizes, clips),
    "pair": Example("pair", pair_sizes, pairs, in_batch_negatives=True),
}
SHAPES: dict[str, Callable[[Any, Sizes], tuple[int, ...]]] = {
    "B": lambda config, sizes: (),
    "T": lambda config, sizes: (sizes["tokens"],),
    # An encoder predicts nothing for the first and the last token.
    "P": lambda config, sizes: (max(sizes["tokens"] - 2 * (config.model_type != "qkv_pair"), 0),) * 2,
    "N": lambda config, sizes: (prod(config.grid),),
}
# By the end of a class's name: what its head reads, and the kinds of its targets.
HEADS: dict[str, tuple[Example, dict[str, str]]] = {
    name: (EXAMPLES[head["reads"]], head["targets"]) for name, head in table(__file__).items()
}


def head_of(name: str) -> str:
    """Return the end of a class's name, or all of it where it has no head."""
    return name[max(name.find("For"), 0) :]


def make_inputs(head: str, config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return a batch of that many examples."""
    example, targets = HEADS[head]
    inputs = example.inputs(config, sizes, batch)
    for name, kind in targets.items():
        dtype = torch.bool if kind == "N" else torch.long
        inputs[name] = torch.zeros(batch, *SHAPES[kind](config, sizes), dtype=dtype)
    return inputs
