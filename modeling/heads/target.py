"""Targets of encoder-decoders: decoder inputs made from labels, or from the text itself.

Shapes: B batch, T targets.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from ...configuration.configuration_base import QkvConfig
from ..base import QkvPreTrainedModel
from ..checks.inputs import can_read_values
from .head import last_token
from .loss import IGNORED, due_labels, real_places


def are_missing(inputs: Mapping[str, object], *names: str) -> bool:
    """Return True where none of these inputs was given."""
    return all(inputs.get(name) is None for name in names)


def shift_right(ids: Tensor, config: QkvConfig, real: Tensor | None = None) -> Tensor:
    """Shift tokens right to make decoder inputs, (B, T) -> (B, T): a start token, then all but the last.

    It stands at the first `real` token (B, T), by default the first that is not -100; padding is in front of it.
    """
    begun = after_padding(ids != IGNORED if real is None else real)
    ids = ids.masked_fill(ids == IGNORED, config.pad_token_id)
    start = ids.new_full((ids.shape[0], 1), config.decoder_start_token_id)
    if config.start_with_last_token:
        start = last_token(ids[..., None], ids != config.pad_token_id)
    first = begun & ~F.pad(begun[:, :-1], (1, 0))
    return torch.where(first, start, F.pad(ids[:, :-1], (1, 0)).where(begun, config.pad_token_id or 0))


def after_padding(real: Tensor) -> Tensor:
    """Return which places are behind padding in front of a row (B, T), all where a row has no real token."""
    return real.cummax(1).values | ~real.any(1, keepdim=True)


class LabelledTarget(QkvPreTrainedModel):
    """Make decoder inputs from labels (B, T), which are -100 at padding."""

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Call `shift_right`, under the name that `DataCollatorForSeq2Seq` calls, which makes no mask."""
        if can_read_values(labels) and not bool(after_padding(labels != IGNORED).all()):
            raise ValueError("labels have -100 in front of a row; pad them on the right, or let the model shift them")
        return shift_right(labels, self.config)

    def with_target(self, labels: Tensor, inputs: dict[str, object], *, cut: bool = False) -> Tensor | None:
        """Return labels that are no padding, after adding decoder inputs where they are missing.

        They have a mask if padding stands in front, or to end rows at their last label (`cut`).
        """
        if are_missing(inputs, "decoder_input_ids", "decoder_inputs_embeds"):
            inputs["decoder_input_ids"], real = shift_right(labels, self.config), labels != IGNORED
            mask = after_padding(real) & (real.flip(1).cummax(1).values.flip(1) if cut else True)
            due = cut or not can_read_values(mask) or not bool(mask.all())
            if due and are_missing(inputs, "decoder_attention_mask", "past_key_values"):
                inputs["decoder_attention_mask"] = mask
        return due_labels(labels, real_places(inputs.get("decoder_attention_mask"), labels))
