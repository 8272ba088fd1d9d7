"""What kernels without scores refuse, in a sentence."""

import pytest

from errors import raises_sentence
from qkv import QkvDecoderConfig, QkvEncoderConfig, QkvEncoderDecoderConfig
from qkv.configuration.axes import BIAS_POSITIONS, RECURRENT_KERNELS, STATE_KERNELS


@pytest.mark.parametrize("kernel", STATE_KERNELS)
def test_kernels_without_scores_refuse_what_acts_on_them(kernel: str) -> None:
    config = QkvDecoderConfig(kernel=kernel, position="rope", num_hidden_layers=2)
    # Caches of transformers' layers for keys and values, which the stack exchanges, know how many tokens they hold.
    assert config.layer_types == ["full_attention", "full_attention"]
    for fields, mention in (
        *(({"position": position}, f"position={position!r}") for position in (*BIAS_POSITIONS, "xpos")),
        ({"pattern": "sliding", "sliding_window": 4}, "pattern='sliding'"),
        ({"pattern": ["full", "block_sparse"], "num_hidden_layers": 2}, "pattern='block_sparse'"),
        ({"attention_dropout": 0.1}, "attention_dropout=0.1"),
        ({"attention_multiplier": 1.0}, "attention_multiplier=1.0"),
    ):
        with raises_sentence(f"kernel={kernel!r}", mention):
            QkvDecoderConfig(kernel=kernel, **fields)


@pytest.mark.parametrize("kernel", RECURRENT_KERNELS)
def test_kernels_that_read_in_order_are_those_of_decoders(kernel: str) -> None:
    for config_class, fields, mention in (
        (QkvEncoderConfig, {}, "QkvEncoderConfig"),
        # A full pattern would not help.
        (QkvEncoderConfig, {"pattern": "block_sparse"}, "QkvEncoderConfig"),
        (QkvEncoderDecoderConfig, {}, "QkvEncoderConfig"),
        (QkvDecoderConfig, {"cross_attention": True}, "cross_attention=True"),
        (QkvEncoderDecoderConfig, {"decoder": {"kernel": kernel}}, "cross_attention=True"),
    ):
        given = fields if "decoder" in fields else {**fields, "kernel": kernel}
        with raises_sentence(f"kernel={kernel!r}", mention, "'linear'"):
            config_class(**given)
    plan = QkvDecoderConfig(kernel=kernel).base_model_tp_plan
    assert not [name for name in plan if "self_attn" in name]
