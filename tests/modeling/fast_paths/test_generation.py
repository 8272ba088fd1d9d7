"""Faster generation: the numbers of the plain path, whatever happens to the weights before, between and after."""

import copy
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import CompileConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer

import tiny
from qkv.modeling import (
    QkvDecoderForCausalLM,
    QkvEncoderDecoderForConditionalGeneration,
    QkvSpeechEncoderDecoderForSpeechSeq2Seq,
)
from qkv.modeling.execution import stand_ins as short_forwards
from qkv.modeling.fast_paths.weight_copies import COPIES, PATIENCE
from qkv.modeling.kernels.growing_cache import GrowingLayer, SourceLayer

pytestmark = pytest.mark.upstream

STEPS = 8
# The head has enough outputs for its inputs that one row reads a transposed copy.
WIDE = {"vocab_size": 300}
TEXT_DECODERS = list(tiny.KINDS["decoder"])


def decoder(kind: str = "gpt2", **fields: Any) -> PreTrainedModel:
    return QkvDecoderForCausalLM(tiny.decoder(kind, **{**WIDE, **fields})).eval()


def prompts(rows: int, length: int = 5) -> Tensor:
    return torch.randint(4, tiny.VOCABULARY, (rows, length))


def generated(model: PreTrainedModel, inputs: Tensor, *, fast: bool, **options: Any) -> Any:
    model.lay_out_weights = fast
    wanted = {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": tiny.PAD, "eos_token_id": None}
    return model.generate(inputs, max_new_tokens=STEPS, do_sample=False, **{**wanted, **options})


def assert_plain(model: PreTrainedModel, inputs: Tensor, **options: Any) -> None:
    """What is generated from copies, the second time with those of the first, is what is generated without."""
    plain = generated(model, inputs, fast=False, **options)
    for _ in range(2):
        fast = generated(model, inputs, fast=True, **options)
        assert torch.equal(fast.sequences, plain.sequences)
        assert_close(fast.logits, plain.logits, rtol=1e-4, atol=1e-5)


def copied_rows(model: PreTrainedModel) -> set[int]:
    return {COPIES[module].laid_out[0] for module in model.modules() if module in COPIES} - {0}


@torch.no_grad()
def test_a_prompt_in_chunks_reads_all_of_a_padded_source() -> None:
    model = QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder()).eval()
    inputs = {**tiny.text(length=7), "decoder_input_ids": prompts(2, 6)}
    whole = model.generate(**inputs, max_new_tokens=STEPS, do_sample=False)
    assert torch.equal(model.generate(**inputs, max_new_tokens=STEPS, do_sample=False, prefill_chunk_size=2), whole)


@pytest.mark.parametrize("kind", TEXT_DECODERS)
@pytest.mark.parametrize("options", [{"rows": 1}, {"rows": 5}, {"rows": 2, "num_beams": 3}], ids=str)
def test_decoders_generate_from_copies_as_without(kind: str, options: dict) -> None:
    model, options = decoder(kind), dict(options)
    inputs = prompts(options.pop("rows"))
    assert_plain(model, inputs, **options)
    assert copied_rows(model) == {len(inputs) * options.get("num_beams", 1)}


@pytest.mark.parametrize("options", [{}, {"num_beams": 4}], ids=str)
@pytest.mark.parametrize("kind", ["transformer", "t5"])
def test_encoder_decoders_generate_from_copies_as_without(kind: str, options: dict) -> None:
    model = QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder(kind)).eval()
    assert_plain(model, prompts(4), **options)
    assert copied_rows(model) == {4 * options.get("num_beams", 1)}


def test_speech_is_transcribed_from_copies_as_without() -> None:
    model = QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder()).eval()
    assert_plain(model, tiny.audio(batch=2)["input_features"], num_beams=2)
    assert copied_rows(model) == {4}


def test_a_batch_of_another_size_gets_copies_of_its_own() -> None:
    model = decoder()
    for rows in (1, 5, 1, 4):
        assert_plain(model, prompts(rows))
        assert COPIES[model.lm_head].laid_out[0] == rows


def step(model: PreTrainedModel) -> PreTrainedModel:
    """One step of an optimizer."""
    ids = prompts(2)
    model(ids, labels=ids).loss.backward()
    torch.optim.SGD(model.parameters(), lr=10.0).step()
    return model


def write_to_data(model: PreTrainedModel) -> PreTrainedModel:
    """As adapters are merged: no version tells of it."""
    for parameter in model.parameters():
        parameter.data.mul_(-1.5)
    return model


def load(model: PreTrainedModel) -> PreTrainedModel:
    torch.manual_seed(5)
    model.load_state_dict(decoder(tie_word_embeddings=model.config.tie_word_embeddings).state_dict())
    return model


def resize(model: PreTrainedModel) -> PreTrainedModel:
    model.resize_token_embeddings(310)
    return model


CHANGES: list[Callable[[PreTrainedModel], PreTrainedModel]] = [
    *(step, write_to_data, load, resize, copy.deepcopy),
    *(lambda model: write_to_data(copy.deepcopy(model)), lambda model: model.to(torch.float64).to(torch.float32)),
]


@pytest.mark.parametrize(("rows", "tied"), [(1, True), (4, False)])
@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_copies_follow_their_weights(change: Callable[..., PreTrainedModel], rows: int, *, tied: bool) -> None:
    model, inputs = decoder(tie_word_embeddings=tied), prompts(rows)
    assert_plain(model, inputs)
    assert_plain(change(model), inputs)


def test_other_precisions_have_no_copies() -> None:
    model = decoder()
    assert_plain(model, prompts(1))
    model = model.to(torch.bfloat16)
    assert torch.equal(*(generated(model, prompts(1) * 0 + 7, fast=fast).sequences for fast in (True, False)))
    other = decoder().to(torch.bfloat16)
    generated(other, prompts(4), fast=True)
    assert copied_rows(other) == set()


def test_a_model_is_what_it_was_after_generating(tmp_path: Path) -> None:
    model = decoder()
    before = copy.deepcopy(model.state_dict())
    modules = {name: set(vars(module)) for name, module in model.named_modules()}
    assert_plain(model, prompts(4))
    with pytest.raises(ValueError):
        model.generate(prompts(4), max_new_tokens=-1)
    del model.lay_out_weights
    assert {name: set(vars(module)) for name, module in model.named_modules()} == modules
    assert model.state_dict().keys() == before.keys()
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert copied_rows(loaded) == set()
    assert_plain(loaded, prompts(4))


def test_copies_live_as_long_as_their_model() -> None:
    model = decoder()
    before = len(COPIES)
    assert_plain(model, prompts(4))
    assert len(COPIES) > before
    del model
    gc.collect()
    assert len(COPIES) <= before


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_steps_that_generate_compiles_are_one_graph_for_all_calls(kind: str, rows: int) -> None:
    settings = CompileConfig(backend="eager", fullgraph=True)
    settings._compile_all_devices = True  # as on a GPU, where a static cache compiles by itself
    model, inputs, graphs = decoder(kind), prompts(rows), []
    plain = generated(model, inputs, fast=False)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for _ in range(2):
        compiled = generated(model, inputs, fast=True, cache_implementation="static", compile_config=settings)
        assert torch.equal(compiled.sequences, plain.sequences)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs == [1, 1]


def test_gradients_take_the_plain_path() -> None:
    model, ids = decoder(), prompts(4, 1)
    expected = torch.autograd.grad(
        model(ids, labels=ids.expand(-1, 2)[:, :1], shift_labels=ids).loss, model.lm_head.weight
    )
    with short_forwards(model):
        with torch.no_grad():
            for _ in range(PATIENCE):
                model(ids)
        assert copied_rows(model) == {4}
        actual = torch.autograd.grad(model(ids, shift_labels=ids).loss, model.lm_head.weight)
    assert torch.equal(actual[0], expected[0])


def test_what_is_around_a_linear_map_is_kept() -> None:
    """Hooks see every call, and what replaces a map or its forward is called."""
    model, seen = decoder(), []
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    own = model.model.layers[0].mlp.up_proj
    own.forward = lambda hidden: seen.append(hidden) or nn.functional.linear(hidden, own.weight, own.bias)
    generated(model, prompts(4), fast=True)
    assert len(seen) == 2 * STEPS and model.lm_head not in COPIES and own not in COPIES
    assert "forward" in vars(own)


def test_threads_may_generate_with_one_model() -> None:
    model = decoder()
    inputs = [prompts(rows) for rows in (1, 4, 6, 4)]
    expected = [generated(model, ids, fast=False).sequences for ids in inputs]
    model.lay_out_weights = True
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda ids: generated(model, ids, fast=True).sequences, inputs * 3))
    assert all(map(torch.equal, actual, expected * 3))
    assert not any("forward" in vars(module) for module in model.modules())


# The cache --------------------------------------------------------------------------------------------------------


def tokens(count: int, rows: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 2, count, 4), torch.randn(rows, 2, count, 6)


def test_a_growing_layer_holds_what_a_dynamic_one_does() -> None:
    growing, dynamic = GrowingLayer(), DynamicLayer()
    order = torch.tensor([2, 0, 0])
    changes = [
        *(lambda layer: layer.crop(-2), lambda layer: layer.reorder_cache(order), lambda layer: layer.crop(0)),
        *(lambda layer: layer.batch_select_indices(order), lambda layer: layer.batch_repeat_interleave(1)),
        lambda layer: layer.reset(),
    ]
    with torch.no_grad():
        for change in changes:
            for count in (7, 1, 1, 300, 1):
                new = tokens(count)
                actual, expected = growing.update(*new), dynamic.update(*new)
                assert_close(actual, expected, rtol=0, atol=0)
                assert growing.get_mask_sizes(1) == dynamic.get_mask_sizes(1)
            change(growing)
            change(dynamic)
            assert_close((growing.keys, growing.values), (dynamic.keys, dynamic.values), rtol=0, atol=0)


def test_a_step_copies_no_cached_tokens() -> None:
    layer = GrowingLayer()
    with torch.no_grad():
        layer.update(*tokens(5))
        places = {tuple(part.data_ptr() for part in layer.update(*tokens(1))) for _ in range(40)}
    assert len(places) == 1


def test_beams_copy_only_rows_that_go_on_elsewhere() -> None:
    growing, dynamic = GrowingLayer(), DynamicLayer()
    with torch.no_grad():
        for order in ([0, 1, 2], [1, 0, 0], [2, 2, 1], [0, 0, 0]):
            new = tokens(2)
            place = growing.update(*new)[0].data_ptr()
            dynamic.update(*new)
            growing.reorder_cache(torch.tensor(order))
            dynamic.reorder_cache(torch.tensor(order))
            assert torch.equal(growing.keys, dynamic.keys) and torch.equal(growing.values, dynamic.values)
            assert growing.keys.data_ptr() == place
        for layer in (growing, dynamic):
            layer.reorder_cache(torch.tensor([2, 1]))  # fewer rows go on
        assert torch.equal(growing.keys, dynamic.keys) and torch.equal(growing.values, dynamic.values)


@pytest.mark.parametrize(
    ("order", "same"), [([1, 1, 2, 3], True), ([1, 0, 3, 2], True), ([2, 3, 0, 1], False), ([0, 0], False)]
)
def test_beams_share_the_keys_of_their_source(order: list[int], *, same: bool) -> None:
    sources = torch.randn(2, 3, 5, 4).repeat_interleave(2, dim=0)
    layer, dynamic = SourceLayer(2), DynamicLayer()
    for each in (layer, dynamic):
        each.update(sources, -sources)
    place = layer.keys.data_ptr()
    for each in (layer, dynamic):
        each.reorder_cache(torch.tensor(order))
    assert torch.equal(layer.keys, dynamic.keys) and torch.equal(layer.values, dynamic.values)
    assert (layer.keys.data_ptr() == place) is same


def test_gradients_flow_through_a_cache() -> None:
    layer = GrowingLayer()
    first, second = tokens(2), tokens(1)
    first[0].requires_grad_()
    layer.update(*first)
    layer.update(*second)[0].sum().backward()
    assert torch.equal(first[0].grad, torch.ones_like(first[0]))


def test_generation_returns_a_cache_that_goes_on() -> None:
    model, inputs = decoder(), prompts(2)
    output = generated(model, inputs, fast=True)
    assert {type(layer) for layer in output.past_key_values.layers} == {GrowingLayer}
    again = model.generate(output.sequences, past_key_values=output.past_key_values, max_new_tokens=3, do_sample=False)
    assert torch.equal(again, model.generate(output.sequences, max_new_tokens=3, do_sample=False, past_key_values=None))
    assert isinstance(output.past_key_values, DynamicCache)
