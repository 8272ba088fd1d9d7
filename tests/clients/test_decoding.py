"""What transformers' generate does beside one token after the other: drafts by a model or the prompt, streams."""

from collections.abc import Callable

import client_models as models
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

PROMPT = torch.arange(10, 22).repeat(2)[None]
SETTINGS = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False, "pad_token_id": 1}
DRAFTS = {"a smaller model": {}, "the prompt": {"prompt_lookup_num_tokens": 3}}


class Collected(BaseStreamer):
    """Tokens in the order in which they came."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def put(self, value: Tensor) -> None:
        self.tokens += value.flatten().tolist()

    def end(self) -> None:
        self.tokens.append(-1)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_drafts(kind: str, draft: str, side_by_side: Callable[..., None]) -> None:
    def write(model: PreTrainedModel) -> Tensor:
        helper = dict(DRAFTS[draft])
        if draft == "a smaller model":
            ours = type(model).__name__.startswith("Qkv")
            helper["assistant_model"] = models.both("llama", AutoModelForCausalLM, num_hidden_layers=1)[not ours]
        text = model.generate(PROMPT, **SETTINGS, **helper)
        assert torch.equal(text, model.generate(PROMPT, **SETTINGS))
        return text

    side_by_side("generate", f"drafts of {draft}", write, *models.both(kind, AutoModelForCausalLM))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_streams(kind: str, side_by_side: Callable[..., None]) -> None:
    def write(model: PreTrainedModel) -> list[int]:
        streamer = Collected()
        text = model.generate(PROMPT, streamer=streamer, **SETTINGS)
        assert streamer.tokens == [*text[0].tolist(), -1]
        return streamer.tokens

    side_by_side("generate", "a stream of tokens", write, *models.both(kind, AutoModelForCausalLM))
