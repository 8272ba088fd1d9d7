"""Steps of generation, and copies of weights: the tokens and scores of plans and layers as they are.

The other way computes each step with the plain plan and no module stands in for another.
"""

import copy
import gc
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import CompileConfig, DynamicCache, PreTrainedModel, StaticCache

import tiny
from qkv.configuration.axes import ActivationName, NormPositionName, PatternName, PositionName, QueryKeyNormName
from qkv.modeling import (
    QkvDecoderForCausalLM,
    QkvEncoderDecoderForConditionalGeneration,
    QkvSpeechEncoderDecoderForSpeechSeq2Seq,
    execution,
)
from qkv.modeling.context import LayerContext
from qkv.modeling.execution import stand_ins
from qkv.modeling.fast_paths import layer_step
from qkv.modeling.fast_paths.layer_step import layer_steps
from qkv.modeling.fast_paths.stack_step import StackStep
from qkv.modeling.fast_paths.weight_copies import COPIES, PACKED_ROWS, PATIENCE, WIDE, LinearStep, product_of
from qkv.modeling.layer import Layer
from qkv.modeling.position.hooks import Position
from sampling import sampled

pytestmark = pytest.mark.upstream

STEPS = 7
IDS = torch.randint(4, tiny.VOCABULARY, (5, 6), generator=torch.Generator().manual_seed(0))
LEFT = (torch.arange(6) >= torch.tensor([[0], [2], [1], [0], [5]])).long()
MASKS = {"no padding": None, "padding": LEFT}
REACH = {"sliding_window": 4, "block_size": 2, "fixed_columns": 1, "text_length": 3}
MADE = {
    **dict.fromkeys(tiny.KINDS["decoder"], (QkvDecoderForCausalLM, tiny.decoder)),
    **dict.fromkeys(tiny.KINDS["encoder_decoder"], (QkvEncoderDecoderForConditionalGeneration, tiny.encoder_decoder)),
}


def build(kind: str = "gpt2", **fields: Any) -> PreTrainedModel:
    """A model whose head has so many outputs that one row reads a transposed copy of it."""
    model_class, config = MADE[kind]
    return model_class(config(kind, **{"vocab_size": 300, **fields})).eval()


@contextmanager
def steps_taken() -> Iterator[list[int]]:
    """The rows of each step that took the short way."""
    rows, run = [], StackStep.run

    def counted(self: StackStep, ids: Tensor, *given: Any) -> Tensor:
        rows.append(len(ids))
        return run(self, ids, *given)

    with mock.patch.object(StackStep, "run", counted):
        yield rows


def generated(model: PreTrainedModel, *, fast: bool = True, **inputs: Any) -> Any:
    model.lay_out_weights = fast
    wanted = {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": tiny.PAD, "eos_token_id": None}
    with mock.patch.object(execution, "PLANS", execution.PLANS if fast else []):
        return model.generate(max_new_tokens=STEPS, do_sample=False, **{**wanted, **inputs})


def copied_rows(model: PreTrainedModel) -> set[int]:
    return {COPIES[module].laid_out[0] for module in model.modules() if module in COPIES} - {0}


def assert_plain(model: PreTrainedModel, *, steps: int = STEPS - 1, **inputs: Any) -> None:
    """Equal tokens and scores, all but the first from short steps; the second time with the copies of the first."""
    plain = generated(model, fast=False, **inputs)
    for _ in range(2):
        with steps_taken() as rows:
            fast = generated(model, **inputs)
        assert torch.equal(fast.sequences, plain.sequences) and len(rows) == steps
        assert_close(fast.logits, plain.logits, rtol=1e-4, atol=1e-5)


BATCHES = [(1, None, 1), (5, LEFT, 1), (2, None, 3)]


@pytest.mark.parametrize(("kind", "batch"), sampled(itertools.product(MADE, BATCHES), 3))
def test_families(kind: str, batch: tuple[int, Tensor | None, int]) -> None:
    model, (rows, mask, beams) = build(kind), batch
    assert_plain(model, input_ids=IDS[:rows], attention_mask=mask, num_beams=beams)
    assert copied_rows(model) == {rows * beams}


def test_speech_and_beams_of_a_source() -> None:
    model = QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder()).eval()
    assert_plain(model, **tiny.audio(batch=2), num_beams=2, num_return_sequences=2)
    assert copied_rows(model) == {4}


# What a layer may be made of, beside what the families have.
PARTS: list[dict[str, Any]] = [
    *(
        {"parallel_residual": True},
        {"layer_scale": 0.1},
        {"feed_forward": "glu"},
        {"norm": "rms"},
        {"norm_bias": False},
    ),
    *({"query_key_norm": "head", "norm": word} for word in ("layer", "rms")),
    *({"query_key_norm": word, "position": "rope"} for word in get_args(QueryKeyNormName)),
    *({"norm_position": place, "norm": word} for place in get_args(NormPositionName) for word in ("layer", "rms")),
    *({"norm_gain": gain, "norm": word} for gain in ("zero_centered", "none") for word in ("layer", "rms")),
    *({"embedding_multiplier": 3.0, "residual_multiplier": 0.3, "logit_scale": 0.2},),
    *({"parallel_residual": "shared_norm"}, {"position": ["rope", "none"]}, {"position": ["none", "alibi"]}),
    *({"num_key_value_heads": 1}, {"attention_bias": ["q_proj", "v_proj"]}, {"embedding_norm": "instead"}),
    *(
        {"attention_bias": False, "position": "rope"},
        {"attention_multiplier": 0.3},
        {"attention_gate": True},
        {"attention_gate": "unbiased"},
    ),
    *({"hidden_act": word} for word in get_args(ActivationName)),
]
AXES = [{"position": word} for word in get_args(PositionName)] + [{"pattern": word} for word in get_args(PatternName)]


@pytest.mark.costly(22)
@pytest.mark.parametrize(
    ("fields", "mask"), [*itertools.product(AXES, MASKS), *((part, "padding") for part in PARTS)], ids=str
)
def test_positions_patterns_and_parts_of_layers(fields: dict[str, Any], mask: str) -> None:
    model = tiny.jitter(build(**{**REACH, **fields}))
    assert_plain(model, input_ids=IDS, attention_mask=MASKS[mask])


@pytest.mark.parametrize("position", ["learned", "rope"])
def test_bounded_scores_go_through_the_layers(position: str) -> None:
    model = tiny.jitter(build(attn_logit_softcapping=0.3, position=position))
    assert not layer_steps(model.config, model.model.layers, 1)
    assert_plain(model, steps=0, input_ids=IDS, attention_mask=MASKS["padding"])


def test_a_head_with_a_transform_and_a_bound() -> None:
    model = tiny.jitter(build(final_logit_softcapping=2.0, lm_head_transform=True, logit_scale=3.0))
    assert_plain(model, input_ids=IDS, attention_mask=MASKS["padding"])


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("scale", [0, 1e-4, 1e4])
def test_norms_of_inputs_of_any_size(norm: str, scale: float) -> None:
    layer = Layer(tiny.decoder(norm=norm, norm_position="after"), 0).eval()
    (step,), hidden = layer_steps(layer.self_attn.config, [layer], 1), scale * torch.randn(3, 1, 32)
    contexts = [LayerContext(cache=DynamicCache(), backend="sdpa") for _ in range(2)]
    with torch.no_grad():
        assert_close(step(hidden[:, 0], contexts[0]), layer(hidden, contexts[1])[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["model", "model.layers.0", "model.layers.0.mlp.up_proj", "model.layers.0.self_attn"])
def test_a_subclass_of_a_part_computes_itself(part: str) -> None:
    model = build()
    module = model.get_submodule(part)
    own = type(module)

    class Halved(own):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = own.forward(self, *args, **kwargs)
            if isinstance(output, Tensor):
                return output / 2
            return (output[0] / 2, output[1]) if isinstance(output, tuple) else output

    module.__class__ = Halved
    assert_plain(model, steps=0 if part == "model" else STEPS - 1, input_ids=IDS)
    assert part == "model" or not layer_steps(model.config, model.model.layers, 1)


@pytest.mark.parametrize("multiplier", [None, 0.3])
def test_a_field_that_a_step_does_not_know_goes_through_the_layers(
    multiplier: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_step, "COMPUTED", layer_step.COMPUTED - {"attention_multiplier"})
    model = build(attention_multiplier=multiplier)
    assert bool(layer_steps(model.config, model.model.layers, 1)) == (multiplier is None)
    assert_plain(model, input_ids=IDS)


def test_static_caches() -> None:
    assert_plain(build("llama"), input_ids=IDS, cache_implementation="static", disable_compile=True)


def test_vectors_for_queries_and_keys_go_through_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Position, "query_key", lambda self, embedded: embedded.hidden.roll(1, dims=-1))
    assert_plain(build("llama"), input_ids=IDS)


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        (5, {"prompt_lookup_num_tokens": 2}),  # candidates of several tokens, of which the cache is cropped
        (0, {"output_hidden_states": True}),
        (0, {"output_attentions": True}),
    ],
    ids=str,
)
def test_options_that_take_the_long_way(steps: int, options: dict[str, Any]) -> None:
    model, ids = build("llama", vocab_size=tiny.VOCABULARY), IDS[:1].repeat(1, 2)
    assert_plain(model, steps=steps, input_ids=ids, **options)
    for name in (name for name in options if name.startswith("output_")):
        fast, plain = (generated(model, fast=fast, input_ids=ids, **options) for fast in (True, False))
        assert_close(*(each[name.removeprefix("output_")] for each in (fast, plain)), rtol=1e-4, atol=1e-5)


def test_hooks_backends_and_training_take_the_long_way() -> None:
    model, seen = build(), []
    handle = model.model.layers[1].mlp.register_forward_hook(lambda *_: seen.append(1))
    assert_plain(model, input_ids=IDS)  # but for the layer with the hook
    assert len(seen) == 3 * STEPS
    handle.remove()
    model.set_attn_implementation("eager")
    assert_plain(model, steps=0, input_ids=IDS)
    model.set_attn_implementation("sdpa")
    with steps_taken() as rows:
        generated(model.train(), input_ids=IDS)
    assert not rows


def test_a_call_that_records_leaves_the_short_way_open() -> None:
    model = build()
    model(IDS, output_hidden_states=True, output_attentions=True)
    assert any(module._forward_hooks for module in model.modules())
    assert layer_steps(model.config, [*model.model.layers], 1)
    assert_plain(model, input_ids=IDS)


def test_other_calls_take_the_long_way() -> None:
    model = build()
    first = model(IDS, use_cache=True)
    with steps_taken() as rows, stand_ins(model):
        model(IDS[:, :1], past_key_values=first.past_key_values)  # with gradients
        with torch.no_grad():
            model(IDS[:, :1])
            model(IDS[:, :2], past_key_values=first.past_key_values)
            model(inputs_embeds=model.model.embed_tokens(IDS[:, :1]), past_key_values=first.past_key_values)
            model(IDS[:, :1], past_key_values=StaticCache(model.config, max_cache_len=9))
    assert not rows
    recorded = build(output_hidden_states=True)
    cache = recorded(IDS).past_key_values
    with stand_ins(recorded), torch.no_grad():
        assert len(recorded(IDS[:, :1], past_key_values=cache).hidden_states) == 3


@pytest.mark.parametrize("position", ["learned", "rope", "t5", "kerple"])
@pytest.mark.parametrize("given", [None, [[6]], [[9], [30], [6], [7], [8]]], ids=str)
def test_a_step_without_a_mask_has_the_positions_of_one_with(given: Any, position: str) -> None:
    model, ones = tiny.jitter(build(position=position)).eval(), torch.ones(5, 7)
    outputs, placed = [], None if given is None else torch.tensor(given)
    with torch.no_grad():
        for plans, mask in ((execution.PLANS, None), (execution.PLANS, ones), ([], None)):
            cache = model(IDS, use_cache=True).past_key_values
            with mock.patch.object(execution, "PLANS", plans):
                output = model(IDS[:, :1], attention_mask=mask, position_ids=placed, past_key_values=cache)
            outputs.append(output.logits)
        for wrong, word in ((torch.ones(5, 8), "attention_mask"), (-ones, "attention_mask")):
            with pytest.raises(ValueError, match=word):
                model(IDS[:, :1], attention_mask=wrong, past_key_values=model(IDS, use_cache=True).past_key_values)
    assert_close(outputs[0], outputs[2], rtol=1e-4, atol=1e-5)
    assert_close(outputs[1], outputs[2], rtol=1e-4, atol=1e-5)


def test_too_long_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="max_position_embeddings=8"):
        generated(build(max_position_embeddings=8), input_ids=IDS)


# Copies of weights ----------------------------------------------------------------------------------------------------

MAPS = [
    *([nn.Linear(6, 12)], [nn.Linear(6, 100, bias=False)], [nn.Linear(12, 6)]),
    *([nn.Linear(6, 8), nn.Linear(6, 4, bias=False)], [nn.Linear(6, 3, bias=False) for _ in range(3)]),
]


@pytest.mark.parametrize(("linears", "rows", "wide"), [*itertools.product(MAPS, [1, 4, 64, 65], [1, WIDE])], ids=str)
def test_products_are_those_of_the_maps(linears: list[nn.Linear], rows: int, wide: int) -> None:
    owner, hidden = nn.ModuleList(linears), torch.randn(rows, linears[0].in_features)
    product = product_of(owner, linears, wide)
    with torch.no_grad():
        expected = torch.cat([linear(hidden) for linear in linears], -1)
        for _ in range(PATIENCE + 2):
            assert_close(product(hidden), expected, rtol=1e-5, atol=1e-6)
    outputs = sum(each.out_features for each in linears)
    copied = outputs >= wide * hidden.shape[1] if rows == 1 else rows in PACKED_ROWS
    assert bool(COPIES[owner].laid_out[1]) is copied


@pytest.mark.parametrize("shape", [(4, 1, 6), (2, 2, 6), (4, 6), (6,), (0, 3, 6)], ids=str)
def test_a_stand_in_takes_every_shape_and_gradients(shape: tuple[int, ...]) -> None:
    owner, hidden = nn.Linear(6, 100), torch.randn(shape)
    forward = LinearStep(owner, WIDE)
    with torch.no_grad():
        for _ in range(PATIENCE + 1):
            assert_close(forward(hidden), owner(hidden), rtol=1e-5, atol=1e-6)
    assert forward(hidden.requires_grad_()).requires_grad


def step(model: PreTrainedModel) -> PreTrainedModel:
    """One step of an optimizer."""
    model(IDS, labels=IDS).loss.backward()
    torch.optim.SGD(model.parameters(), lr=10.0).step()
    return model


def write_to_data(model: PreTrainedModel) -> PreTrainedModel:
    """As adapters are merged: no version tells of it."""
    for parameter in model.parameters():
        parameter.data.mul_(-1.5)
    return model


def write_one_number(model: PreTrainedModel) -> PreTrainedModel:
    model.model.layers[0].self_attn.q_proj.weight.data[3, 2] += 5
    return model


def load(model: PreTrainedModel) -> PreTrainedModel:
    torch.manual_seed(5)
    model.load_state_dict(build(tie_word_embeddings=model.config.tie_word_embeddings).state_dict())
    return model


def resize(model: PreTrainedModel) -> PreTrainedModel:
    model.resize_token_embeddings(310)
    return model


CHANGES: list[Callable[[PreTrainedModel], PreTrainedModel]] = [
    *(step, write_to_data, write_one_number, load, resize, copy.deepcopy),
    *(lambda model: write_to_data(copy.deepcopy(model)), lambda model: model.to(torch.float64).to(torch.float32)),
]


@pytest.mark.parametrize(("rows", "tied"), [(1, True), (4, False)])
@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_copies_follow_their_weights(change: Callable[..., PreTrainedModel], rows: int, *, tied: bool) -> None:
    model = build(tie_word_embeddings=tied)
    generated(model, input_ids=IDS[:rows])
    assert_plain(change(model), input_ids=IDS[:rows])


def test_other_precisions_have_no_copies() -> None:
    model = build()
    generated(model, input_ids=IDS)
    model = model.to(torch.bfloat16)
    assert torch.equal(*(generated(model, input_ids=IDS[:1], fast=fast).sequences for fast in (True, False)))
    generated(other := build().to(torch.bfloat16), input_ids=IDS)
    assert copied_rows(other) == set()


def test_a_model_is_what_it_was_after_generating(tmp_path: Path) -> None:
    model = build()
    names = {*model.state_dict()}
    modules = {name: set(vars(module)) for name, module in model.named_modules()}
    assert_plain(model, input_ids=IDS)
    with pytest.raises(ValueError):
        model.generate(IDS, max_new_tokens=-1)
    del model.lay_out_weights
    assert {name: set(vars(module)) for name, module in model.named_modules()} == modules
    assert {*model.state_dict()} == names
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert copied_rows(loaded) == set()
    assert_plain(loaded, input_ids=IDS)


def test_copies_live_as_long_as_their_model() -> None:
    gc.collect()
    model, before = build(), len(COPIES)
    generated(model, input_ids=IDS)
    assert len(COPIES) > before
    del model
    gc.collect()
    assert len(COPIES) <= before


@pytest.mark.parametrize(("kind", "rows"), sampled(itertools.product(["gpt2", "llama"], [1, 4]), 3))
@pytest.mark.costly(1)
def test_steps_that_generate_compiles_are_one_graph_for_all_calls(kind: str, rows: int) -> None:
    settings = CompileConfig(backend="eager", fullgraph=True)
    settings._compile_all_devices = True  # as on a GPU, where a static cache compiles by itself
    model, graphs = build(kind), []
    plain = generated(model, input_ids=IDS[:rows], fast=False)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for _ in range(2):
        options = {"cache_implementation": "static", "compile_config": settings}
        assert torch.equal(generated(model, input_ids=IDS[:rows], **options).sequences, plain.sequences)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs == [1, 1]


def test_hooks_and_forwards_of_linear_maps_are_called() -> None:
    model, seen = build(), []
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    own = model.model.layers[0].mlp.up_proj
    own.forward = lambda hidden: seen.append(hidden) or nn.functional.linear(hidden, own.weight, own.bias)
    generated(model, input_ids=IDS)
    assert len(seen) == 2 * STEPS and model.lm_head not in COPIES and own not in COPIES


@pytest.mark.parametrize("kind", ["gpt2", "mistral", "bart"])
def test_threads_may_generate_with_one_model(kind: str) -> None:
    model = build(kind)
    inputs = [IDS[:rows] for rows in (1, 4, 5, 4)]
    expected = [generated(model, input_ids=ids, fast=False).sequences for ids in inputs]
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda ids: generated(model, input_ids=ids).sequences, inputs * 3))
    assert all(map(torch.equal, actual, expected * 3))
