"""What is captured while a model runs its own backend is what eager attention returns, row by row."""

import copy
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from accelerate import dispatch_model
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers.modeling_layers import GradientCheckpointingLayer

import qkv
import tiny
from comparison import differentiable_flex
from errors import raises_sentence
from families.attentions import CLOSE, FAMILIES, SIZES, WORDS, built, eager, real_queries, stock
from qkv.modeling import kernel
from qkv.modeling.fast_paths import window_attention, windows
from qkv.modeling.pair.axial_attention import AxialAttention
from qkv.scripts.attention import weights as rows_of_weights
from qkv.scripts.attention.layers import AXES
from tiny import jitter

ONE = {"": "attentions"}


@pytest.fixture
def small_windows() -> Iterator[None]:
    """Windows in chunks where texts are short, and one row of weights at a time."""
    with mock.patch.multiple(windows, QUERIES=4, SHARE=100.0), mock.patch.object(rows_of_weights, "SCORES", 1):
        yield


def capture(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    with torch.no_grad(), qkv.capture_attention(model, inputs, **options) as captured:
        return captured


def random_model(model_class: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return jitter(model_class(config)).eval()


def assert_eager(captured: Any, model: Any, inputs: dict[str, Any], names: dict[str, str] = ONE) -> None:
    """The weights of real queries are those that the model returns eagerly."""
    for stack, layers in eager(model, inputs, names).items():
        for record, weights in zip(captured.select(stack or None), layers, strict=True):
            real = real_queries(stack, inputs, weights)[:, :, record.queries]
            rows = weights[:, record.heads][:, :, record.queries]
            assert ((record.weights - rows) * real).abs().max() <= CLOSE and (rows * real).abs().max() > 0.1


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.costly(12)
def test_every_row_is_that_of_eager_attention(name: str) -> None:
    model, inputs, names = built(name)
    with torch.no_grad():
        plain = model(**inputs)
    some: Any = {"heads": [0] if "rnnsearch" in name or "luong" in name else [2, 0], "queries": slice(-3, None, 2)}
    with qkv.capture_attention(model, layers=-1, **some) as rows:
        captured = capture(model, inputs)
    torch.testing.assert_close(captured.outputs[0], plain[0], rtol=CLOSE, atol=CLOSE)
    assert set(captured.stacks) == set(names) and len(rows) == len(names)
    assert_eager(captured, model, inputs, names)
    for stack, expected in eager(model, inputs, names).items():
        records = captured.select(stack)
        assert [record.layer for record in records] == list(range(len(expected)))
        for index, (record, weights) in enumerate(zip(records, expected, strict=True)):
            # It is not that of another layer, of another head or of another row.
            others = [weights.roll(1, 0), weights.roll(1, 1), expected[index - 1]]
            kept = [other for other in others if other.shape == weights.shape and not torch.equal(other, weights)]
            real = real_queries(stack, inputs, weights)
            assert kept and all(((record.weights - other) * real).abs().max() > 100 * CLOSE for other in kept)
        (row,) = rows.select(stack)
        whole = captured.select(stack, -1)[0].weights[:, some["heads"]][:, :, some["queries"]]
        torch.testing.assert_close(row.weights, whole, rtol=CLOSE, atol=CLOSE)


PADDING = {"right": [[1] * 13, [1] * 6 + [0] * 7], "left": [[1] * 13, [0] * 7 + [1] * 6], "none": None}
PATTERNS = ["full", "sliding", "dilated", "block_sparse", "random"]
COMBINED = list(product(["encoder", "decoder"], ["learned", "rope", "alibi", "t5"], PATTERNS, [False, True], PADDING))


@pytest.mark.parametrize(("family", "position", "pattern", "removed", "padding"), random.Random(0).sample(COMBINED, 24))
def test_padding_patterns_and_biases(
    family: str, position: str, pattern: str, removed: bool, padding: str, small_windows: None
) -> None:
    fields: dict[str, Any] = {"position": position, "pattern": pattern, "sliding_window": 3, "block_size": 2}
    fields |= {"num_global_tokens": 1} if pattern == "sliding" else {}
    ours = {"encoder": (qkv.QkvEncoderModel, tiny.encoder), "decoder": (qkv.QkvDecoderModel, tiny.decoder)}
    model_class, config = ours[family]
    model = random_model(model_class, config(**fields))
    model.remove_padding = removed
    inputs: dict[str, Any] = {"input_ids": torch.randint(4, 61, (2, 13))}
    if PADDING[padding] is not None:
        inputs["attention_mask"] = torch.tensor(PADDING[padding])
    assert_eager(capture(model, inputs, queries=[0, 4, 12, 6]), model, inputs)


PLACES = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1]])
GLOBAL = {"pattern": "sliding", "sliding_window": 2, "global_projections": True, "num_global_tokens": 1}


@pytest.mark.parametrize("removed", [False, True])
def test_packed_documents_and_global_tokens_with_projections_of_their_own(removed: bool) -> None:
    llama = random_model(qkv.QkvDecoderModel, tiny.decoder("llama"))
    packed = {"input_ids": torch.randint(4, 61, (1, 9)), "position_ids": PLACES, "use_cache": False}
    longformer = random_model(qkv.QkvEncoderModel, tiny.encoder(**GLOBAL))
    for model, inputs in ((llama, packed), (longformer, tiny.text())):
        model.remove_padding = removed
        captured = capture(model, inputs)
        assert_eager(captured, model, inputs)
        if "position_ids" in inputs:
            weights = captured[0].weights
            assert weights[0, :, 4:7, :4].abs().max() == 0 == weights[0, :, :4, 4:].abs().max()


def test_grids_of_pairs_are_captured_whole() -> None:
    model, inputs = random_model(qkv.QkvPairModel, tiny.pair("evoformer", chunk_size=4)), tiny.alignment()
    expected: dict[Any, Any] = {}

    def attend_eagerly(module: Any, given: Any, options: Any, output: Any) -> None:
        context = options["context"]._replace(backend="eager", weights=True)
        expected[module] = AxialAttention.forward(module, *given, context, chunk_size=99)[1]

    # Before the capture, which would record it.
    modules = [module for module in model.modules() if isinstance(module, AxialAttention)]
    handles = [module.register_forward_hook(attend_eagerly, with_kwargs=True) for module in modules]
    with torch.no_grad():
        plain = model(**inputs)
    for handle in handles:
        handle.remove()
    stacks = {"encoder": "row_attn", **{stack: path for path, stack in AXES.items()}}
    captured = capture(model, inputs, layers=dict.fromkeys(stacks), heads=[1], queries=[2])
    assert torch.equal(captured.outputs.pair_hidden_state, plain.pair_hidden_state) and len(captured) == 8
    for (stack, path), layer in product(stacks.items(), range(2)):
        (record,) = captured.select(stack, layer)
        weights = expected[model.get_submodule(f"blocks.{layer}.{path}")].flatten(0, 1)[:, 1:2, 2:3]
        torch.testing.assert_close(record.weights, weights, rtol=1e-5, atol=1e-6)


def test_attention_that_hides_keys_by_the_name_of_its_backend() -> None:
    """DeepSeek's indexer chooses keys in the mask for eager and sdpa, and elsewhere leaves that to the backend."""
    sizes = {**SIZES, **WORDS, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
    sizes |= {"v_head_dim": 8, "index_topk": 3, "index_n_heads": 2, "index_head_dim": 8, "first_k_dense_replace": 2}
    torch.manual_seed(0)
    model = jitter(stock("DeepseekV32ForCausalLM", "DeepseekV32Config", **sizes)).eval()
    inputs = {"input_ids": torch.randint(4, 61, (1, 9)), "use_cache": False}
    with torch.no_grad():
        plain = model(**inputs).logits
    captured = capture(model, inputs)
    assert torch.equal(captured.outputs.logits, plain)
    assert (captured[0].weights > 0).sum(-1).max() == 3


@pytest.mark.parametrize("name", ["qkv gpt2", "qkv t5 encoder", "qkv t5", "stock bert", "stock llama"])
def test_flex_attention(name: str) -> None:
    model, inputs, names = built(name)
    flex = copy.deepcopy(model)
    flex.set_attn_implementation("flex_attention")
    with differentiable_flex():
        captured = capture(flex, inputs)
    assert_eager(captured, model, inputs, names)


@torch.no_grad()
def test_the_model_runs_its_own_backend() -> None:
    """Neither the eager function is called, nor padding kept, nor more rows computed than are asked for."""
    model: Any = qkv.QkvEncoderModel(tiny.encoder()).eval()
    seen: list[int] = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def counted(query: Tensor, *given: Any, **options: Any) -> Tensor:
        seen.append(query.shape[2])
        return plain(query, *given, **options)

    with (
        mock.patch.object(kernel, "eager_attention", side_effect=AssertionError),
        mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", counted),
        qkv.capture_attention(model, tiny.text(), layers=1, queries=0) as captured,
    ):
        pass
    assert seen == [9, 7, 9, 7]  # a call for each document, in each layer
    assert captured[0].weights.shape == (2, 4, 1, 9)


@torch.no_grad()
def test_the_cost_is_that_of_the_rows_that_are_asked_for() -> None:
    inputs = {"input_ids": torch.randint(4, 61, (1, 256))}
    model = qkv.QkvEncoderModel(tiny.encoder(num_hidden_layers=12, max_position_embeddings=256)).eval()

    def cost(**options: Any) -> int:
        with FlopCounterMode(display=False) as counter, qkv.capture_attention(model, inputs, **options):
            return counter.get_total_flops()

    with FlopCounterMode(display=False) as counter:
        model(**inputs)
    plain = counter.get_total_flops()
    assert 0 < cost(layers=0) - plain <= 0.5 * plain
    assert (cost(layers=0, heads=1, queries=-1) - plain) * 4 * 256 == cost(layers=0) - plain


def test_windows_stay_in_chunks(small_windows: None) -> None:
    model = random_model(qkv.QkvDecoderModel, tiny.decoder("bloom", pattern="sliding", sliding_window=3))
    inputs = {"input_ids": torch.randint(4, 61, (2, 13))}
    with mock.patch.object(window_attention, "attend_in_chunks", wraps=window_attention.attend_in_chunks) as chunks:
        captured = capture(model, inputs)
    assert chunks.call_count == 4  # two rows in each of two layers
    assert_eager(captured, model, inputs)


@pytest.mark.parametrize("name", ["qkv llama", "qkv mistral", "qkv bloom", "stock gpt2", "stock llama"])
@torch.no_grad()
def test_steps_of_generate_are_rows_of_one_forward(name: str) -> None:
    model, inputs, _ = built(name)
    prompt = {key: value[:1] for key, value in inputs.items()}
    plain = model.generate(**prompt, max_new_tokens=5, do_sample=False, pad_token_id=1, eos_token_id=None)
    with qkv.capture_attention(model, layers=-1) as captured:
        tokens = model.generate(**prompt, max_new_tokens=5, do_sample=False, pad_token_id=1, eos_token_id=None)
    assert torch.equal(tokens, plain)
    assert [record.num_queries for record in captured] == [9, 1, 1, 1, 1]
    joined = captured.join("decoder")
    whole = eager(model, {"input_ids": tokens[:, :-1]}, {"": "attentions"})[""][-1]
    if name != "qkv mistral":  # whose cache forgets what its last layer's window hides
        assert (joined.weights - whole).abs().max() <= CLOSE
    assert joined.queries == list(range(13)) and joined.num_queries == 13


@pytest.mark.parametrize("name", ["qkv bert", "stock bert"])
@torch.no_grad()
def test_a_capture_ends_with_its_context(name: str) -> None:
    model, inputs, _ = built(name)
    other, before = copy.deepcopy(model), [dict(vars(module)) for module in model.modules()]
    hooks = [len(module._forward_hooks) for module in model.modules()]
    with qkv.capture_attention(model) as outer, qkv.capture_attention(model, layers=0) as inner:
        model(**inputs)
        other(**inputs)
    model(**inputs)
    assert (len(outer), len(inner)) == (2, 1)
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    assert before == [dict(vars(module)) for module in model.modules()]


@pytest.mark.parametrize("name", ["qkv bert", "stock bert"])
@torch.no_grad()
def test_forwards_in_several_threads_do_not_mix(name: str) -> None:
    model, _, _ = built(name)
    texts = [tiny.text(length=length) for length in (5, 6, 7, 8)]

    def captured(text: dict[str, Tensor]) -> None:
        for _ in range(5):
            model(**text)

    with qkv.capture_attention(model, layers=-1) as records, ThreadPoolExecutor() as threads:
        list(threads.map(captured, texts))
    expected = {text["input_ids"].shape[1]: eager(model, text, {"": "attentions"})[""][-1] for text in texts}
    assert Counter(record.num_queries for record in records) == dict.fromkeys(expected, 5)
    for record in records:
        weights = expected[record.num_queries]
        assert ((record.weights - weights) * (weights.amax((1, 2)) > 0)[:, None, :, None]).abs().max() <= CLOSE


@torch.no_grad()
def test_a_model_that_accelerate_places_is_captured() -> None:
    model, inputs, _ = built("qkv gpt2")
    expected = capture(model, inputs)
    dispatch_model(model, {"": "cpu"}, force_hooks=True)
    captured = capture(model, inputs)
    assert all(torch.equal(one.weights, other.weights) for one, other in zip(captured, expected, strict=True))


@torch.no_grad()
def test_forwards_of_two_lengths_are_joined() -> None:
    model = random_model(qkv.QkvEncoderModel, tiny.encoder())
    with qkv.capture_attention(model, layers=-1, queries=slice(0, 2)) as captured:
        model(**tiny.text(length=9))
        model(**tiny.text(length=6))
    joined = captured.join()
    assert joined.weights.shape == (2, 4, 4, 9) and joined.queries == [0, 1, 9, 10] and joined.num_queries == 15
    assert joined.weights[:, :, 2:, 6:].abs().max() == 0
    with raises_sentence("layer=0", "layers"):
        captured.select("encoder", layer=0)


@pytest.mark.parametrize("name", ["qkv bert", "qkv linear", "stock bert"])
def test_a_checkpointed_layer_is_recorded_once(name: str) -> None:
    model, inputs, _ = built(name)
    expected = capture(model, inputs)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():  # without dropout
        module.training = isinstance(module, GradientCheckpointingLayer)
    with qkv.capture_attention(model, inputs) as captured:
        captured.outputs[0].sum().backward()
    assert [(each.stack, each.layer, each.step) for each in captured] == [(e.stack, e.layer, e.step) for e in expected]
    for record, other in zip(captured, expected, strict=True):
        torch.testing.assert_close(record.weights, other.weights)


@torch.no_grad()
def test_generate_does_not_compile_its_steps() -> None:
    model, inputs, _ = built("stock llama")
    options = {"max_new_tokens": 3, "cache_implementation": "static", "eos_token_id": None, "pad_token_id": 1}
    compiled = transformers.CompileConfig()
    compiled._compile_all_devices = True  # on a CPU, too
    with mock.patch.object(type(model), "get_compiled_call", side_effect=AssertionError):
        with qkv.capture_attention(model) as captured:
            model.generate(inputs["input_ids"][:1], **options, compile_config=compiled)
    assert len(captured) == 6 and model.generation_config.disable_compile is None


@torch.no_grad()
def test_a_published_copy_is_captured(tmp_path: Any) -> None:
    """Its classes are in other modules, and its padding is removed and its windows are in chunks like ours."""
    ours = random_model(qkv.QkvEncoderForMaskedLM, tiny.encoder("local"))
    qkv.publish(ours, str(tmp_path / "copy"))
    with mock.patch.dict(transformers.AutoModelForMaskedLM._model_mapping._extra_content, clear=True):
        copied: Any = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "copy", trust_remote_code=True)
    assert type(copied) is not type(ours) and not isinstance(copied, qkv.QkvEncoderForMaskedLM)
    copied.remove_padding = ours.remove_padding = True
    inputs = tiny.text()
    for record, own in zip(capture(copied.eval(), inputs), capture(ours, inputs), strict=True):
        assert torch.equal(record.weights, own.weights) and own.weights.abs().max() > 0.1


WRONG: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "layer": (lambda: built("qkv bert")[0], {"layers": [5]}, ("layers", "5", "2")),
    "stack": (lambda: built("qkv bert")[0], {"layers": {"decoder": 0}}, ("layers", "'decoder'", "encoder")),
    "head": (lambda: built("qkv bert")[0], {"heads": 7}, ("heads", "7", "4")),
    "query": (lambda: built("qkv bert")[0], {"queries": [20]}, ("queries", "20", "9")),
    "delta": (lambda: qkv.QkvDecoderModel(tiny.decoder("deltanet")), {}, ("kernel='gated_delta'", "weights")),
    "cho": (lambda: qkv.QkvRecurrentModel(tiny.recurrent("cho")), {}, ("QkvRecurrentModel", "AttentionInterface")),
    "compiled": (lambda: torch.compile(qkv.QkvEncoderModel(tiny.encoder())), {}, ("compiled",)),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_models_and_words_are_a_sentence(case: str) -> None:
    make, options, mentions = WRONG[case]
    with raises_sentence(*mentions):
        capture(make(), tiny.text(), **options)


def test_linear_attention_with_a_cache_is_a_sentence() -> None:
    model, inputs, _ = built("qkv linear")
    with raises_sentence("kernel='linear'", "use_cache=False"), qkv.capture_attention(model):
        model.generate(input_ids=inputs["input_ids"][:1], max_new_tokens=3, eos_token_id=None)
