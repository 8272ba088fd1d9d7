"""Words that vary are told from those that stay; a grid has every combination, and every value is checked."""

import pytest

from errors import raises_sentence
from qkv.scripts.sweeps.space import every_value, grid, read_dimension, read_space, words_of


def test_lists_and_ranges_vary_and_the_rest_stays() -> None:
    fixed, dimensions = read_space(["seed=1", "lr=1e-4..1e-2", "batch_size=8, 16,8", "steps=20", "out=../runs"])
    assert fixed == ["seed=1", "max_steps=20", "out=../runs"]
    assert [(one.label, one.values, one.is_range) for one in dimensions] == [
        ("learning_rate", ("1e-4", "1e-2"), True),
        ("batch_size", ("8", "16"), False),
    ]


@pytest.mark.parametrize(
    "word", ["data=a.en,a.de", "tracker=wandb,mlflow", "card.title=One, two", "model.image_size=[8, 8]", "init=../a"]
)
def test_commas_and_dots_of_a_single_value_do_not_vary(word: str) -> None:
    assert read_dimension(word) is None


@pytest.mark.parametrize(
    ("word", "whole", "logarithmic"),
    [
        ("lr=1e-4..1e-2", False, True),
        ("lr=1e-3..5e-3", False, False),
        ("lr=1..20", False, True),
        ("weight_decay=0..1", False, False),
        ("batch_size=8..128", True, True),
        ("model.num_hidden_layers=1..4", True, False),
        ("model.residual_dropout=0.0..0.5", False, False),
    ],
)
def test_ranges_stay_whole_and_are_sampled_by_powers(word: str, whole: bool, logarithmic: bool) -> None:
    dimension = read_dimension(word)
    assert dimension is not None and (dimension.is_whole, dimension.is_logarithmic) == (whole, logarithmic)


def test_a_grid_has_every_combination_and_one_word_may_be_several_fields() -> None:
    fixed, dimensions = read_space(["dropout=0.1,0.2", "seed=0,1,2", "lr=1e-3"])
    rows = [words_of(fixed, dimensions, chosen) for chosen in grid(dimensions)]
    assert len({tuple(row) for row in rows}) == 6 and rows[0][0] == "learning_rate=1e-3"
    assert rows[-1][1:] == [
        "model.embedding_dropout=0.2", "model.attention_dropout=0.2", "model.residual_dropout=0.2", "seed=2",
    ]  # fmt: skip


def test_every_value_comes_once_without_every_combination() -> None:
    rows = list(every_value(["batch_size=8,16,32", "lr=1e-4..1e-2", "seed=1"]))
    assert len(rows) == 4
    assert {word for row in rows for word in row} == {
        "seed=1", "batch_size=8", "batch_size=16", "batch_size=32", "learning_rate=1e-4", "learning_rate=1e-2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("seed=1", "a sweep varies at least one field"),
        ("lr=1e-2..1e-4", "lr=1e-2..1e-4 is an empty range; write the smaller number first, as in lr=1e-4..1e-2"),
        ("lr=1,2 learning_rate=3,4", "learning_rate is given twice"),
        ("lerning_rate=1,2", "did you mean 'learning_rate'?"),
    ],
)
def test_mistakes_are_answered(words: str, message: str) -> None:
    with raises_sentence(message):
        read_space(words.split())
