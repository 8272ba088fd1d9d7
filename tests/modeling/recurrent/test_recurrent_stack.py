"""The two halves: how a decoder starts, how weights start, what is recomputed, and what neither half can read."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import DynamicCache

import tiny
from comparison import draw
from errors import raises_sentence
from qkv.modeling import QkvRecurrentForConditionalGeneration
from qkv.modeling.recurrent.cells import CELLS, RecurrentDecoderLayer, StepMode, reading_orders
from qkv.modeling.recurrent.recurrent_stack import QkvRecurrentDecoder, QkvRecurrentEncoder, RecurrentCache

ODD = {"hidden_size": 6, "encoder_hidden_size": 5, "embedding_size": 7, "attention_size": 9, "readout_size": 3}
KEEP = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 1, 1, 1]])


def half(part: Any, **fields: Any) -> Any:
    torch.manual_seed(0)
    return tiny.jitter(part(tiny.recurrent(**{**ODD, **fields}))).double().eval()


def tokens(rows: int = 2, length: int = 5) -> Tensor:
    return torch.randint(4, tiny.VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def test_reading_orders_put_real_tokens_first() -> None:
    keep = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]]).bool()
    forward, backward = reading_orders(keep)
    assert forward[:3, :3].tolist() == [[0, 1, 2], [2, 3, 4], [0, 2, 3]]
    assert backward[:3, :3].tolist() == [[2, 1, 0], [4, 3, 2], [3, 2, 0]]
    for order in (forward, backward):
        assert torch.equal(order.sort(1).values, torch.arange(5).expand(4, -1))


@pytest.mark.parametrize("name", CELLS)
@torch.no_grad()
def test_a_cell_uses_the_weights_it_has_now(name: str) -> None:
    """Offloading, sharding and adapters put other parameters in place without telling torch's flat list."""
    torch.manual_seed(0)
    made = CELLS[name](3, 4, batch_first=True).double()
    other = copy.deepcopy(made)
    for key, value in list(other._parameters.items()):
        other._parameters[key] = torch.nn.Parameter(value * 2)
        getattr(made, key).mul_(2)
    inputs, state = draw(3, 5, 3), draw(3, made.vectors, 4)
    assert torch.equal(other(inputs, state)[0], made(inputs, state)[0])
    assert torch.equal(other(inputs[:, 0], state)[0], made(inputs[:, 0], state)[0])


def test_dropout_acts_on_what_a_layer_gives_not_on_its_state() -> None:
    layer = RecurrentDecoderLayer(tiny.recurrent(hidden_size=4, hidden_dropout=0.5)).double()
    inputs, state = draw(3, 5, 4), draw(3, 1, 4)
    plain, states = copy.deepcopy(layer).eval()(inputs, state, StepMode(None, stepwise=True))
    dropped, same = layer(inputs, state, StepMode(None, stepwise=True))
    assert torch.equal(states, same)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel() and torch.equal(dropped[kept], 2 * plain[kept])


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
    torch.manual_seed(0)
    model, inputs, calls = QkvRecurrentForConditionalGeneration(tiny.recurrent("luong")), tiny.translations(), []
    for module in model.modules():
        if type(module).__name__ == "LSTM":
            module.register_forward_pre_hook(lambda *_: calls.append(1))
    once = inputs["labels"].shape[1] + 2 * 2 + 1
    model.train()(**inputs).loss.backward()
    assert len(calls) == once
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model(**inputs).loss.backward()
    assert len(calls) == 3 * once


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
