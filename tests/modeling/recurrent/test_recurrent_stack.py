"""The two halves: how a decoder starts, how weights start, what is recomputed, and what neither half can read."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import DynamicCache

import tiny
from errors import raises_sentence
from qkv.modeling.recurrent.recurrent_stack import QkvRecurrentDecoder, QkvRecurrentEncoder, RecurrentCache

ODD = {"hidden_size": 6, "encoder_hidden_size": 5, "embedding_size": 7, "attention_size": 9, "readout_size": 3}
KEEP = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 1, 1, 1]])


def half(part: Any, **fields: Any) -> Any:
    torch.manual_seed(0)
    return tiny.jitter(part(tiny.recurrent(**{**ODD, **fields}))).double().eval()


def tokens(rows: int = 2, length: int = 5) -> Tensor:
    return torch.randint(4, tiny.VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("layers", [1, 3])
def test_memory_of_padding_is_zero_and_that_of_a_row_is_its_own(layers: int) -> None:
    encoder = half(QkvRecurrentEncoder, num_encoder_layers=layers)
    ids = tokens()
    output = encoder(ids, KEEP, output_hidden_states=True)
    assert output.last_hidden_state.shape == (2, 5, 10)
    assert [state.shape[-1] for state in output.hidden_states] == [7, *[10] * layers]
    assert (output.last_hidden_state[~KEEP.bool()] == 0).all()
    for index, keep in enumerate(KEEP.bool()):
        alone = encoder(ids[index][None, keep]).last_hidden_state[0]
        assert_close(output.last_hidden_state[index][keep], alone, rtol=0, atol=1e-12)
    assert [len(encoder(ids, output_hidden_states=[-1]).hidden_states)] == [layers + 1]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_decoder_starts_from_what_was_read_last_backward(bidirectional: bool) -> None:
    """s_0 = tanh(W h), h the backward state at the first token; of one direction, the state at the last."""
    decoder = half(QkvRecurrentDecoder, bidirectional=bidirectional, num_hidden_layers=2, cell="lstm")
    memory = torch.randn(2, 5, 10 if bidirectional else 5, dtype=torch.float64)
    _, states = decoder.begin(memory, KEEP.bool(), RecurrentCache(2))
    ends = torch.stack((memory[0, 0, 5:], memory[1, 2, 5:])) if bidirectional else memory[[0, 1], [3, 4]]
    expected = torch.tanh(ends @ decoder.bridge.weight.T + decoder.bridge.bias).view(2, 2, 2, 6)
    for layer, state in enumerate(states):
        assert_close(state, expected[:, layer])


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_cells_start_orthogonal_and_an_lstm_remembers(name: str) -> None:
    torch.manual_seed(0)
    cell = QkvRecurrentEncoder(tiny.recurrent(cell=name, hidden_size=16)).layers[0].cells[0]
    for gate in cell.weight_hh_l0.split(16):
        assert_close(gate @ gate.T, torch.eye(16), rtol=0, atol=1e-5)
    assert float(cell.weight_ih_l0.std()) == pytest.approx(0.1, rel=0.1)
    assert (cell.bias_hh_l0 == 0).all() and cell.bias_ih_l0.sum() == (16 if name == "lstm" else 0)
    assert (cell.bias_ih_l0[16:32] == (name == "lstm")).all()


def test_gradient_checkpointing_recomputes_every_step_and_layer() -> None:
    named = "RecurrentForConditionalGeneration-luong"
    model = next(case for case in tiny.CASES if case.name == named).build()
    inputs = tiny.translations()
    length, calls = inputs["labels"].shape[1], []
    for module in model.modules():
        if type(module).__name__ in ("AttendedStep", "RecurrentLayer", "RecurrentDecoderLayer"):
            # Hooks stand outside of what is recomputed, its cells are inside.
            for part in module.modules():
                if type(part).__name__ == "LSTM":
                    part.register_forward_pre_hook(lambda *_: calls.append(1))
    once = length + 2 * 2 + 1
    model.train()(**inputs).loss.backward()
    assert len(calls) == once
    calls.clear()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model(**inputs).loss.backward()
    assert len(calls) == 2 * once


MEMORY = torch.zeros(2, 5, 10, dtype=torch.float64)
GIVEN = {"encoder_hidden_states": MEMORY}
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "width": ({"encoder_hidden_states": MEMORY[..., :9]}, ("(2, 5, 9)", "batch=2", "memory_size=10")),
    "rows": ({"encoder_hidden_states": MEMORY[:1]}, ("encoder_hidden_states", "(1, 5, 10)", "batch=2")),
    "memory-mask": ({**GIVEN, "encoder_attention_mask": KEEP[:, :4]}, ("encoder_attention_mask", "(2, 4)", "(2, 5)")),
    "mask": ({**GIVEN, "attention_mask": KEEP[:, :4]}, ("attention_mask", "(2, 4)", "2", "5")),
    "pairs": ({**GIVEN, "attention_mask": torch.ones(2, 1, 5, 5)}, ("attention_mask", "(2, 1, 5, 5)")),
    "other-cache": ({**GIVEN, "past_key_values": DynamicCache()}, ("past_key_values", "DynamicCache")),
    "layers-of-cache": ({**GIVEN, "past_key_values": RecurrentCache(3)}, ("past_key_values", "3 layers", "1 layers")),
    "misspelt": ({**GIVEN, "attention_maks": KEEP}, ("'attention_maks'", "'attention_mask'")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_inputs_that_do_not_fit(name: str) -> None:
    inputs, mentions = REFUSED[name]
    with raises_sentence(*mentions):
        half(QkvRecurrentDecoder)(tokens(), **inputs)


def test_a_cache_of_other_rows_and_an_encoder_of_other_sizes() -> None:
    decoder, cache = half(QkvRecurrentDecoder), RecurrentCache(1)
    decoder(tokens(), encoder_hidden_states=MEMORY, past_key_values=cache)
    with raises_sentence("{2} rows", "3 rows"):
        decoder(tokens(3), encoder_hidden_states=torch.zeros(3, 5, 10, dtype=torch.float64), past_key_values=cache)
    encoder = half(QkvRecurrentEncoder)
    with raises_sentence("attention_mask", "(2, 4)", "(2, 5)"):
        encoder(tokens(), KEEP[:, :4])
    with raises_sentence("(2, 5, 6)"):
        encoder(inputs_embeds=torch.zeros(2, 5, 6, dtype=torch.float64))
