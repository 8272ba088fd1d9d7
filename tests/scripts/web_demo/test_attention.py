"""Attention for the page: the model's own weights, on the right tokens and patches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    SwinConfig,
    SwinModel,
)

from qkv.scripts.prediction.source import open_source
from qkv.scripts.web_demo.attention import MOST_SHOWN, attention, grid_of, layer_weights, over_time, stacks_of
from qkv.scripts.web_demo.forward_inputs import Read
from qkv.scripts.web_demo.requests import RefusedError
from web_demo import client

Runs = Callable[[str], Path]


def test_weights_are_those_of_the_model(run_of: Runs) -> None:
    run, text = run_of("classes"), "warm dull façade"
    map = attention(open_source(str(run)), {"text": text, "head": 1})
    model = AutoModelForSequenceClassification.from_pretrained(run, attn_implementation="eager")
    tokens = AutoTokenizer.from_pretrained(run)(text, return_tensors="pt")
    with torch.no_grad():
        weights = model(**tokens, output_attentions=True).attentions[-1][0, 1]
    assert torch.allclose(torch.tensor(map["weights"]), weights, atol=1e-5)
    assert map["rows"] == map["columns"] and len(map["rows"]) == tokens["input_ids"].shape[1]
    assert "".join(map["rows"]).replace(" ", "").find("façade") >= 0


def test_a_long_text_is_shown_in_part(run_of: Runs) -> None:
    map = attention(open_source(str(run_of("classes"))), {"text": "warm dull " * 500})
    assert len(map["rows"]) <= MOST_SHOWN
    assert len(map["rows"]) < MOST_SHOWN or map["note"].startswith(f"the first {MOST_SHOWN} of ")


def test_what_was_written_is_read_after_the_prompt(run_of: Runs) -> None:
    map = attention(open_source(str(run_of("texts"))), {"text": "warm", "written": " dull"})
    alone = attention(open_source(str(run_of("texts"))), {"text": "warm", "written": ""})
    assert len(map["rows"]) > len(alone["rows"])
    assert all(weight == 0 for row, own in enumerate(map["weights"]) for weight in own[row + 1 :])  # causal


def test_the_model_runs_as_before(run_of: Runs, runs_folder: Path) -> None:
    source = open_source(str(run_of("images")))
    before = source.model.config._attn_implementation
    map = attention(source, client.request_of("images", runs_folder / "data-images"))
    assert source.model.config._attn_implementation == before != "eager"
    assert map["grid"] == [2, 2] and map["picture"].startswith("data:image/png;base64,")
    assert map["rows"][0] in ("class token", "all patches") and map["rows"][1:] == [f"patch {i + 1}" for i in range(4)]


class Patches:
    """A config with patches of 4 pixels."""

    patch_size = 4


@pytest.mark.parametrize(
    ("config", "count", "grid"),
    [
        (Patches(), 6, (2, 3, 0)),
        (Patches(), 7, (2, 3, 1)),
        (Patches(), 13, None),
        (object(), 24, (4, 6, 0)),
        (object(), 25, None),
    ],
)
def test_the_grid_of_an_image(config: object, count: int, grid: tuple[int, int, int] | None) -> None:
    assert grid_of(config, torch.zeros(3, 8, 12), count) == grid


def test_moments_of_a_recording_are_summed() -> None:
    weights = torch.rand(1500, 1500).softmax(-1)
    read = Read({}, {"decoder": ["a", "b"]}, seconds=30.0)
    whole = over_time(read, "encoder", weights)
    assert len(whole["weights"]) == len(whole["columns"]) == MOST_SHOWN and whole["seconds"] == 30
    assert whole["rows"][0] == "0.12 s" and whole["rows"][-1] == "29.88 s"
    assert all(abs(sum(row) - 1) < 1e-2 for row in whole["weights"])
    first = [place for place in range(1500) if place * MOST_SHOWN // 1500 == 0]
    cross = over_time(read, "cross", weights[:2])
    assert cross["rows"] == ["a", "b"]
    assert cross["weights"][1][0] == pytest.approx(float(weights[1, first].sum()), abs=1e-5)
    few = over_time(read, "cross", weights[:2, :5])
    assert torch.allclose(torch.tensor(few["weights"]), weights[:2, :5], atol=1e-5)


def test_weights_of_windows_are_not_shown() -> None:
    sizes: dict[str, Any] = {"embed_dim": 8, "depths": [1], "num_heads": [2], "window_size": 2}
    model = SwinModel(SwinConfig(image_size=16, patch_size=4, **sizes)).eval()
    with pytest.raises(RefusedError, match="SwinModel attends within windows"):
        layer_weights(model, {"pixel_values": torch.rand(1, 3, 16, 16)}, "encoder", 0)


def test_stacks_are_offered_in_order(run_of: Runs) -> None:
    assert stacks_of(open_source(str(run_of("classes"))).model).keys() == {"self"}
    sizes = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    bart = BartForConditionalGeneration(BartConfig(vocab_size=9, d_model=8, **sizes))
    assert stacks_of(bart) == {"cross": ("cross", 2), "decoder": ("decoder", 2), "encoder": ("encoder", 2)}
