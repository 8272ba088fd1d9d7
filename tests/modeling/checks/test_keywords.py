"""Keywords: the cache by either name, and no tensor or cache that nothing reads, in every family."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AttentionInterface, DynamicCache, PreTrainedModel, StaticCache
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.modeling_outputs import BaseModelOutput

import tiny
from qkv import QkvDecoderForCausalLM, QkvDecoderModel, QkvEncoderDecoderForConditionalGeneration, QkvEncoderModel
from qkv.modeling.checks import keywords
from qkv.modeling.checks.keywords import CACHE, NEW_NAME, OLD_NAME, rename_cache
from qkv.modeling.kernel import eager_attention
from qkv.modeling.stack import Stack

pytestmark = pytest.mark.upstream


NAMES = (
    "attention_mask labels encoder_hidden_states output_attentions output_hidden_states num_items_in_batch cu_seq_lens_q "
    "cu_seq_lens_k max_length_q cache head_mask decoder_input_ids special_tokens_mask overflow_to_sample_mapping"
)


@pytest.mark.parametrize("model_class", [QkvEncoderModel, QkvDecoderModel])
def test_names_that_others_hand_through_pass(model_class: type[PreTrainedModel]) -> None:
    assert not [name for name in NAMES.split() if keywords.intended_name(model_class.forward, name)]


ONES = torch.ones(2)
UNREAD = [ONES, DynamicCache(), [ONES], {"a": (ONES,)}, BaseModelOutput(last_hidden_state=ONES)]


@pytest.mark.parametrize("case", tiny.HEADS, ids=lambda case: case.name)
def test_a_tensor_that_nothing_reads_is_refused_in_every_family(case: tiny.Case) -> None:
    """Keywords of stacks, too, where there is no stack."""
    model = case.build()
    no_stack = not any(isinstance(module, Stack) for module in model.modules())
    assert no_stack is case.name.startswith(("Pair", "Folding", "Recurrent"))
    names = ("global_attention_mask", "cu_seq_lens_q") if no_stack else ()
    for name, value in [*(("renamed", value) for value in UNREAD), *((name, ONES) for name in names)]:
        with pytest.raises(TypeError, match=f"'{name}'"):
            model(**case.inputs(), **{name: value})
    assert model(**case.inputs(), renamed=True, debug_name="flags pass") is not None


@pytest.mark.parametrize("model_class", [QkvEncoderModel, QkvDecoderModel])
def test_boundaries_of_keys_are_read_with_those_of_queries_alone(model_class: type) -> None:
    model = tiny.precise(model_class)
    ids, ends = torch.arange(4, 9)[None], torch.tensor([0, 2, 5])
    both = model(ids, cu_seq_lens_q=ends, cu_seq_lens_k=ends).last_hidden_state
    assert_close(both, model(ids, cu_seq_lens_q=ends).last_hidden_state)
    with pytest.raises(TypeError, match="'cu_seq_lens_k'"):
        model(ids, cu_seq_lens_k=ends)
    with pytest.raises(ValueError, match="cu_seq_lens_k"):
        model(ids, cu_seq_lens_q=ends, cu_seq_lens_k=torch.tensor([0, 3, 5]))


@pytest.mark.parametrize("model_class", [QkvEncoderModel, QkvDecoderModel])
def test_an_index_of_documents_says_what_positions_say(model_class: type) -> None:
    model, ids = tiny.precise(model_class), torch.arange(4, 9)[None]
    positions, index = {"position_ids": torch.tensor([[0, 1, 0, 1, 2]])}, torch.tensor([[0, 0, 1, 1, 1]])
    ends = torch.tensor([0, 2, 5])
    for packed in (positions, {"cu_seq_lens_q": ends}, {**positions, "cu_seq_lens_q": ends}):
        expected = model(ids, **packed).last_hidden_state
        assert_close(model(ids, **packed, seq_idx=index).last_hidden_state, expected)
        with pytest.raises(ValueError, match="seq_idx"):
            model(ids, **packed, seq_idx=index.roll(1, 1))
    one = {"position_ids": torch.arange(5)[None], "seq_idx": index * 0}
    assert_close(model(ids, **one).last_hidden_state, model(ids).last_hidden_state)
    # Alone it is refused where no value is read, too, as is a tensor that nothing reads.
    for each in (model, torch.compile(model, backend="eager")):
        with pytest.raises(ValueError, match="seq_idx"):
            each(ids, seq_idx=index)
        with pytest.raises(TypeError, match="'renamed'"):
            each(ids, renamed=ONES)
    with pytest.raises(ValueError, match="cu_seq_lens_k"):
        model(ids, cu_seq_lens_q=ends, seq_idx=index, cu_seq_lens_k=torch.tensor([0, 3, 5]))


def test_token_types_of_one_segment_pass_and_others_do_not() -> None:
    model, ids = QkvDecoderModel(tiny.decoder()).eval(), torch.ones(1, 3, dtype=torch.long)
    types = torch.zeros_like(ids)
    assert_close(model(ids, token_type_ids=types).last_hidden_state, model(ids).last_hidden_state)
    with pytest.raises(TypeError, match="token_type_ids"):
        model(ids, token_type_ids=types + 1)


def test_token_types_of_a_source_are_the_encoder_s() -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForConditionalGeneration), tiny.translations()
    types = torch.zeros_like(inputs["input_ids"])
    assert_close(model(**inputs, token_type_ids=types).loss, model(**inputs).loss)
    source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 3, "do_sample": False}
    assert torch.equal(model.generate(**source, token_type_ids=types, **options), model.generate(**source, **options))


def test_attention_functions_of_others_are_given_all() -> None:
    seen = {}

    def attend(*heads: Any, **options: Any) -> Any:
        seen.update(options)
        return eager_attention(*heads, **options)

    AttentionInterface.register("an_engine", attend)
    model = QkvDecoderModel(tiny.decoder(attn_implementation="an_engine")).eval()
    model(torch.ones(1, 3, dtype=torch.long), block_tables=torch.ones(2))
    assert torch.equal(seen["block_tables"], torch.ones(2))


def filled(model: PreTrainedModel) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    model(torch.tensor([[4, 5, 6]]), past_key_values=cache)
    return cache


def test_the_cache_has_two_names_in_and_the_installed_one_out() -> None:
    model, ids = QkvDecoderModel(tiny.decoder()).eval(), torch.tensor([[7]])
    outputs = [model(ids, **{name: filled(model)}) for name in (OLD_NAME, NEW_NAME)]
    assert torch.equal(outputs[0].last_hidden_state, outputs[1].last_hidden_state)
    assert all(isinstance(output[CACHE], DynamicCache) and output[CACHE].get_seq_length() == 4 for output in outputs)
    whole = model(torch.tensor([[4, 5, 6, 7]]), use_cache=False).last_hidden_state[:, -1:]
    assert_close(outputs[0].last_hidden_state, whole, rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="past_key_values"):
        model(ids, **{OLD_NAME: filled(model), NEW_NAME: filled(model)})
    assert model(ids, **{OLD_NAME: None, NEW_NAME: filled(model)})[CACHE].get_seq_length() == 4
    with pytest.raises(ValueError, match="past_key_values"):
        model(ids, cache=object())


def test_the_paged_cache_keeps_its_name() -> None:
    paged = object.__new__(PagedAttentionCache)
    assert rename_cache({NEW_NAME: paged}, OLD_NAME) == {NEW_NAME: paged}


def test_masks_of_static_caches_take_either_name() -> None:
    model = tiny_generator()
    cache = StaticCache(config=model.config, max_cache_len=6)
    padding = torch.tensor([[0, 1, 1]])
    options = {"inputs_embeds": torch.empty(1, 3, 0), "attention_mask": padding, "config": model.config}
    masks = [model.create_masks_for_generate(**options, **{name: cache}).masks["full"] for name in (OLD_NAME, NEW_NAME)]
    assert torch.equal(*masks) and masks[0].shape[-1] == 6


@pytest.mark.parametrize("name", [OLD_NAME, NEW_NAME])
def test_generation_goes_on_from_a_cache_by_either_name(name: str) -> None:
    model, options = tiny_generator(), {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
    turn = model.generate(torch.tensor([[4, 5, 6]]), return_dict_in_generate=True, **options)
    whole = model.generate(turn.sequences, use_cache=False, **options)
    assert torch.equal(model.generate(turn.sequences, **{name: turn[CACHE]}, **options), whole)


def tiny_generator() -> PreTrainedModel:
    return QkvDecoderForCausalLM(tiny.decoder()).eval()
