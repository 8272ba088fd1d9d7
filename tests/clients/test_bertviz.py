"""BertViz draws the attention of every kind of model."""

import json
import re
from collections.abc import Callable
from typing import Any

import client_models as models
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

bertviz = pytest.importorskip("bertviz", reason="`make clients` installs it", exc_type=ImportError)
IDS = torch.arange(10, 18)[None]
TARGETS = torch.arange(20, 26)[None]
VIEWS = ("head_view", "model_view")


def drawn(view: str, **given: Any) -> list[Tensor]:
    """The numbers that a page draws; they stand in its script."""
    page = getattr(bertviz, view)(**given, html_action="return").data
    (parameters,) = re.findall(r"const params = (\{.*\});", page)
    return [torch.tensor(each["attn"]) for each in json.loads(parameters)["attention"]]


def words(ids: Tensor) -> list[str]:
    return [models.LETTERS[index] for index in ids[0].tolist()]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_attention(kind: str, view: str, side_by_side: Callable[..., None]) -> None:
    @torch.no_grad()
    def draw(model: PreTrainedModel) -> list[Tensor]:
        attention = model(IDS, output_attentions=True).attentions
        found = drawn(view, attention=attention, tokens=words(IDS))
        torch.testing.assert_close(found[0], torch.cat(attention))
        return found

    both = models.both(kind, AutoModel, attn_implementation="eager")
    side_by_side("BertViz", view, draw, *both)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_attention_of_both_sides(kind: str, view: str, side_by_side: Callable[..., None]) -> None:
    @torch.no_grad()
    def draw(model: PreTrainedModel) -> list[Tensor]:
        outputs = model(input_ids=IDS, decoder_input_ids=TARGETS, output_attentions=True)
        sides = {f"{side}_attention": outputs[f"{side}_attentions"] for side in ("encoder", "decoder", "cross")}
        found = drawn(view, **sides, encoder_tokens=words(IDS), decoder_tokens=words(TARGETS))
        for drawing, attention in zip(found, sides.values(), strict=True):
            torch.testing.assert_close(drawing, torch.cat(attention))
        return found

    side_by_side("BertViz", f"{view} of both sides", draw, *models.both(kind, AutoModel, attn_implementation="eager"))
