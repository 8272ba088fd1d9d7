"""The table of heads against the classes of ours, the Auto classes that load them, and the pipelines of transformers."""

import pytest
import transformers
from transformers.pipelines import SUPPORTED_TASKS

import qkv
from qkv import modeling
from qkv.scripts.common.heads import HEADS, Head, head_of
from qkv.scripts.tasks.registry import LEARNING

CONFIGS = {name: getattr(qkv, name) for name in dir(qkv) if name.startswith("Qkv") and name.endswith("Config")}
LOADED = {  # class names by Auto class, of all families
    (auto, target.rpartition(".")[2])
    for config in CONFIGS.values()
    for auto, target in getattr(config, "auto_classes", {}).items()
    if auto not in ("AutoConfig", "AutoModelForDecision")
}


def test_every_class_has_a_head() -> None:
    assert all(map(head_of, (name for name in modeling.__all__ if name.startswith("Qkv"))))


def test_auto_classes_load_the_heads() -> None:
    known = {head.auto_class for head in HEADS}
    assert {auto for auto, _ in LOADED} <= known and all(hasattr(transformers, auto) for auto in known)
    for auto, name in LOADED - {("AutoModel", "QkvDualEncoderModel")}:
        assert head_of(name).auto_class == auto or name.endswith("Model"), name


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.ending)
def test_pipelines_are_those_of_transformers(head: Head) -> None:
    assert head.has_pipeline == (head.task in SUPPORTED_TASKS)
    if head.has_pipeline:
        assert head.hub == head.task and head.auto_class in [each.__name__ for each in SUPPORTED_TASKS[head.task]["pt"]]


def test_heads_with_a_task_are_those_that_learn() -> None:
    assert {head.ending for head in HEADS if head.task} == {each.ending for each in LEARNING}
