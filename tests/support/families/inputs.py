"""What each head of an official model is fed: functions of the side on which rows are padded, or "none"."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BATCH, LENGTH, VOCABULARY, LABELS = 3, 9, 61, 3
PAD, START, END = 1, 2, 3


def tokens(seed: int = 1, *, length: int = LENGTH, side: str = "right") -> dict[str, Tensor]:
    """Rows of random tokens, none special; all but the first padded, more and more, on one side or on none."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (BATCH, length), generator=generator)
    mask = (torch.arange(length) < length - 2 * torch.arange(BATCH)[:, None]).long()
    mask = {"right": mask, "left": mask.flip(-1), "none": torch.ones_like(mask)}[side]
    return {"input_ids": ids.where(mask.bool(), torch.tensor(PAD)), "attention_mask": mask}


def positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def labelled(inputs: dict[str, Tensor]) -> Tensor:
    """A label for some of the real tokens."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, LABELS, inputs["input_ids"].shape, generator=generator)
    due = inputs["attention_mask"].bool() & (torch.arange(labels.shape[-1]) % 2 == 0)
    return labels.where(due, torch.tensor(-100))


def text(side: str) -> dict[str, Tensor]:
    return tokens(side=side)


def segments(side: str) -> dict[str, Tensor]:
    inputs = tokens(side=side)
    return {**inputs, "token_type_ids": (torch.arange(LENGTH) > 4).long().expand(BATCH, -1)}


def token_labels(side: str) -> dict[str, Tensor]:
    inputs = tokens(side=side)
    return {**inputs, "labels": labelled(inputs)}


def next_token_labels(side: str) -> dict[str, Tensor]:
    """The same without a label where padding stands before it, from which theirs predicts and ours does not."""
    inputs = token_labels(side)
    after_padding = inputs["attention_mask"].diff(dim=-1, prepend=inputs["attention_mask"][:, :1]) == 1
    return {**inputs, "labels": inputs["labels"].masked_fill(after_padding, -100)}


def pretraining(side: str) -> dict[str, Tensor]:
    inputs = segments(side)
    return {**inputs, "labels": labelled(inputs), "next_sentence_label": torch.tensor([0, 1, 1])}


def replaced(side: str) -> dict[str, Tensor]:
    inputs = segments(side)
    return {**inputs, "labels": inputs["input_ids"] % 2}


def classes(side: str) -> dict[str, Tensor]:
    return {**tokens(side=side), "labels": torch.tensor([2, 0, 1])}


def spans(side: str) -> dict[str, Tensor]:
    """With a loss where there is no padding: in theirs it takes part, in ours no answer lies there."""
    inputs = tokens(side=side)
    marks = {"start_positions": torch.tensor([1, 0, 30]), "end_positions": torch.tensor([4, 2, 3])}
    return {**inputs, **(marks if side == "none" else {}), "position_ids": positions(inputs["attention_mask"])}


def choices(side: str) -> dict[str, Tensor]:
    inputs = tokens(side=side)
    stacked = {name: torch.stack((value, value.flip(0)), 1) for name, value in inputs.items()}
    return {**stacked, "labels": torch.tensor([0, 1, 1])}


def translation(side: str) -> dict[str, Tensor]:
    """A source padded on either side, a target padded on the right."""
    target = tokens(2, length=7)
    decoder = {"decoder_input_ids": target["input_ids"], "decoder_attention_mask": target["attention_mask"]}
    return {**tokens(side=side), **decoder}


def translation_labels(side: str) -> dict[str, Tensor]:
    target = tokens(2, length=7)
    labels = target["input_ids"].where(target["attention_mask"].bool(), torch.tensor(-100))
    return {**tokens(side=side), "labels": labels}


def sentences(side: str) -> dict[str, Tensor]:
    """Each text ends with the end-of-sequence token, and has a class."""
    inputs = tokens(side=side)
    last = (inputs["attention_mask"] * torch.arange(LENGTH)).argmax(-1, keepdim=True)
    return {**inputs, "input_ids": inputs["input_ids"].scatter(1, last, END), "labels": torch.tensor([2, 0, 1])}


def answers(side: str) -> dict[str, Tensor]:
    """Spans for a model whose positions cannot be told."""
    return {name: value for name, value in spans(side).items() if name != "position_ids"}


def masked_translation_labels(side: str) -> dict[str, Tensor]:
    """For a model that numbers padding of its own accord: what is read of the target is told as well."""
    inputs = translation_labels(side)
    return {**inputs, "decoder_attention_mask": (inputs["labels"] != -100).long()}


def with_global_tokens(make: Callable[[str], dict[str, Tensor]]) -> Callable[[str], dict[str, Tensor]]:
    """Add marks at odd places, none in the second row, some of them at padding; a text that is classified begins with one."""

    def made(side: str) -> dict[str, Tensor]:
        inputs = make(side)
        marks = inputs["input_ids"] % 4 == 1
        marks[1] = False
        if inputs.get("labels", marks).ndim == 1 == marks.ndim - 1:
            marks[:, 0] = True
        return {**inputs, "global_attention_mask": marks.long()}

    return made


global_segments, global_token_labels, global_classes, global_spans, global_choices = map(
    with_global_tokens, (segments, token_labels, classes, spans, choices)
)
global_translation, global_translation_labels, global_answers = map(
    with_global_tokens, (translation, translation_labels, answers)
)


def images(side: str) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(BATCH, 3, 12, 12, generator=torch.Generator().manual_seed(1))}


def image_labels(side: str) -> dict[str, Tensor]:
    return {**images(side), "labels": torch.tensor([2, 0, 1])}


def oblong_labels(side: str) -> dict[str, Tensor]:
    """Images of another size and shape than the config's."""
    pixels = torch.randn(BATCH, 3, 12, 20, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": pixels, "labels": torch.tensor([2, 0, 1])}


def masked_patches(side: str) -> dict[str, Tensor]:
    return {**images(side), "bool_masked_pos": torch.arange(BATCH * 9).view(BATCH, 9) % 3 == 0}


def oblong_patches(side: str) -> dict[str, Tensor]:
    """The same of images of another size, some of whose patches are masked."""
    pixels = oblong_labels(side)["pixel_values"]
    return {"pixel_values": pixels, "bool_masked_pos": torch.arange(BATCH * 15).view(BATCH, 15) % 4 == 0}


def sound(side: str, *, length: int = 23, bins: int = 10) -> dict[str, Tensor]:
    """Spectrograms of odd length, all but the first padded at the end, more and more."""
    features = torch.randn(BATCH, length, bins, generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(length) < length - 5 * torch.arange(BATCH)[:, None]).long()
    mask = mask if side == "right" else torch.ones_like(mask)
    return {"input_features": features * mask[..., None], "attention_mask": mask}


def recognition(side: str) -> dict[str, Tensor]:
    return {**sound(side), **{name: value for name, value in translation("none").items() if "decoder" in name}}


def recognition_labels(side: str) -> dict[str, Tensor]:
    """For a model that numbers padding of its own accord: what is read of the target is told as well."""
    inputs = masked_translation_labels("none")
    return {**sound(side), **{name: inputs[name] for name in ("labels", "decoder_attention_mask")}}


def window(side: str) -> dict[str, Tensor]:
    """As long as the encoder reads, bins before frames; padding is silence like any other."""
    inputs = sound(side, length=22)
    return {**inputs, "input_features": inputs["input_features"].transpose(1, 2)}


def window_words(side: str) -> dict[str, Tensor]:
    return {**recognition(side), **window(side)}


def window_labels(side: str) -> dict[str, Tensor]:
    return {**window(side), "labels": translation_labels("none")["labels"]}


def texts(side: str) -> dict[str, Tensor]:
    return {name: value for name, value in sentences(side).items() if name != "labels"}


def captions(side: str) -> dict[str, Tensor]:
    return {**texts(side), **images(side), "return_loss": torch.tensor(True)}


def pictures(side: str) -> dict[str, Tensor]:
    """Images of an odd size; all but the first padded at the right and below, more and more."""
    pixels = torch.randn(BATCH, 3, 61, 83, generator=torch.Generator().manual_seed(1))
    if side == "none":
        return {"pixel_values": pixels}
    rows, columns, less = torch.arange(61)[:, None], torch.arange(83), torch.arange(BATCH)[:, None, None]
    mask = ((rows < 61 - 11 * less) & (columns < 83 - 20 * less)).long()
    return {"pixel_values": pixels * mask[:, None], "pixel_mask": mask}


def objects(side: str) -> dict[str, Any]:
    """None in the last image."""
    generator = torch.Generator().manual_seed(2)
    labels = [
        {"class_labels": torch.arange(count) % LABELS, "boxes": torch.rand(count, 4, generator=generator) / 2 + 0.1}
        for count in (3, 1, 0)
    ]
    return {**pictures(side), "labels": labels}
