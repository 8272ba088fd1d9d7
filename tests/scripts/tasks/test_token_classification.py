"""Tags of words: on the first token of each, scored as entities where they are IOB2's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.scripts.data.text_columns import TaggedWords
from qkv.scripts.tasks.class_scores import MISSED
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.token_classification import TokenClassification, first_tokens
from recipes import recipe_of

WORDS = {"train": [["Ann", "of", "Köln"], ["no", "one"], ["Ann"]], "test": [["Ann", "of", "Xyz"], ["of"]]}
TAGS = {"train": [[0, 2, 1], [2, 2], [0]], "test": [[0, 2, 1], [2]]}
NAMES = ["B-PER", "I-PER", "O"]


def task_of(tokenizer: str = "bpe", names: list[str] = NAMES, length: int = 32) -> TokenClassification:
    """A task of few words."""
    recipe = recipe_of(text=dict(tokenizer=tokenizer, length=length, vocab_size=270))
    return TokenClassification(recipe, TaggedWords("c", "t", "s", WORDS, TAGS, names))


@pytest.mark.parametrize("tokenizer", ["bpe", "wordpiece", "words", "bytes", "characters"])
def test_the_first_token_of_each_word_has_its_tag(tokenizer: str) -> None:
    task = task_of(tokenizer)
    batch = task.collate(task.train.__getitems__([0, 1]), [0, 1])
    for ids, labels, words, tags in zip(
        batch["input_ids"], batch["labels"], WORDS["train"], TAGS["train"], strict=False
    ):
        due = labels != -100
        assert labels[due].tolist() == tags and task.count(batch) == 5
        first = [task.processor.decode(each).strip() for each in ids[due]]
        assert [token[0].lower() for token in first] == [word[0].lower() for word in words]
    assert batch["labels"].shape == batch["input_ids"].shape == batch["attention_mask"].shape


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text("abü", min_size=1, max_size=5), min_size=1, max_size=6), cut=st.integers(1, 4))
def test_every_word_has_one_first_token(words: list[str], cut: int) -> None:
    text = " ".join(words)
    offsets = [(begin, min(begin + 1, len(text))) for begin in range(len(text))] if cut == 1 else []
    place = 0
    for number, word in enumerate(words):  # tokens of `cut` letters, the first with the space before it
        for begin in range(0, len(word), cut) if cut > 1 else ():
            start = place + begin - (begin == 0 and number > 0)
            offsets.append((start, place + min(begin + cut, len(word))))
        place += len(word) + 1
    assert [word for word in first_tokens(words, [(0, 0), *offsets, (0, 0)]) if word is not None] == list(
        range(len(words))
    )


def test_entities_are_scored_by_rows_and_other_tags_by_words() -> None:
    task = task_of()
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    logits = torch.nn.functional.one_hot(batch["labels"].clamp(min=0), 3).float()
    outputs = type("Outputs", (), {"logits": logits})
    answers = task.answer(None, outputs, batch)
    assert answers == [(["B-PER", "O", "I-PER"],) * 2, (["O"],) * 2]
    assert task.measure({"loss": 1.0, "targets": 4.0}, answers)["f1"] == 1
    plain = task_of(names=["X", "Y", "Z"])
    answers = plain.answer(None, outputs, batch)
    assert answers == [("X", "X"), ("Z", "Z"), ("Y", "Y"), ("Z", "Z")]
    assert plain.measure({"loss": 1.0, "targets": 4.0}, answers) == {"loss": 0.25, "accuracy": 1, "f1_macro": 1}


def test_words_beyond_the_length_count_as_missed() -> None:
    task = task_of("words", length=4)
    assert task.truncated["texts"] == {"train": 1, "test": 1}
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    logits = torch.nn.functional.one_hot(batch["labels"].clamp(min=0), 3).float()
    answers = task.answer(None, type("O", (), {"logits": logits}), batch)
    assert answers == [(["B-PER", "O", MISSED], ["B-PER", "O", "I-PER"]), (["O"], ["O"])]
    behind = measure(["seqeval"], [["B-PER", MISSED, MISSED]], [["B-PER", "O", "B-LOC"]])
    assert behind == {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "accuracy": 1 / 3}
    plain = task_of("words", ["X", "Y", "Z"], length=4)
    found = plain.measure({"loss": 1.0, "targets": 3.0}, plain.answer(None, type("O", (), {"logits": logits}), batch))
    assert found["accuracy"] == 3 / 4 and found["f1_macro"] == 2 / 3  # Y is never right, and MISSED is no class
