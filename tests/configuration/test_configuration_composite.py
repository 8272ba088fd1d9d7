"""What parts of a config are given flat, and what each keeps for itself."""

from dataclasses import fields

import pytest

from qkv import QkvDualEncoderConfig
from qkv.configuration import CONFIGS
from qkv.configuration.configuration_base import QkvConfig
from qkv.configuration.configuration_composite import CompositeConfig

COMPOSITES = [config_class for config_class in CONFIGS if issubclass(config_class, CompositeConfig)]


@pytest.mark.parametrize("config_class", COMPOSITES)
def test_every_part_gets_what_is_given_flat_and_keeps_what_differs(config_class: type[QkvConfig]) -> None:
    first, *others = config_class.sub_configs
    config = config_class(norm_eps=1e-3, **{first: {"norm_eps": 1e-4}})
    assert getattr(config, first).norm_eps == 1e-4
    assert {getattr(config, part).norm_eps for part in others} == {1e-3}
    assert "norm_eps" not in vars(config)
    for part, part_class in config_class.sub_configs.items():
        assert {field.name for field in fields(part_class)} <= config_class.known_fields(), part


def test_the_plan_over_devices_names_the_modules_of_the_parts() -> None:
    plan = QkvDualEncoderConfig().base_model_tp_plan
    assert {name.partition(".")[0] for name in plan} == {"text_model", "vision_model"}
