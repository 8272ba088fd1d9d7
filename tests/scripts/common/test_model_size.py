"""A model larger than the machine is refused in a sentence, before any memory is taken."""

import pytest
import torch
from accelerate import init_empty_weights
from transformers import AutoModel

import qkv
import tiny
from qkv.scripts.common import model_size

LARGE = {
    "vocab_size": 10**9,
    "max_position_embeddings": 10**9,
    "intermediate_size": 10**12,
    "head_dim": 10**10,
}


@pytest.mark.parametrize("field", LARGE)
def test_the_largest_weight_is_named(field: str) -> None:
    config = tiny.decoder(**{"position": "learned", field: LARGE[field]})
    with pytest.raises(
        ValueError, match=r"of this QkvDecoderConfig take [\d,.]+ GB, and there are .*the largest, \w.* is "
    ):
        qkv.QkvDecoderForCausalLM(config)
    with pytest.raises(ValueError, match="GB of memory"):
        AutoModel.from_config(config)


def test_so_are_the_parts_of_a_config() -> None:
    with pytest.raises(ValueError, match=rf"{10**10} x "):
        qkv.QkvEncoderDecoderModel(tiny.encoder_decoder(vocab_size=10**10))


def test_more_than_can_be_counted() -> None:
    with pytest.raises(ValueError, match="more than 64 bits can count"):
        qkv.QkvDecoderModel(tiny.decoder(vocab_size=10**18))


def test_many_layers_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny.decoder(vocab_size=1000)
    needed = sum(weight.nbytes for weight in qkv.QkvDecoderModel(config).parameters())
    monkeypatch.setattr(model_size, "total_memory", lambda: needed)
    qkv.QkvDecoderModel(config)
    monkeypatch.setattr(model_size, "total_memory", lambda: needed - 1)
    with pytest.raises(ValueError, match="make its sizes smaller"):
        qkv.QkvDecoderModel(config)


def test_what_takes_no_memory_is_built() -> None:
    config = tiny.decoder(vocab_size=10**12)
    with torch.device("meta"):
        qkv.QkvDecoderModel(config)
    with init_empty_weights(include_buffers=True):
        qkv.QkvDecoderModel(config)


def test_counting_changes_no_weight() -> None:
    config = tiny.decoder(vocab_size=1000)
    weights = []
    for limit in (10**9, model_size.SMALL):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model_size, "SMALL", limit)
            torch.manual_seed(0)
            weights.append(qkv.QkvDecoderForCausalLM(config).state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_class_of_others_with_another_constructor_is_built() -> None:
    class Named(qkv.QkvDecoderModel):
        def __init__(self, config: qkv.QkvDecoderConfig, name: str) -> None:
            super().__init__(config)
            self.name = name

    assert Named(tiny.decoder(vocab_size=1000), "x").name == "x"
