"""Labels of classes, in the order of their numbers."""

import re

import pytest

from qkv import QkvEncoderConfig


def test_labels_are_in_the_order_of_their_numbers() -> None:
    config = QkvEncoderConfig(id2label={"2": "c", "0": "a", "1": "b"}, label2id={"c": 2, "a": 0, "b": 1})
    assert list(config.id2label.items()) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"id2label": {0: "a", 2: "b"}}, "does not number its labels 0, 1, … without gaps"),
        ({"id2label": {"x": "a"}}, "does not number its labels"),
        ({"id2label": {0: "a", "0": "b"}}, "does not number its labels"),
        ({"id2label": {0: ["a"]}}, "has the label ['a'], expected a text"),
        ({"label2id": 5}, "label2id=5 is not a dict of labels and numbers such as {'cat': 0}"),
        ({"id2label": {0: "a"}, "label2id": {"a": []}}, "is not a dict of labels and numbers"),
        ({"label2id": {"a": 0, "b": 1, "c": 2}}, "says nothing without id2label; give both, or num_labels"),
    ],
)
def test_labels_that_number_no_classes_are_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        QkvEncoderConfig(**fields)
