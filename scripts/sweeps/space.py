"""Read which fields a sweep varies: lists of values, and ranges of numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from qkv.scripts.recipes.fields.aliases import fields_of, resolve
from qkv.scripts.recipes.fields.recipe_fields import recipe_fields
from qkv.scripts.recipes.loading import TEXTS

# Fields in whose values a comma has a meaning of its own, and what a value in YAML's brackets begins with.
WHOLE = frozenset({*TEXTS, "data", "name", "out", "tracker"})
BRACKETS = ("[", "{", "'", '"')
# A range over more than so many times its lower end is sampled by its logarithm.
LOGARITHMIC = 10
EXAMPLE = "write learning_rate=1e-3,3e-3 for two values, or learning_rate=1e-4..1e-2 for a range"
# The value of each field that varies, as it is typed.
Chosen = dict[str, str]


@dataclass(frozen=True)
class Dimension:
    """A field that varies, or several that are one word: the values of a list, or both ends of a range.

    `typed` is what it was given as.
    """

    label: str
    keys: tuple[str, ...]
    typed: str
    values: tuple[str, ...]
    is_range: bool

    @property
    def is_whole(self) -> bool:
        """True for a range of whole numbers: written as such, for a field that takes them."""
        known = recipe_fields().get(self.keys[0])
        return all(end.lstrip("+-").isdigit() for end in self.values) and (
            known is None or known.type_name.startswith("whole number")
        )

    @property
    def is_logarithmic(self) -> bool:
        """True for a range of positive numbers over more than one power of ten."""
        low, high = map(float, self.values)
        return 0 < low * LOGARITHMIC < high

    def words(self, value: str) -> list[str]:
        """Return the words of a value."""
        return [f"{key}={value}" for key in self.keys]


def read_space(words: Sequence[str]) -> tuple[list[str], list[Dimension]]:
    """Return the words that stay, under the names of fields, and the fields that vary; ValueError where none does."""
    fixed: list[str] = []
    dimensions: list[Dimension] = []
    for word in words:
        dimension = read_dimension(word)
        if dimension is None:
            fixed += resolve([word])
        else:
            dimensions.append(dimension)
    if not dimensions:
        raise ValueError(f"a sweep varies at least one field; {EXAMPLE}")
    labels = [dimension.label for dimension in dimensions]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ValueError(f"{twice[0]} is given twice; write all its values once, as in {twice[0]}=1,2")
    return fixed, dimensions


def read_dimension(word: str) -> Dimension | None:
    """Return the field that a word lets vary, if it does; ValueError for an unknown field or an empty range."""
    key, equals, value = word.partition("=")
    if not equals:
        return None
    keys = tuple(fields_of(key))
    label = key if len(keys) > 1 else keys[0]
    if keys[0] in WHOLE or value.startswith(BRACKETS):
        return None
    low, dots, high = value.partition("..")
    if dots and is_number(low) and is_number(high):
        if float(low) >= float(high):
            raise ValueError(f"{word} is an empty range; write the smaller number first, as in {key}={high}..{low}")
        return Dimension(label, keys, value, (low, high), is_range=True)
    values = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    return Dimension(label, keys, value, values, is_range=False) if "," in value else None


def is_number(text: str) -> bool:
    """Tell whether a text spells a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def grid(dimensions: Sequence[Dimension]) -> list[Chosen]:
    """Return every combination of the values of lists, the last field varying fastest."""
    labels = [dimension.label for dimension in dimensions]
    rows = product(*(dimension.values for dimension in dimensions))
    return [dict(zip(labels, row, strict=True)) for row in rows]


def words_of(fixed: Sequence[str], dimensions: Sequence[Dimension], chosen: Chosen) -> list[str]:
    """Return the words of a training: those that stay, and those of the chosen values."""
    return [*fixed, *(word for one in dimensions for word in one.words(chosen[one.label]))]


def every_value(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of trainings in which each value of each field, and each end of a range, comes at least once."""
    fixed, dimensions = read_space(words)
    first = {dimension.label: dimension.values[0] for dimension in dimensions}
    yield words_of(fixed, dimensions, first)
    for dimension in dimensions:
        for value in dimension.values[1:]:
            yield words_of(fixed, dimensions, first | {dimension.label: value})
