"""Our families conform: every head and kind at its tiny configuration fails no check."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qkv.scripts.conformance.report import CHECKS, WRONG, conform
from sampling import SEED
from tiny import CASES, Case

pytestmark = pytest.mark.upstream

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
            # States of padding are not alike by backend, and the kit compares all.
            value = torch.ones_like(value) if name == "attention_mask" else value
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
    options = {"inputs": inputs_of(case), "expected": EXPECTED.get(case.name, {})}
    report = conform(case.model_class, case.config(), only=only, **options)
    return {row.check: f"{row.status} {row.reason}" for row in report.rows if row.status in WRONG}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_family_conforms(case: Case) -> None:
    assert failures(case) == {}


# Compilers take seconds.
PAIRS = [(case, check) for case in CASES for check in CHECKS if check not in ("compiled", "exported")]
DRAWN = random.Random(f"{SEED} conform").sample(PAIRS, 48)


@pytest.mark.parametrize(("case", "check"), DRAWN, ids=lambda value: getattr(value, "name", value))
def test_family_passes_a_drawn_check(case: Case, check: str) -> None:
    assert failures(case, check) == {}
