"""Make seeded random inputs that fit two models, and collect their outputs layer by layer, in any precision."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from qkv.configuration.axes import TABLE_POSITIONS

SEED, BATCH, LENGTH, TARGET, NEW = 0, 3, 24, 12, 8


class DoublePrecision(TorchFunctionMode):
    """Compute in double precision where code asks for single precision: norms, softmax and angles.

    Two sums in another order differ by 1e-7 in single precision, and so does a small mistake.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = Tensor.double if func is Tensor.float else func
        wide = [torch.float64 if value is torch.float32 else value for value in (*args, *(kwargs or {}).values())]
        return func(*wide[: len(args)], **dict(zip(kwargs or (), wide[len(args) :], strict=True)))


@contextmanager
def in_double_precision() -> Iterator[None]:
    """Compute in double precision in this block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with DoublePrecision():
            yield
    finally:
        torch.set_default_dtype(before)


def probe_inputs(ours: PreTrainedModel, official: PreTrainedModel) -> dict[str, Tensor]:
    """Return inputs of a forward pass that both models take: padded tokens, images, or a source and its target."""
    config, name = ours.config, type(ours).__name__
    inputs = random_inputs(config, torch.Generator().manual_seed(SEED), name)
    if name.endswith("MultipleChoice"):
        inputs = {name: torch.stack((value, value.flip(0)), 1) for name, value in inputs.items()}
    understood = [set(signature(model.forward).parameters) for model in (ours, official)]
    if lacking := set(inputs) - understood[0] & understood[1] - {"token_type_ids"}:
        raise ValueError(f"{name} cannot be checked yet: it takes no {min(lacking)}; convert it without --check")
    return {name: value for name, value in inputs.items() if all(name in names for names in understood)}


def random_inputs(config: Any, generator: torch.Generator, name: str) -> dict[str, Tensor]:
    """Return inputs for the model's frontend."""
    if "vision_config" in config.sub_configs:
        captions = with_eos(tokens(config.text_config, generator), config.text_config)
        return captions | images(config.vision_config, generator, name)
    return OTHERS.get(config.model_type, texts)(config, generator, name)


def texts(config: Any, generator: torch.Generator, name: str) -> dict[str, Tensor]:
    """Return rows of tokens, or a source and its target."""
    if config.is_encoder_decoder:
        return translation(config, generator, name)
    # The last real token of a row, which decides its class, is found by the padding id.
    batch = BATCH if config.pad_token_id is not None else 1
    inputs = tokens(getattr(config, "encoder", config), generator, batch=batch)
    if getattr(config, "type_vocab_size", 0) > 1:
        ids = inputs["input_ids"]
        inputs["token_type_ids"] = torch.arange(ids.shape[-1]).gt(5).long().expand_as(ids)
    return with_eos(inputs, config) if getattr(config, "pooling", "first") == "end" else inputs


def tokens(config: Any, generator: torch.Generator, length: int = LENGTH, batch: int = BATCH) -> dict[str, Tensor]:
    """Return rows of random ordinary tokens, the later ones with more padding at the right; some are global."""
    length = min(length, getattr(config, "max_position_embeddings", None) or length)
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
    special = {config.pad_token_id, config.bos_token_id, *as_list(config.eos_token_id)}
    ordinary = next(number for number in range(config.vocab_size) if number not in special)
    for number in special - {None}:
        ids[ids == number] = ordinary
    real = torch.arange(length) < length - length // 4 * torch.arange(batch)[:, None]
    inputs = {"input_ids": ids.masked_fill(~real, config.pad_token_id or 0), "attention_mask": real.long()}
    if getattr(config, "global_projections", False):
        inputs["global_attention_mask"] = torch.arange(length).remainder(7).eq(0).long().repeat(batch, 1)
    return inputs


def with_eos(inputs: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Return texts whose last token before the padding is `eos_token_id`."""
    last = inputs["attention_mask"].sum(1, keepdim=True) - 1
    return {**inputs, "input_ids": inputs["input_ids"].scatter(1, last, as_list(config.eos_token_id)[0])}


def spectrograms(config: Any, generator: torch.Generator, name: str) -> dict[str, Tensor]:
    """Return random spectrograms, padded at the end unless the model reads padding, and target tokens."""
    encoder = getattr(config, "encoder", config)
    tabled = encoder.position in TABLE_POSITIONS
    frames = (prod(encoder.conv_strides) * encoder.max_position_embeddings) if tabled else 4 * LENGTH - 1
    bins_first = encoder.frame_layout == "bins_first"
    size = (encoder.num_mel_bins, frames) if bins_first else (frames, encoder.num_mel_bins)
    inputs = {"input_features": torch.randn(BATCH, *size, generator=generator)}
    if encoder.frame_padding != "unmasked":
        real = torch.arange(frames) < frames - frames // 4 * torch.arange(BATCH)[:, None]
        inputs["attention_mask"] = real.long()
    if config.is_encoder_decoder:
        target = tokens(config.decoder, generator, TARGET)
        inputs |= {f"decoder_{name}": value for name, value in target.items()}
    return inputs


def translation(config: Any, generator: torch.Generator, name: str) -> dict[str, Tensor]:
    """Return a source and its target, as labels where the model makes decoder inputs of them.

    Sequence classification reads the source alone, at its last token.
    """
    source = tokens(getattr(config, "encoder", config), generator)
    if name.endswith("SequenceClassification"):
        return with_eos(source, config)
    target = tokens(getattr(config, "decoder", config), generator, TARGET)
    if name.endswith("ConditionalGeneration"):
        return source | {"labels": target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)}
    return source | {f"decoder_{name}": value for name, value in target.items()}


def as_list(value: Any) -> list[Any]:
    """Wrap an id, or None, in a list unless it is one."""
    return value if isinstance(value, list) else [value]


def images(config: Any, generator: torch.Generator, name: str) -> dict[str, Tensor]:
    """Return random pixels, and for masked image modelling the masked patches."""
    size = config.image_size if isinstance(config.image_size, list | tuple) else [config.image_size] * 2
    inputs = {"pixel_values": torch.randn(BATCH, config.num_channels, *size, generator=generator)}
    if name.endswith("MaskedImageModeling"):
        count = (size[0] // config.patch_size) * (size[1] // config.patch_size)
        inputs["bool_masked_pos"] = torch.rand(BATCH, count, generator=generator) < 0.4
    return inputs


def padded_images(config: Any, generator: torch.Generator, name: str) -> dict[str, Tensor]:
    """Return random pixels of an odd size, padded at the right and below."""
    rows, columns, less = torch.arange(77)[:, None], torch.arange(101), torch.arange(BATCH)[:, None, None]
    mask = (rows < 77 - 9 * less) & (columns < 101 - 20 * less)
    pixels = torch.randn(BATCH, config.encoder.num_channels, 77, 101, generator=generator)
    return {"pixel_values": pixels * mask[:, None], "pixel_mask": mask.long()}


OTHERS = {
    "qkv_image_encoder": images,
    "qkv_audio_encoder": spectrograms,
    "qkv_speech_encoder_decoder": spectrograms,
    "qkv_detection": padded_images,
}


@torch.no_grad()
def probe_outputs(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return every tensor of the output at unpadded positions, by its name; hidden states by their layer."""
    output = flat_output(model(**cast_inputs(inputs, model), output_hidden_states=True))
    outputs: dict[str, Tensor] = {}
    for name in sorted(output, key=computation_order):
        values = output[name] if isinstance(output[name], tuple | list) else [output[name]]  # a cache is neither
        for index, tensor in enumerate(values):
            if isinstance(tensor, Tensor):
                key = layer_name(name, index) if "hidden_states" in name else name
                key = f"{name}.{index}" if name == "router_logits" else key
                outputs[key] = unpadded(name, tensor, inputs)
    return outputs


def cast_inputs(inputs: dict[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    """Return inputs with images and sound in the precision of the model."""
    return {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def flat_output(output: Any) -> dict[str, Any]:
    """Flatten an output; parts of nested outputs get a prefix."""
    parts: dict[str, Any] = {}
    for name, value in output.items():
        inner = value if isinstance(value, dict) else {}
        parts |= {f"{name.removesuffix('output')}{key}": item for key, item in inner.items()} or {name: value}
    return parts


def computation_order(name: str) -> tuple[bool, bool, str]:
    """Return a sort key in the order of computation: encoder, decoder, head."""
    return "hidden_states" not in name, not name.startswith("encoder"), name


def layer_name(name: str, index: int) -> str:
    """Return the name of the module that computes a hidden state."""
    part = name.removesuffix("hidden_states").replace("_", ".")
    return f"{part}layers.{index - 1}" if index else f"{part}embedding"


def unpadded(name: str, value: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """Return an output at its unpadded positions."""
    mask = inputs.get("attention_mask")
    if name == "router_logits" and mask is not None:  # (B * T, experts)
        return value[mask.flatten().bool()]
    if not name.startswith("encoder"):
        mask = inputs["labels"] != -100 if "labels" in inputs else inputs.get("decoder_attention_mask", mask)
    if mask is None:
        return value
    if name.startswith("encoder") and "input_features" in inputs:
        mask = mask[:, :: ceil(mask.shape[1] / value.shape[1])]  # convolutions keep every n-th frame
    mask = mask.flatten(0, -2).bool()
    return value[mask] if value.shape[:2] == mask.shape else value


@torch.no_grad()
def generate(model: Any, inputs: dict[str, Tensor], beams: int) -> Tensor:
    """Generate tokens from the inputs; a decoder continues unpadded prompts."""
    if model.config.is_encoder_decoder:
        names = ("input_ids", "input_features", "attention_mask", "global_attention_mask")
        given = cast_inputs({name: inputs[name] for name in names if name in inputs}, model)
    else:
        given = {"input_ids": inputs["input_ids"][:1, : LENGTH // 2]}
        given["attention_mask"] = torch.ones_like(given["input_ids"])
    # A copy, for a dynamic rope of transformers remembers the longest text it has seen.
    tokens: Tensor = copy.deepcopy(model).generate(**given, max_new_tokens=NEW, num_beams=beams, do_sample=False)
    return tokens
