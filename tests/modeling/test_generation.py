"""A release of transformers that renames arguments of `generate` ends in an error or in equal tokens, never in others."""

import inspect
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.generation import utils

import tiny
from qkv.modeling.checks.keywords import CACHE
from qkv.modeling.generation import cached_tokens
from speaking import build

pytestmark = pytest.mark.upstream

KINDS = ["gpt2", "linear", "bart", "rnnsearch"]
NAMES = [
    *(CACHE, "input_ids", "attention_mask", "position_ids", "inputs_embeds", "use_cache", "logits_to_keep"),
    *("decoder_input_ids", "decoder_attention_mask", "encoder_outputs", "is_first_iteration", "next_sequence_length"),
]
METHODS = {
    name: inspect.getsource(method) for name, method in vars(GenerationMixin).items() if inspect.isroutine(method)
}
PROMPTS = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])


def renamed(name: str, sources: dict[str, str]) -> dict[str, str]:
    """The methods that mention an argument, with another name for it."""
    changed = {method: re.sub(rf"\b{name}\b", f"renamed_{name}", source) for method, source in sources.items()}
    return {method: source for method, source in changed.items() if source != sources[method]}


def patch(monkeypatch: pytest.MonkeyPatch, methods: dict[str, str]) -> None:
    """Let methods of `generate` be those of another source."""
    namespace: dict[str, Any] = dict(vars(utils))
    for name, source in methods.items():
        exec(compile(f"class Patched:\n{source}", utils.__file__, "exec"), namespace)
        monkeypatch.setattr(GenerationMixin, name, vars(namespace["Patched"])[name])


def tokens(model: PreTrainedModel) -> Tensor | Exception:
    """The tokens of greedy decoding, or the error that it ends in."""
    try:
        return model.generate(PROMPTS, max_new_tokens=4, do_sample=False, pad_token_id=tiny.PAD)
    except Exception as error:  # whichever it is
        return error


@pytest.mark.parametrize("kind", KINDS)
def test_renamed_arguments_never_give_other_tokens(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(kind)
    expected = tokens(model)
    assert isinstance(expected, Tensor) and len(expected.unique()) > 3
    outcomes: dict[tuple[str, str], Tensor | Exception] = {}
    for name in NAMES:
        changed = renamed(name, METHODS)
        inputs = {method: source for method, source in changed.items() if method == "prepare_inputs_for_generation"}
        for place, methods in (("everywhere", changed), ("inputs", inputs)):
            with monkeypatch.context() as patched:
                patch(patched, methods)
                outcomes[name, place] = tokens(model)
    others = [
        case for case, found in outcomes.items() if isinstance(found, Tensor) and not torch.equal(found, expected)
    ]
    assert others == []
    # A recurrent model makes its cache itself, and so finds it.
    assert isinstance(outcomes[CACHE, "everywhere"], Tensor if kind == "rnnsearch" else TypeError)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_its_cache_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, handed = METHODS["prepare_inputs_for_generation"], f'model_inputs["{CACHE}"] = {CACHE}'
    assert handed in source
    patch(monkeypatch, {"prepare_inputs_for_generation": source.replace(handed, "pass")})
    assert isinstance(tokens(build(kind)), RuntimeError)


def test_a_stage_of_a_pipeline_counts_the_tokens_of_its_layers() -> None:
    cache = DynamicCache()
    assert cached_tokens(cache) == 0
    cache.update(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2), 1)
    assert cached_tokens(cache) == 5
