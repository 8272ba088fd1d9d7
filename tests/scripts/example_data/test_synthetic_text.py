"""Synthetic texts: number words of the grammar, copies, reversals, and tables that say the values of keys."""

import pytest

import tables
from qkv.scripts.example_data import synthetic_text
from qkv.scripts.example_data.synthetic_text import associative_recall, copy, english, french, numbers, reverse
from recipes import recipe_of

KNOWN = tables.beside(__file__)


@pytest.mark.parametrize("number", KNOWN)
def test_known_numbers(number: int) -> None:
    assert [english(number), french(number)] == KNOWN[number]


def test_different_numbers_are_called_differently() -> None:
    some = [*range(3000), *range(70000, 1000000, 997)]
    assert len({english(number) for number in some}) == len({french(number) for number in some}) == len(some)
    with pytest.raises(ValueError, match="text.made=60000"):
        numbers(recipe_of(text=dict(made=60000)))


def test_copies_are_copies_and_reversals_reversed() -> None:
    recipe = recipe_of(text=dict(made=200, symbols=12))
    corpus = copy(recipe)
    assert corpus.targets == corpus.texts and {len(text) for text in corpus.texts["train"]} == {12}
    corpus = reverse(recipe)
    assert all(text[::-1] == corpus.targets["test"][index] for index, text in enumerate(corpus.texts["test"]))
    assert {len(text) for text in corpus.texts["train"]} == set(range(6, 13))
    with pytest.raises(ValueError, match="text.made=500"):  # more than half of all 676
        copy(recipe_of(text=dict(made=500, symbols=2)))


def test_keys_have_the_values_of_the_table() -> None:
    data = associative_recall(recipe_of(text=dict(made=60, length=402, symbols=20)))
    for split, rows in data.texts.items():
        for words, tags in zip(rows, data.labels[split], strict=True):
            table = dict(word.split("=") for word in words[:20])
            assert len(table) == 20 and [data.names[tag] for tag in tags[:20]] == [*table.values()]
            assert [data.names[tag] for tag in tags[20:]] == [table[word] for word in words[20:]]
    lengths = [len(words) for words in data.texts["train"]]
    assert {len(words) for words in data.texts["test"]} == {400}
    assert 40 <= min(lengths) < 80 < 200 < max(lengths) <= 400


def test_dialogues_ask_for_two_numbers_and_the_first_answer_again() -> None:
    recipe = recipe_of(text={"made": 200})
    made, whole = synthetic_text.number_dialogues(recipe), numbers(recipe)
    assert {name: len(own) for name, own in made.texts.items()} == {"train": 90, "test": 10}
    for split, dialogues in made.texts.items():
        said = [[message["content"] for message in dialogue["messages"]] for dialogue in dialogues]
        assert [(own[1], own[3]) for own in said] == list(zip(*[iter(whole.targets[split])] * 2, strict=True))
        assert all(own[1] == own[5] for own in said)
        assert [own[0] for own in said] == [f"What is {text} in French?" for text in whole.texts[split][::2]]
