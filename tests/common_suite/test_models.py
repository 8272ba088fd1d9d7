"""transformers' common tests over every family, and over BERT, GPT-2 and T5 of transformers itself."""

import fnmatch
import functools
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
import transformers_source
from transformers.models.auto import modeling_auto

if not transformers_source.SOURCE.is_dir():
    pytest.skip("TRANSFORMERS_SOURCE names no source of transformers; see `make common-suite`", allow_module_level=True)
transformers_source.load_tests()

import transformers_tests.test_expert_parallel_mixin as expert_parallel  # noqa: E402
import transformers_tests.test_tensor_parallel_mixin as parallel  # noqa: E402
from model_testers import FAMILIES, Family, model_tester  # noqa: E402
from transformers_tests.generation.test_utils import GenerationTesterMixin  # noqa: E402
from transformers_tests.test_modeling_common import ModelTesterMixin  # noqa: E402
from transformers_tests.test_tensor_parallel_mixin import TensorParallelTesterMixin  # noqa: E402
from transformers_tests.test_training_mixin import TrainingTesterMixin  # noqa: E402

fsdp = transformers_source.load_fsdp()

# {test: {family: why it does not apply}}.
INAPPLICABLE = transformers_source.inapplicable()
MIXINS: list[type] = [
    ModelTesterMixin,
    GenerationTesterMixin,
    TrainingTesterMixin,
    TensorParallelTesterMixin,
    expert_parallel.ExpertParallelTesterMixin,
    fsdp.FSDPTesterMixin,
]


def enter_names() -> None:
    """Enter our heads in the tables of names, where the tests look up which labels a head takes."""
    for name in dir(modeling_auto):
        mapping = getattr(getattr(modeling_auto, name), "_model_mapping", None)
        if name.startswith("AutoModel") and mapping is not None:
            for config, head in mapping._extra_content.items():
                names = tuple(each.__name__ for each in head) if isinstance(head, tuple) else head.__name__
                mapping._model_mapping[config.model_type] = names


def leave_out(model_class: Any, name: str) -> None:
    """Leave out an input that the tests hand over, which their classes swallow and ours refuse."""
    forward = model_class.forward

    @functools.wraps(forward)
    def without(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **{key: value for key, value in kwargs.items() if key != name})

    model_class.forward = without


def skipped(reason: str) -> Any:
    return unittest.skip(reason)(lambda self: None)


def inapplicable() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield tests, by a name or a pattern, with the families that they do not apply to; one that is unknown fails."""
    tests = {name for mixin in MIXINS for name in dir(mixin)}
    for pattern, reasons in INAPPLICABLE.items():
        names = fnmatch.filter(tests, pattern)
        assert names, f"transformers has no test {pattern}"
        yield from ((name, reasons) for name in names)


def common_tests(name: str, family: Family) -> type[unittest.TestCase]:
    """Return transformers' tests of a family, without those that do not apply."""
    config = family.config()
    mixins: list[type] = [ModelTesterMixin]
    if any(head.can_generate() for head in family.classes):
        mixins.append(GenerationTesterMixin)
    if hasattr(model_tester(family), "causal_lm_class"):
        mixins += [TrainingTesterMixin, TensorParallelTesterMixin]
    if getattr(config, "base_model_ep_plan", None):
        mixins.append(expert_parallel.ExpertParallelTesterMixin)
    if family.is_language_model:
        mixins.append(fsdp.FSDPTesterMixin)

    def prepare(self: Any, inputs: Any, model_class: Any, return_labels: bool = False) -> Any:
        prepared = ModelTesterMixin._prepare_for_class(self, inputs, model_class, return_labels)
        own = family.labels.get(model_class.__name__)
        return {**prepared, **own()} if return_labels and own else prepared

    members = {
        "all_model_classes": family.classes,
        "is_encoder_decoder": bool(config.is_encoder_decoder),
        "model_tester": property(lambda self: model_tester(family)),
        "_prepare_for_class": prepare,
        "training_overfit_seq_length": 40,
        **family.traits,
        **{test: skipped(why[name]) for test, why in inapplicable() if name in why},
    }
    return type(name, (*mixins, unittest.TestCase), {**members, "__module__": __name__})


# None means all.
parallel.TP_DISTRIBUTED_TEST_MODEL_TYPES = expert_parallel.EP_DISTRIBUTED_TEST_MODEL_TYPES = None
enter_names()
for head in FAMILIES["Detection"].classes:
    leave_out(head, "decoder_input_ids")  # pixels once more, for DETR is an encoder-decoder by its config
globals().update({f"Test{name}": common_tests(name, family) for name, family in FAMILIES.items()})
