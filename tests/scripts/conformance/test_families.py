"""Our families conform: every head at its tiny configuration fails no check."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qkv.scripts.conformance.report import WRONG, conform
from tiny import CASES, HEADS, PAD, Case

TEXT = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "decoder_attention_mask")
LABELS = ("labels", "start_positions", "end_positions", "next_sentence_label", "return_loss", "distance_bins")

# Pairs of modalities, detection, folding and recurrence need inputs that keep their own constraints.
KINDS = (
    "EncoderModel",
    "EncoderFor",
    "ImageEncoderFor",
    "DecoderModel",
    "DecoderFor",
    "EncoderDecoderForCond",
    "PairModel",
)
CHECKED = [case for case in HEADS if case.name.startswith((*KINDS, "EncoderDecoderEncoder", "AudioEncoderForCTC"))]


def inputs_of(case: Case) -> Callable[[int, int, int], dict[str, Tensor]] | None:
    """Inputs of other modalities than one text: those of the case, moved by the seed; None where the kit makes them."""
    if "MultipleChoice" in case.name or set(case.inputs()) <= {*TEXT, *LABELS}:
        return None

    def make(rows: int, length: int, seed: int) -> dict[str, Tensor]:
        found = {name: value for name, value in case.inputs().items() if name not in LABELS}
        generator = torch.Generator().manual_seed(seed)
        made = {}
        for name, value in found.items():
            value = torch.cat([value] * rows)[:rows]
            if value.is_floating_point():
                value = value + 0.3 * torch.randn(value.shape, generator=generator)
            elif name.endswith("ids") and value.max() > 4:
                other = torch.randint(5, 55, value.shape, generator=generator)
                value = torch.where(value > 4, other, value) if (value == PAD).any() else other
            made[name] = value
        return made

    return make


def failures(case: Case, *only: str) -> dict[str, str]:
    report = conform(case.model_class, case.config(), inputs=inputs_of(case), only=only)
    return {row.check: f"{row.status} {row.reason}" for row in report.rows if row.status in WRONG}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.name)
def test_family_conforms(case: Case) -> None:
    assert failures(case) == {}


@pytest.mark.parametrize("check", ["causal", "padding", "cache_chunks", "accumulation"])
def test_a_decoder_conforms(check: str) -> None:
    case = next(case for case in CASES if case.name == "DecoderForCausalLM-llama")
    assert failures(case, check) == {}
