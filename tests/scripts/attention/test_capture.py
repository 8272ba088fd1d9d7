"""What is captured while a model runs its own backend is what eager attention returns, row by row."""

import copy
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AttentionInterface

import qkv
import tiny
from comparison import differentiable_flex
from errors import raises_sentence
from families.attentions import CLOSE, DECODER, ENDS, FAMILIES, WIDTHS, WORDS, built, eager, real_queries, stock
from qkv.modeling import kernel
from qkv.modeling.fast_paths import window_attention, windows
from tiny import jitter


@pytest.fixture
def small_windows() -> Iterator[None]:
    """Windows in chunks where texts are short."""
    with mock.patch.multiple(windows, QUERIES=4, SHARE=100.0):
        yield


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_every_layer_is_that_of_eager_attention(name: str) -> None:
    model, inputs, names = built(name)
    plain = model(**inputs)
    with qkv.capture_attention(model, inputs) as captured:
        pass
    torch.testing.assert_close(captured.outputs[0], plain[0], rtol=CLOSE, atol=CLOSE)
    assert set(captured.stacks) == set(names)
    for stack, expected in eager(model, inputs, names).items():
        records = captured.select(stack)
        assert [record.layer for record in records] == list(range(len(expected)))
        for index, (record, weights) in enumerate(zip(records, expected, strict=True)):
            real = real_queries(stack, inputs, weights)
            assert record.is_whole and record.weights.shape == weights.shape
            assert ((record.weights - weights) * real).abs().max() <= CLOSE
            # It is not that of another layer, of another head or of another row.
            others = [weights.roll(1, 0), weights.roll(1, 1), expected[index - 1]]
            kept = [other for other in others if other.shape == weights.shape and not torch.equal(other, weights)]
            assert kept and all(((record.weights - other) * real).abs().max() > 100 * CLOSE for other in kept)


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_asked_for_layers_heads_and_queries_alone(name: str) -> None:
    model, inputs, names = built(name)
    heads = [0] if "rnnsearch" in name or "luong" in name else [2, 0]
    with qkv.capture_attention(model, inputs, layers=-1, heads=heads, queries=slice(-3, None, 2)) as captured:
        pass
    assert len(captured) == len(names)
    for stack, expected in eager(model, inputs, names).items():
        (record,) = captured.select(stack)
        weights = expected[-1][:, heads][:, :, -3::2]
        real = real_queries(stack, inputs, expected[-1]).expand_as(expected[-1])[:, heads][:, :, -3::2]
        assert record.weights.shape == weights.shape and record.heads == heads
        assert ((record.weights - weights) * real).abs().max() <= CLOSE


BOTH = ["full", "sliding", "dilated", "block_sparse", "random"]
PADDING = {
    "right": [[1] * 13, [1] * 6 + [0] * 7],
    "left": [[1] * 13, [0] * 7 + [1] * 6],
    "none": None,
}


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("pattern", BOTH)
@pytest.mark.parametrize("position", ["learned", "rope", "alibi", "t5"])
@pytest.mark.parametrize("family", ["encoder", "decoder"])
@torch.no_grad()
def test_padding_patterns_and_biases(
    family: str, position: str, pattern: str, removed: bool, padding: str, small_windows: None
) -> None:
    fields: dict[str, Any] = {"position": position, "pattern": pattern, "sliding_window": 3, "block_size": 2}
    fields |= {"num_global_tokens": 1} if pattern == "sliding" else {}
    torch.manual_seed(0)
    config, model_class = {
        "encoder": (tiny.encoder, qkv.QkvEncoderModel),
        "decoder": (tiny.decoder, qkv.QkvDecoderModel),
    }[family]
    model: Any = jitter(model_class(config(**fields))).eval()
    model.remove_padding = removed
    inputs: dict[str, Any] = {"input_ids": torch.randint(4, 61, (2, 13))}
    if PADDING[padding] is not None:
        inputs["attention_mask"] = torch.tensor(PADDING[padding])
    with qkv.capture_attention(model, inputs, queries=[0, 4, 12, 6]) as captured:
        pass
    for record, weights in zip(captured, eager(model, inputs, {"": "attentions"})[""], strict=True):
        weights = weights * real_queries("", inputs, weights)
        own = record.weights * real_queries("", inputs, weights).expand_as(weights)[:, :, record.queries]
        assert (own - weights[:, :, record.queries]).abs().max() <= CLOSE
        assert weights[:, :, record.queries].abs().max() > 0.1


@pytest.mark.parametrize("removed", [False, True])
@torch.no_grad()
def test_documents_packed_in_a_row(removed: bool) -> None:
    torch.manual_seed(0)
    model: Any = jitter(qkv.QkvDecoderModel(tiny.decoder("llama"))).eval()
    model.remove_padding = removed
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1]])
    inputs = {"input_ids": torch.randint(4, 61, (1, 9)), "position_ids": places, "use_cache": False}
    with qkv.capture_attention(model, inputs) as captured:
        pass
    for record, weights in zip(captured, eager(model, inputs, {"": "attentions"})[""], strict=True):
        assert (record.weights - weights).abs().max() <= CLOSE
        assert record.weights[0, :, 4:7, :4].abs().max() == 0 == record.weights[0, :, :4, 4:].abs().max()


@pytest.mark.parametrize("removed", [False, True])
@torch.no_grad()
def test_global_tokens_with_projections_of_their_own(removed: bool) -> None:
    own = {"pattern": "sliding", "sliding_window": 2, "global_projections": True, "num_global_tokens": 1}
    torch.manual_seed(0)
    model: Any = jitter(qkv.QkvEncoderModel(tiny.encoder(**own))).eval()
    model.remove_padding = removed
    inputs = tiny.text()
    with qkv.capture_attention(model, inputs, also=["scores", "norms"]) as captured:
        pass
    for record, weights in zip(captured, eager(model, inputs, {"": "attentions"})[""], strict=True):
        assert ((record.weights - weights) * inputs["attention_mask"][:, None, :, None]).abs().max() <= CLOSE
        torch.testing.assert_close(record.scores.softmax(-1).nan_to_num(), record.weights, rtol=CLOSE, atol=CLOSE)
        lengths = record.norms / record.weights
        rest = lengths[0, :, 2:].nanmean(1)
        assert not torch.allclose(lengths[0, :, 0], rest, rtol=0.05)  # their values are others


@pytest.mark.parametrize("name", ["qkv gpt2", "qkv t5 encoder", "qkv t5", "stock bert", "stock llama"])
@torch.no_grad()
def test_flex_attention(name: str) -> None:
    model, inputs, names = built(name)
    expected = eager(model, inputs, names)
    model.set_attn_implementation("flex_attention")
    with differentiable_flex(), qkv.capture_attention(model, inputs) as captured:
        pass
    for stack, weights in expected.items():
        for record, each in zip(captured.select(stack), weights, strict=True):
            assert ((record.weights - each) * real_queries(stack, inputs, each)).abs().max() <= CLOSE


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


def work(model: Any, inputs: dict[str, Any], **options: Any) -> tuple[int, int]:
    """Floating-point operations of a forward with a capture, and the numbers that it keeps; without options plain."""
    with FlopCounterMode(display=False) as counter:
        if not options:
            model(**inputs)
            return counter.get_total_flops(), 0
        with qkv.capture_attention(model, inputs, **options) as captured:
            kept = sum(record.weights.numel() for record in captured)
    return counter.get_total_flops(), kept


@torch.no_grad()
def test_the_cost_is_that_of_the_rows_that_are_asked_for() -> None:
    """Whatever the number of other layers; one layer of twelve takes less than half a forward more."""
    inputs = {"input_ids": torch.randint(4, 61, (1, 256))}
    costs = {}
    for layers in (2, 12):
        model = qkv.QkvEncoderModel(tiny.encoder(num_hidden_layers=layers, max_position_embeddings=256)).eval()
        plain = work(model, inputs)[0]
        own, kept = work(model, inputs, layers=0)
        row, one = work(model, inputs, layers=0, heads=1, queries=-1)
        costs[layers] = own - plain, kept, row - plain, one
        assert kept == 4 * 256**2 and one == 256
    assert costs[2] == costs[12] and own <= 1.5 * plain
    assert costs[12][2] * 4 * 256 == costs[12][0] > 0


@torch.no_grad()
def test_windows_stay_in_chunks(small_windows: None) -> None:
    model: Any = jitter(qkv.QkvDecoderModel(tiny.decoder("bloom", pattern="sliding", sliding_window=3))).eval()
    inputs = {"input_ids": torch.randint(4, 61, (2, 13))}
    with (
        mock.patch.object(window_attention, "attend_in_chunks", wraps=window_attention.attend_in_chunks) as chunks,
        qkv.capture_attention(model, inputs) as captured,
    ):
        pass
    assert chunks.call_count == 4  # two rows in each of two layers
    for record, weights in zip(captured, eager(model, inputs, {"": "attentions"})[""], strict=True):
        assert (record.weights - weights).abs().max() <= CLOSE
        assert (weights != 0).sum(-1).max() == 3


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
    assert joined.queries == list(range(13)) and joined.is_whole


@pytest.mark.parametrize(("name", "seed"), [("qkv transformer", 7), ("qkv rnnsearch", 0), ("stock bart", 2)])
@torch.no_grad()
def test_beams_of_the_winner(name: str, seed: int) -> None:
    """The captured rows are those of a forward over the text that won, which was not always the first beam."""
    make = {
        "stock bart": lambda: stock("BartForConditionalGeneration", "BartConfig", **DECODER, **WIDTHS, **WORDS, **ENDS)
    }.get(name, FAMILIES[name][0])
    torch.manual_seed(seed)
    model: Any = jitter(make()).eval()
    source = tiny.text(length=7)
    options = {"num_beams": 3, "max_new_tokens": 6, "return_dict_in_generate": True, "output_scores": True}
    with qkv.capture_attention(model, layers={"cross": -1}) as captured:
        output = model.generate(**source, **options, forced_eos_token_id=None, forced_bos_token_id=None)
    won = captured.beams(output.beam_indices).join("cross")
    given = {**source, "decoder_input_ids": output.sequences[:, :-1]}
    weights = eager(model, given, {"cross": "cross_attentions"})["cross"][-1]
    counts = (output.beam_indices >= 0).sum(-1)
    assert won.weights.shape[0] == 2 and len(captured[0].weights) == 6
    for row, count in enumerate(counts.tolist()):
        assert (won.weights[row, :, :count] - weights[row, :, :count]).abs().max() <= CLOSE
        assert won.weights[row, :, count:].abs().sum() == 0
    first = captured.join("cross").weights[::3, :, : counts.max()]
    assert any((first[row, :, :count] - weights[row, :, :count]).abs().max() > 1e-3 for row, count in enumerate(counts))


@torch.no_grad()
def test_what_is_captured_ends_with_the_context() -> None:
    lookup = AttentionInterface.get_interface
    for name in ("qkv bert", "stock bert"):
        model, inputs, _ = built(name)
        hooks = [len(module._forward_hooks) for module in model.modules()]
        with qkv.capture_attention(model) as outer, qkv.capture_attention(model, layers=0) as inner:
            model(**inputs)
        model(**inputs)
        assert (len(outer), len(inner)) == (2, 1)
        assert hooks == [len(module._forward_hooks) for module in model.modules()]
        assert not any({"observe", "_valid_auto_compile_criteria"} & vars(module).keys() for module in model.modules())
    assert AttentionInterface.get_interface is lookup


@torch.no_grad()
def test_a_published_copy_is_captured(tmp_path: Any) -> None:
    """Its classes are in other modules, and its padding is removed and its windows are in chunks like ours."""
    torch.manual_seed(0)
    ours = jitter(qkv.QkvEncoderForMaskedLM(tiny.encoder("local"))).eval()
    qkv.publish(ours, str(tmp_path / "copy"))
    with mock.patch.dict(transformers.AutoModelForMaskedLM._model_mapping._extra_content, clear=True):
        copied: Any = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "copy", trust_remote_code=True)
    assert type(copied) is not type(ours) and not isinstance(copied, qkv.QkvEncoderForMaskedLM)
    copied.remove_padding = ours.remove_padding = True
    inputs = tiny.text()
    with qkv.capture_attention(copied.eval(), inputs) as captured, qkv.capture_attention(ours, inputs) as expected:
        pass
    for record, own in zip(captured, expected, strict=True):
        assert torch.equal(record.weights, own.weights) and own.weights.abs().max() > 0.1


@torch.no_grad()
def test_another_model_is_not_captured() -> None:
    model, inputs, _ = built("stock bert")
    other = copy.deepcopy(model)
    with qkv.capture_attention(model) as captured:
        other(**inputs)
    assert len(captured) == 0


WRONG: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "layer": ("qkv bert", {"layers": [5]}, ("layers", "layer 5", "2 in encoder")),
    "stack": ("qkv bert", {"layers": {"decoder": 0}}, ("layers", "'decoder'", "encoder")),
    "head": ("qkv bert", {"heads": 7}, ("heads", "7", "4 heads")),
    "query": ("qkv bert", {"queries": [20]}, ("queries", "20", "9 queries")),
    "also": ("qkv bert", {"also": "norm"}, ("also='norm'", "scores")),
    "linear scores": ("qkv linear", {"also": ["scores"]}, ("kernel='linear'", "scores")),
    "recurrent norms": ("qkv rnnsearch", {"also": ["norms"]}, ("recurrent", "norms")),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words_are_a_sentence(case: str) -> None:
    name, options, mentions = WRONG[case]
    model, inputs, _ = built(name)
    with raises_sentence(*mentions), qkv.capture_attention(model, inputs, **options):
        pass


def test_models_without_weights_are_a_sentence() -> None:
    delta = qkv.QkvDecoderModel(tiny.decoder("deltanet"))
    with raises_sentence("kernel='gated_delta'", "weights"), qkv.capture_attention(delta):
        pass
    cho = qkv.QkvRecurrentModel(tiny.recurrent("cho"))
    with raises_sentence("QkvRecurrentModel", "AttentionInterface"), qkv.capture_attention(cho):
        pass
    compiled: Any = torch.compile(qkv.QkvEncoderModel(tiny.encoder()))
    with raises_sentence("compiled"), qkv.capture_attention(compiled):
        pass


def test_linear_attention_with_a_cache_is_a_sentence() -> None:
    model, inputs, _ = built("qkv linear")
    with raises_sentence("kernel='linear'", "use_cache=False"), qkv.capture_attention(model):
        model.generate(input_ids=inputs["input_ids"][:1], max_new_tokens=3, eos_token_id=None)
