"""Recurrent encoder-decoders by the numbers of their paper: counts, losses, decoding in every way."""

import itertools
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel

import tiny
from qkv import QkvRecurrentConfig, presets
from qkv.configuration.axes import AlignmentName, CellName, ReadoutName
from qkv.modeling import QkvRecurrentForConditionalGeneration, QkvRecurrentModel
from qkv.modeling.recurrent.recurrent_stack import RecurrentCache
from sampling import sampled

pytestmark = pytest.mark.upstream

# Every size another one, so that no two can be mistaken for each other.
ODD = {"vocab_size": 23, "embedding_size": 7, "attention_size": 9, "num_encoder_layers": 2, "num_hidden_layers": 2}
COMBINATIONS = list(
    itertools.product(get_args(CellName), get_args(AlignmentName), get_args(ReadoutName), (True, False))
)
every_combination = pytest.mark.parametrize(
    ("cell", "attention", "readout", "bidirectional"), sampled(COMBINATIONS, 5), ids=str
)


def odd(cell: str, attention: str, readout: str, bidirectional: bool, **fields: Any) -> PreTrainedModel:
    """A jittered model in double precision."""
    words = {"cell": cell, "attention": attention, "readout": readout, "bidirectional": bidirectional}
    if readout != "none":
        fields = {"readout_size": 5, **fields}
    torch.manual_seed(0)
    config = QkvRecurrentConfig(**{**ODD, "hidden_size": 8, "eos_token_id": None, **words, **fields})
    return tiny.jitter(QkvRecurrentForConditionalGeneration(config)).double().eval()


def batch(rows: int = 3) -> dict[str, Tensor]:
    """Sources padded on the right, on the left, and with a hole."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 1, 1, 0]])[:rows]
    return {"input_ids": torch.randint(3, 23, (rows, 6), generator=generator), "attention_mask": mask}


def targets(rows: int = 3, length: int = 5) -> Tensor:
    return torch.randint(3, 23, (rows, length), generator=torch.Generator().manual_seed(2))


def test_the_number_of_parameters_is_the_papers() -> None:
    """Appendix A.2 and B.1: matrices of n, m, n', l and K; the paper leaves biases out, so they are counted apart."""
    n, m, inner, maxout, words = 1000, 620, 1000, 500, 30_000
    embeddings = 2 * words * m
    encoder = 2 * 3 * (n * m + n * n)  # W, W_z, W_r, U, U_z, U_r in both directions
    decoder = 3 * (n * m + n * n + n * 2 * n) + n * n  # and C, C_z, C_r; W_s of the first state
    alignment = inner + inner * n + inner * 2 * n  # v, W, U
    readout = 2 * maxout * (n + m + 2 * n) + words * maxout  # U_o, V_o, C_o; W_o
    matrices = embeddings + encoder + decoder + alignment + readout
    assert matrices == 80_401_000
    # Two for each gate of a cell, as fused kernels have them; W_s, U, the readout and the scores have one each.
    biases = 3 * (2 * 3 * n) + n + inner + 2 * maxout + words
    with torch.device("meta"):
        model = QkvRecurrentForConditionalGeneration(presets.rnnsearch_50())
    assert model.num_parameters() == matrices + biases == 80_452_000
    assert sum(p.numel() for name, p in model.named_parameters() if "bias" in name) == biases


@every_combination
def test_rows_are_translated_as_if_alone_wherever_they_are_padded(
    cell: str, attention: str, readout: str, bidirectional: bool
) -> None:
    model, inputs, labels = odd(cell, attention, readout, bidirectional), batch(), targets()
    with torch.no_grad():
        output = model(**inputs, labels=labels, output_attentions=True)
        for row, keep in enumerate(inputs["attention_mask"].bool()):
            alone = model(inputs["input_ids"][row][None, keep], labels=labels[row][None], output_attentions=True)
            assert_close(output.logits[row], alone.logits[0], rtol=0, atol=1e-12)
            for weights, own in zip(output.cross_attentions or (), alone.cross_attentions or (), strict=True):
                assert weights.shape == (3, 1, 5, 6)
                assert_close(weights[row][..., keep], own[0], rtol=0, atol=1e-12)
                assert (weights[row][..., ~keep] == 0).all()
    assert (output.cross_attentions is None) == (attention == "none")


@every_combination
def test_decoding_step_by_step_is_teacher_forcing(cell: str, attention: str, readout: str, bidirectional: bool) -> None:
    model, inputs, ids = odd(cell, attention, readout, bidirectional), batch(), targets()
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 1, 0, 1, 0]])
    with torch.no_grad():
        memory = model.get_encoder()(**inputs)
        for more in ({}, {"decoder_attention_mask": mask}):
            real = mask.bool() if more else torch.ones_like(ids, dtype=torch.bool)
            whole = model(**inputs, decoder_input_ids=ids, **more, use_cache=False)
            cached = model(**inputs, decoder_input_ids=ids, **more)
            assert_close(cached.logits[real], whole.logits[real], rtol=0, atol=1e-12)
            for ends in ((1, 2, 3, 4, 5), (2, 5)):
                parts, cache, start = [], None, 0
                for end in ends:
                    given = {name: value[:, :end] for name, value in more.items()}
                    given |= {"encoder_outputs": memory, "attention_mask": inputs["attention_mask"]}
                    output = model(**given, decoder_input_ids=ids[:, start:end], past_key_values=cache, use_cache=True)
                    parts, cache, start = [*parts, output.logits], output.past_key_values, end
                assert_close(torch.cat(parts, 1)[real], whole.logits[real], rtol=0, atol=1e-12)
                assert isinstance(cache, RecurrentCache) and cache.get_seq_length() == 5
                for layer, other in zip(cache.layers, cached.past_key_values.layers, strict=True):
                    assert_close(layer.state, other.state, rtol=0, atol=1e-12)


@every_combination
def test_every_combination_learns_and_is_saved(
    cell: str, attention: str, readout: str, bidirectional: bool, tmp_path: Any
) -> None:
    model = odd(cell, attention, readout, bidirectional).train()
    output = model(**batch(), labels=targets())
    assert output.past_key_values is None
    output.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0, name
    model.eval().save_pretrained(tmp_path)
    loaded = QkvRecurrentForConditionalGeneration.from_pretrained(tmp_path)
    weights = loaded.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    with torch.no_grad():
        given = {**batch(), "labels": targets()}
        assert_close(loaded(**given).logits, model(**given).logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_each_position_predicts_its_own_label(smoothing: float) -> None:
    model = odd("gru", "additive", "maxout", True, label_smoothing=smoothing)
    labels = targets()
    labels[1, 3:] = -100
    output = model(**batch(), labels=labels)
    chances, due = output.logits.log_softmax(-1), labels != -100
    right = chances.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    assert_close(output.loss, (-(1 - smoothing) * right - smoothing * chances.mean(-1))[due].mean())
    fed = model.prepare_decoder_input_ids_from_labels(labels)
    assert fed[1].tolist() == [0, *labels[1, :3].tolist(), 0]
    assert torch.equal(model(**batch(), decoder_input_ids=fed).logits, output.logits)
    counted = model(**batch(), labels=labels, num_items_in_batch=torch.tensor(40)).loss
    assert_close(counted, output.loss * int(due.sum()) / 40)


def test_memory_is_compared_with_once() -> None:
    model, inputs, calls = odd("gru", "additive", "tanh", True), batch(), []
    model.get_decoder().layers[0].step.alignment.k_proj.register_forward_hook(lambda *_: calls.append(1))
    model.generate(**inputs, max_new_tokens=5, do_sample=False)
    assert len(calls) == 1


def test_an_assistant_is_refused() -> None:
    model, assistant = (odd(cell, "additive", "tanh", True) for cell in ("lstm", "gru"))
    with pytest.raises(ValueError, match="crop"):
        model.generate(batch(1)["input_ids"], max_new_tokens=8, do_sample=False, assistant_model=assistant)


@pytest.mark.parametrize("implementation", ["quantized", "offloaded"])
def test_caches_for_keys_and_values_are_refused(implementation: str) -> None:
    model = odd("gru", "dot", "none", True)
    with pytest.raises(ValueError, match=f"cache_implementation='{implementation}'"):
        model.generate(**batch(), max_new_tokens=2, cache_implementation=implementation)


def test_attention_backends_are_refused() -> None:
    model = odd("gru", "dot", "none", True)
    assert model.config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="does not support"):
        model.set_attn_implementation("sdpa")


def test_generation_shows_the_alignment_of_each_step() -> None:
    model, inputs = odd("lstm", "additive", "tanh", True), batch()
    options = {"return_dict_in_generate": True, "output_attentions": True, "output_hidden_states": True}
    output = model.generate(**inputs, max_new_tokens=4, do_sample=False, **options)
    alignment = torch.cat([step[0] for step in output.cross_attentions], dim=2)
    assert alignment.shape == (3, 1, 4, 6)
    forced = model(**inputs, decoder_input_ids=output.sequences[:, :-1], output_attentions=True)
    assert_close(alignment, forced.cross_attentions[0], rtol=0, atol=1e-12)
    assert len(output.decoder_hidden_states) == 4 and len(output.encoder_hidden_states) == 3


def test_without_anything_to_decode_there_is_one_sentence() -> None:
    for model in (odd("gru", "dot", "none", True), odd("gru", "dot", "none", True).model):
        with pytest.raises(ValueError, match="decoder_input_ids"):
            model(**batch())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnnsearch", "sutskever"])
def test_it_compiles_and_is_exported_at_fixed_lengths(kind: str) -> None:
    """torch breaks the graph at every recurrent network, and unrolls one to export it, for any batch."""
    case = next(case for case in tiny.CASES if case.name == f"RecurrentForConditionalGeneration-{kind}")
    model, inputs = case.build(), {**case.inputs(), "use_cache": False}
    with torch.no_grad():
        expected = model(**inputs).logits
        assert_close(torch.compile(model, backend="aot_eager")(**inputs).logits, expected, rtol=1e-5, atol=1e-5)
    shapes = {name: {0: torch.export.Dim("batch", min=2, max=9)} for name in inputs if name != "use_cache"}
    program = torch.export.export(model, (), inputs, dynamic_shapes={**shapes, "use_cache": None}).module()
    assert_close(program(**inputs).logits, expected, rtol=1e-5, atol=1e-5)
    more = {name: torch.cat((value, value[:1])) for name, value in inputs.items() if name in shapes}
    with torch.no_grad():
        found, whole = (each(**more, use_cache=False).logits for each in (program, model))
    assert_close(found, whole, rtol=1e-5, atol=1e-5)


def test_base_models_give_what_heads_read() -> None:
    model, inputs = odd("lstm", "dot", "maxout", True), batch()
    base = model.model
    assert isinstance(base, QkvRecurrentModel)
    with torch.no_grad():
        output = base(**inputs, decoder_input_ids=targets(), output_hidden_states=True)
        assert output.last_hidden_state.shape == (3, 5, 5)
        assert_close(model.lm_head(output.last_hidden_state), model(**inputs, decoder_input_ids=targets()).logits)
    assert [state.shape[-1] for state in output.decoder_hidden_states] == [7, 8, 5]
    assert [state.shape[-1] for state in output.encoder_hidden_states] == [7, 8, 8]
