"""Attention for the page: the model's own weights, on the right tokens and patches."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from qkv.scripts.prediction.source import open_source
from qkv.scripts.web_demo.attention import MOST_SHOWN, attention, grid_of
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
