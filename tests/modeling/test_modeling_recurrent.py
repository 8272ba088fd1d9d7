"""Recurrent encoder-decoders by the numbers of their paper: counts, losses, decoding in every way."""

import itertools
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel

import reference
import tiny
from comparison import assert_same
from qkv import QkvRecurrentConfig
from qkv.configuration.axes import AlignmentName, CellName, ReadoutName
from qkv.modeling import QkvRecurrentForConditionalGeneration
from qkv.modeling.recurrent.recurrent_stack import RecurrentCache
from sampling import sampled

pytestmark = pytest.mark.upstream

# Every size another one, so that no two can be mistaken for each other.
ODD = {"vocab_size": 23, "embedding_size": 7, "attention_size": 9, "num_encoder_layers": 2, "num_hidden_layers": 2}
COMBINATIONS = list(
    itertools.product(get_args(CellName), get_args(AlignmentName), get_args(ReadoutName), (True, False))
)
every_combination = pytest.mark.parametrize(
    ("cell", "attention", "readout", "bidirectional"), sampled(COMBINATIONS, 7), ids=str
)


def odd(cell: str, attention: str, readout: str, bidirectional: bool, **fields: Any) -> PreTrainedModel:
    """A jittered model in double precision."""
    words = {"cell": cell, "attention": attention, "readout": readout, "bidirectional": bidirectional}
    if readout != "none":
        fields = {"readout_size": 5, **fields}
    torch.manual_seed(0)
    config = QkvRecurrentConfig(**{**ODD, "hidden_size": 8, "eos_token_id": None, **words, **fields})
    return tiny.jitter(QkvRecurrentForConditionalGeneration(config)).double().eval()


# Padding on the right, on the left, and a hole: in sources and in targets.
KEEP = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 1, 1, 0]])
TARGET_KEEP = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 1, 0, 1, 0]])


def batch(rows: int = 3) -> dict[str, Tensor]:
    ids = torch.randint(3, 23, (rows, 6), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": KEEP[:rows]}


def targets(rows: int = 3, length: int = 5) -> Tensor:
    return torch.randint(3, 23, (rows, length), generator=torch.Generator().manual_seed(2))


# The formulas of the papers, token by token, over one row without padding.


def step(cell: Any, x: Tensor, state: Tensor) -> Tensor:
    """The next state of a cell: (I,), (R, D) -> (R, D)."""
    if cell.vectors == 1:
        return reference.gru_step(x, state[0], *cell.parameters())[None]
    return torch.stack(reference.lstm_step(x, *state, *cell.parameters()))


def steps(cell: Any, row: Tensor, state: Tensor) -> Tensor:
    """The outputs of a cell: (T, I), (R, D) -> (T, D)."""
    outputs = []
    for x in row:
        state = step(cell, x, state)
        outputs.append(state[0])
    return torch.stack(outputs)


def read(encoder: Any, ids: Tensor) -> Tensor:
    """Memory: (S,) -> (S, M)."""
    hidden = encoder.embed_tokens.weight[ids]
    for layer in encoder.layers:
        start = hidden.new_zeros(layer.cells[0].vectors, layer.cells[0].hidden_size)
        backward = [steps(cell, hidden.flip(0), start).flip(0) for cell in layer.cells[1:]]
        hidden = torch.cat((steps(layer.cells[0], hidden, start), *backward), dim=-1)
    return hidden


def attend(reader: Any, config: QkvRecurrentConfig, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """A context (M,) and the weights (S,) of its sources; without attention the ends of memory."""
    if config.attention == "none":
        width = config.encoder_hidden_size
        return torch.cat((memory[-1, :width], memory[0, width:])), torch.zeros(len(memory), dtype=memory.dtype)
    if config.attention == "dot":
        return reference.weighted_context(reference.linear(state, memory), memory)
    part = reader.step.alignment
    given = (part.q_proj.weight, part.k_proj.weight, part.k_proj.bias, part.v_proj.weight[0])
    return reference.weighted_context(reference.additive_scores(state, memory, *given), memory)


READOUTS = {
    "none": lambda part, joined, state: state,
    "tanh": lambda part, joined, state: reference.tanh(reference.linear(joined, part.proj.weight, part.proj.bias)),
    "maxout": lambda part, joined, state: reference.maxout(joined, part.proj.weight, part.proj.bias),
}


def write(decoder: Any, ids: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """What the head reads (T, P), and alignments (T, S): s_0 = tanh(W h), h the state that was read last backward."""
    config, reader, embedded = decoder.config, decoder.layers[0], decoder.embed_tokens.weight[ids]
    end = memory[0, config.encoder_hidden_size :] if config.bidirectional else memory[-1]
    start = reference.tanh(reference.linear(end, decoder.bridge.weight, decoder.bridge.bias))
    state, *others = start.view(len(decoder.layers), -1, config.hidden_size)
    found = []
    for x in embedded:
        context, weights = attend(reader, config, state[0], memory)
        state = step(reader.cell if config.attention == "none" else reader.step.cell, torch.cat((x, context)), state)
        found.append((state[0], context, weights))
    hidden, contexts, alignment = map(torch.stack, zip(*found, strict=True))
    for layer, own in zip(decoder.layers[1:], others, strict=True):
        hidden = steps(layer.cell, hidden, own)
    joined = zip(torch.cat((hidden, embedded, contexts), dim=-1), hidden, strict=True)
    return torch.stack([READOUTS[config.readout](decoder.readout, *each) for each in joined]), alignment


@every_combination
def test_every_combination_is_its_formulas_wherever_rows_are_padded(
    cell: str, attention: str, readout: str, bidirectional: bool
) -> None:
    model, inputs, ids = odd(cell, attention, readout, bidirectional), batch(), targets()
    given = {"decoder_input_ids": ids, "decoder_attention_mask": TARGET_KEEP, "output_attentions": True}
    output = model(**inputs, **given, use_cache=False)
    assert (output.encoder_last_hidden_state[KEEP == 0] == 0).all()
    expected = []
    for row, (keep, due) in enumerate(zip(KEEP.bool(), TARGET_KEEP.bool(), strict=True)):
        memory = read(model.model.encoder, inputs["input_ids"][row, keep])
        hidden, alignment = write(model.model.decoder, ids[row, due], memory)
        expected.append(reference.linear(hidden, model.lm_head.weight, model.lm_head.bias))
        if attention != "none":
            weights = output.cross_attentions[0][row, 0, due]
            assert_close(weights[:, keep], alignment, rtol=0, atol=1e-12)
            assert (weights[:, ~keep] == 0).all()
    assert (output.cross_attentions is None) == (attention == "none")
    assert_same(output.logits[TARGET_KEEP.bool()], torch.cat(expected), *model.parameters())


@every_combination
def test_decoding_step_by_step_is_teacher_forcing(cell: str, attention: str, readout: str, bidirectional: bool) -> None:
    model, inputs, ids = odd(cell, attention, readout, bidirectional), batch(), targets()
    with torch.no_grad():
        memory = model.get_encoder()(**inputs)
        for more in ({}, {"decoder_attention_mask": TARGET_KEEP}):
            real = TARGET_KEEP.bool() if more else torch.ones_like(ids, dtype=torch.bool)
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


def test_what_a_recurrent_network_has_not_is_refused() -> None:
    model = odd("gru", "dot", "none", True)
    for implementation in ("quantized", "offloaded"):
        with pytest.raises(ValueError, match=f"cache_implementation='{implementation}'"):
            model.generate(**batch(), max_new_tokens=2, cache_implementation=implementation)
    with pytest.raises(ValueError, match="does not support"):
        model.set_attn_implementation("sdpa")
    for each in (model, model.model):
        with pytest.raises(ValueError, match="decoder_input_ids"):
            each(**batch())


def test_generation_shows_the_alignment_of_each_step() -> None:
    model, inputs = odd("lstm", "additive", "tanh", True), batch()
    options = {"return_dict_in_generate": True, "output_attentions": True, "output_hidden_states": True}
    output = model.generate(**inputs, max_new_tokens=4, do_sample=False, **options)
    alignment = torch.cat([step[0] for step in output.cross_attentions], dim=2)
    assert alignment.shape == (3, 1, 4, 6)
    forced = model(**inputs, decoder_input_ids=output.sequences[:, :-1], output_attentions=True)
    assert_close(alignment, forced.cross_attentions[0], rtol=0, atol=1e-12)
    assert len(output.decoder_hidden_states) == 4 and len(output.encoder_hidden_states) == 3
