"""Make the inputs and targets of a head: zeros, of the sizes that configs and papers say."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.common.heads import Head
from qkv.scripts.data.pretrained import most_tokens, part_configs, text_configs

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


def example_sizes(head: Head, config: Any, largest: Sizes) -> Sizes:
    """Return the sizes of an example of a head: the sizes of its config, up to the largest."""
    if head.inputs == "scene":
        objects = min(largest["objects"], config.num_queries)
        return {"height": largest["height"], "width": largest["width"], "objects": objects}
    sizes: dict[str, int] = {}
    audio = part_configs(config)[0]
    if head.inputs in ("image", "pair"):
        sizes["height"], sizes["width"] = getattr(config, "vision_config", config).image_shape
    if head.medium == "audio":
        sizes["frames"] = min(largest["frames"], audio.max_position_embeddings * prod(audio.conv_strides))
    if head.inputs != "image":
        sizes["tokens"] = min([largest["tokens"], *(part.max_position_embeddings for part in text_configs(config))])
    if head.inputs == "ctc":  # it has room for any text of half as many tokens as frames after convolution
        sizes["tokens"] = min(sizes["tokens"], sizes["frames"] // prod(audio.conv_strides) // 2)
    if getattr(config, "column_attention", False):
        sizes["sequences"] = largest["sequences"]
    return sizes


def check_length(config: Any, length: int) -> None:
    """Raise ValueError where a table of positions ends before a text of that many tokens."""
    limit = most_tokens(config)
    if limit is not None and length > limit:
        raise ValueError(f"--length={length} is more than max_position_embeddings={limit}; change one of them")


def sized(sizes: Sizes) -> str:
    """Describe the size of an example."""
    pixels = [f"{sizes['height']} x {sizes['width']} pixels"] if "height" in sizes else []
    counts = [f"{size} {name}" for name, size in sizes.items() if name not in ("height", "width")]
    return ", ".join([*pixels, *counts])


def zeros(*shape: int) -> Tensor:
    """Return token ids or classes."""
    return torch.zeros(shape, dtype=torch.long)


def padding_mask(*shape: int) -> Tensor:
    """Return a mask that pads the last quarter of each row, as models drop masks without padding."""
    mask = torch.ones(shape, dtype=torch.long)
    mask[..., -(-3 * shape[-1] // 4) :] = 0
    return mask


def texts(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return rows of tokens without padding, and the sequences that are aligned with each."""
    aligned = {"msa_ids": zeros(batch, sizes["sequences"], sizes["tokens"])} if "sequences" in sizes else {}
    return {"input_ids": zeros(batch, sizes["tokens"]), **aligned}


def images(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return images without padding."""
    return {"pixel_values": torch.zeros(batch, config.num_channels, sizes["height"], sizes["width"])}


def clips(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return clips, a mask where the model takes one, and transcriptions without blanks."""
    audio, frames = part_configs(config)[0], sizes["frames"]
    shape = (frames, audio.num_mel_bins) if audio.frame_layout == "frames_first" else (audio.num_mel_bins, frames)
    mask = {} if audio.frame_padding == "unmasked" else {"attention_mask": padding_mask(batch, frames)}
    labels = torch.full((batch, sizes["tokens"]), int(config.pad_token_id == 0))
    return {"input_features": torch.zeros(batch, *shape), **mask, "labels": labels}


def pairs(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return images and their padded texts, each with an end token."""
    shape, end = (batch, sizes["tokens"]), config.text_config.eos_token_id
    ids = torch.full(shape, end if isinstance(end, int) else 0)
    text = {"input_ids": ids, "attention_mask": padding_mask(*shape), "return_loss": True}
    return images(config.vision_config, sizes, batch) | text


def scenes(config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return padded images, and a class and a box of each object."""
    count, mask = sizes["objects"], padding_mask(batch, sizes["height"], sizes["width"])
    labels = [{"class_labels": zeros(count), "boxes": torch.zeros(count, 4)} for _ in range(batch)]
    return {**images(config.encoder, sizes, batch), "pixel_mask": mask, "labels": labels}


INPUTS: dict[str, Callable[[Any, Sizes, int], Inputs]] = {
    "text": texts,
    "choice": lambda config, sizes, batch: {"input_ids": zeros(batch, CHOICES, sizes["tokens"])},
    "image": images,
    "scene": scenes,
    "audio": clips,
    "ctc": clips,
    "pair": pairs,
}
# Shapes of targets, by the words of `Head.targets`.
SHAPES: dict[str, Callable[[Any, Sizes], tuple[int, ...]]] = {
    "B": lambda config, sizes: (),
    "T": lambda config, sizes: (sizes["tokens"],),
    # An encoder predicts nothing for the first and the last token.
    "P": lambda config, sizes: (max(sizes["tokens"] - 2 * (config.model_type != "qkv_pair"), 0),) * 2,
    "N": lambda config, sizes: (prod(config.grid),),
    "A": lambda config, sizes: (sizes["tokens"], 14, 3),
}


def make_inputs(head: Head, config: Any, sizes: Sizes, batch: int) -> Inputs:
    """Return a batch of that many examples."""
    targets = {name: zeros(batch, *SHAPES[kind](config, sizes)) for name, kind in head.targets.items()}
    masks = {name: target.bool() for name, target in targets.items() if head.targets[name] == "N"}
    return INPUTS[head.inputs](config, sizes, batch) | targets | masks
