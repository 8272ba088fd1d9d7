"""Our families conform: every head and kind at its tiny configuration fails no check."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qkv.scripts.conformance.report import WRONG, conform
from tiny import CASES, Case

TEXT = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "decoder_attention_mask")
LABELS = ("labels", "start_positions", "end_positions", "next_sentence_label", "return_loss", "distance_bins")
# Weights that are no probabilities are documented.
EXPECTED = {
    "DecoderForCausalLM-linear": {"recorded": "rotated features have signed weights"},
    "DecoderForCausalLM-deltanet": {"recorded": "kernel='gated_delta' refuses output_attentions"},
}


def inputs_of(case: Case) -> Callable[[int, int, int], dict[str, Tensor]] | None:
    """Inputs of other modalities than one text: those of the case, moved by the seed; None where the kit makes them."""
    if "MultipleChoice" in case.name or set(case.inputs()) <= {*TEXT, *LABELS}:
        return None

    def make(rows: int, length: int, seed: int) -> dict[str, Tensor]:
        generator, made = torch.Generator().manual_seed(seed), {}
        for name, value in case.inputs().items():
            if name in LABELS or name.startswith("decoder"):
                continue
            value = torch.cat([value] * rows)[:rows]
            if value.is_floating_point():
                value = value + 0.3 * torch.randn(value.shape, generator=generator)
            elif name.endswith("ids") and value.max() > 4:
                other = torch.randint(5, 55, value.shape, generator=generator)
                value = torch.where(value > 4, other, value)
            made[name] = value
        if case.name.startswith("SpeechEncoderDecoder"):
            made["decoder_input_ids"] = torch.randint(5, 55, (rows, length), generator=generator)
        return made

    return make


def failures(case: Case, *only: str) -> dict[str, str]:
    options = {"inputs": inputs_of(case), "expected": EXPECTED.get(case.name, {}) if not only else {}}
    report = conform(case.model_class, case.config(), only=only, **options)
    return {row.check: f"{row.status} {row.reason}" for row in report.rows if row.status in WRONG}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_family_conforms(case: Case) -> None:
    assert failures(case) == {}


@pytest.mark.parametrize("check", ["causal", "padding", "cache_chunks", "accumulation"])
def test_a_decoder_conforms(check: str) -> None:
    case = next(case for case in CASES if case.name == "DecoderForCausalLM-llama")
    assert failures(case, check) == {}
