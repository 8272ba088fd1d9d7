"""Fine-tuning is the same here and there: one seed, the same data and optimizer, the same losses step by step."""

import re

import pytest
import torch
from test_parity import double
from transformers import PreTrainedModel

from families import FAMILIES, variant
from families.base import Row
from qkv.modeling.conversion.convert import from_transformers
from sampling import sampled

STEPS, FURTHEST = 20, 1e-9
NO_DROPOUT = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "llama": ("attention_dropout",),
    "gpt2": ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    "t5": ("dropout_rate",),
    "vit": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    **dict.fromkeys(("speech_to_text", "whisper", "detr"), ("dropout", "attention_dropout", "activation_dropout")),
}
# What one side does not train, and then neither does.
FIXED = {"whisper": r"encoder\.(embed_positions|position)\.", "detr": "backbone"}
ROWS = [
    variant(model_type, head, "", **dict.fromkeys(NO_DROPOUT[model_type], 0.0))
    for model_type, head in (
        ("bert", "ForSequenceClassification"),
        ("gpt2", "LMHeadModel"),
        ("llama", "ForCausalLM"),
        ("t5", "ForConditionalGeneration"),
        ("vit", "ForImageClassification"),
        ("speech_to_text", "ForConditionalGeneration"),
        ("whisper", "ForConditionalGeneration"),
        ("detr", "ForObjectDetection"),
    )
]
STILL = {"attention_dropout": 0.0}
CLIP = {part: {**FAMILIES["clip"].config[part], **STILL} for part in ("text_config", "vision_config")}
PAIRS = variant("clip", "Model", "", **CLIP)


def losses(model: PreTrainedModel, row: Row, *, ours: bool) -> list[float]:
    """Of a fine-tuning in training mode: AdamW with decay, clipped gradients, a rate that falls."""
    for name, parameter in model.train().named_parameters():
        parameter.requires_grad_(not re.search(FIXED.get(row.family.model_type, " "), name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS)
    found = []
    for _ in range(STEPS):
        loss = model(**row.placed(row.inputs("right"), ours=ours)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("row", [*ROWS[:-3], *sampled([PAIRS, *ROWS[-3:]], 4)], ids=str)
def test_losses_are_equal_at_every_step(row: Row) -> None:
    with double():
        official = row.build()
        ours = from_transformers(official)
        theirs, mine = losses(official, row, ours=False), losses(ours, row, ours=True)
    assert max(abs(one - other) for one, other in zip(theirs, mine, strict=True)) <= FURTHEST
    assert theirs[-1] < 0.9 * theirs[0]  # something was learned, so the weights were compared too


def test_another_rate_shows() -> None:
    """The negative control: a curve that differs by little is told apart."""
    row = ROWS[0]
    with double():
        official = row.build()
        ours = from_transformers(official)
        ours.config.norm_eps = 1e-3
        wrong = type(ours)(ours.config).double()
        wrong.load_state_dict(ours.state_dict())
        theirs, mine = losses(official, row, ours=False), losses(wrong, row, ours=True)
    assert max(abs(one - other) for one, other in zip(theirs, mine, strict=True)) > 1e3 * FURTHEST
