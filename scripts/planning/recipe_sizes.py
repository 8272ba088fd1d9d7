"""Derive config fields and example sizes of a recipe's data without reading them."""

from collections.abc import Callable
from typing import Any

from qkv.scripts.data.tokenization import MAKERS, SPECIAL
from qkv.scripts.example_data import (
    digit_drawings,
    documentation,
    long_texts,
    rna_folding,
    shapes,
    spoken_digits,
    synthetic_text,
    tune_grammar,
)
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import contrastive

# Config fields that follow from data, those of a part nested, and sizes of examples.
DataSizes = tuple[dict[str, Any], dict[str, int]]


def vocabulary(recipe: Recipe, tokenizer: str, count: int) -> dict[str, int]:
    """Return the vocabulary size, where the recipe has the tokenizer that makes so many tokens of the data."""
    return {"vocab_size": len(SPECIAL) + count} if recipe.text.tokenizer == tokenizer else {}


def letters(recipe: Recipe) -> DataSizes:
    """Return the sizes of copies and reversals."""
    return vocabulary(recipe, "characters", len(synthetic_text.LETTERS)), {}


def nested_lists(recipe: Recipe) -> DataSizes:
    """Return the sizes of lists of operations and digits."""
    return {**vocabulary(recipe, "words", len(long_texts.OPERATORS) + 11), "num_labels": 10}, {}


def recalled(recipe: Recipe) -> DataSizes:
    """Return the sizes of pairs of keys and values."""
    return vocabulary(recipe, "words", recipe.text.symbols + long_texts.VALUES), {}


def tables(recipe: Recipe) -> DataSizes:
    """Return the sizes of a table of keys and values, and keys."""
    words = recipe.text.symbols * (1 + long_texts.VALUES)
    return {**vocabulary(recipe, "words", words), "num_labels": long_texts.VALUES}, {}


def folds(recipe: Recipe) -> DataSizes:
    """Return the sizes of chains of RNA."""
    return vocabulary(recipe, "characters", len(rna_folding.BASES)), {}


def grids(recipe: Recipe, count: int, columns: int, length: int) -> DataSizes:
    """Return the sizes of a prompt of three words and a start token, and `length` tokens of `count` words, in rows."""
    grid = {"max_position_embeddings": 4 + length, "text_length": 4, "grid_columns": columns}
    return {**vocabulary(recipe, "words", count), **grid}, {"tokens": 4 + length}


def drawings(recipe: Recipe) -> DataSizes:
    """Return the sizes of captions and pixels."""
    words = {"a", *digit_drawings.STROKES, *digit_drawings.NAMES}
    side = digit_drawings.SIDE
    return grids(recipe, len(words) + digit_drawings.LEVELS, side, side**2)


def tunes(recipe: Recipe) -> DataSizes:
    """Return the sizes of keys and forms, and bars in them."""
    words = {*tune_grammar.NAMES, *tune_grammar.STEPS, *tune_grammar.FORMS, *tune_grammar.vocabulary()}
    return grids(recipe, len(words), tune_grammar.ROW, tune_grammar.BARS * tune_grammar.ROW)


def pairs(recipe: Recipe) -> DataSizes:
    """Return the sizes of images and captions, whose tokenizer is quickly made."""
    texts = [shapes.caption(pair) for part in shapes.pairs(recipe.text.symbols) for pair in part]
    tokenizer = contrastive.clip_processor(texts, shapes.CAPTION_SIDE, shapes.VOCAB_SIZE).tokenizer
    fields = {"text_config": contrastive.text_config(tokenizer), "vision_config": {"image_size": shapes.CAPTION_SIDE}}
    return fields, {"tokens": max(map(len, tokenizer(texts)["input_ids"]))}


def scenes(recipe: Recipe) -> DataSizes:
    """Return the sizes of square images of one or two shapes."""
    return {"num_labels": recipe.text.symbols}, {"width": recipe.data.shortest_edge, "objects": 2}


def spoken(recipe: Recipe) -> DataSizes:
    """Return the sizes of up to four digits, which the slowest voice says in two seconds."""
    letters = len(set(" ".join(spoken_digits.DIGITS)))
    return vocabulary(recipe, "characters", letters), {"frames": 200}


GENERATED: dict[str, Callable[[Recipe], DataSizes]] = {
    "copy": letters,
    "reverse": letters,
    "listops": nested_lists,
    "recall": recalled,
    "associative-recall": tables,
    "rna-folds": folds,
    "digits": lambda recipe: ({"num_labels": len(digit_drawings.NAMES)}, {}),
    "digit-drawings": drawings,
    "tunes": tunes,
    "django-paragraphs": lambda recipe: ({"num_labels": len(documentation.SUBJECTS)}, {}),
    "shapes-captions": pairs,
    "shapes-detect": scenes,
    "spoken-digits": spoken,
}


def data_sizes(recipe: Recipe, model_class: Any) -> DataSizes:
    """Return the sizes of generated data, and of other data as many tokens and pixels as the recipe allows.

    Other images are taken to be of 4:3.
    """
    fields: dict[str, Any] = {"vocab_size": recipe.text.vocab_size} if recipe.text.tokenizer in MAKERS else {}
    edge, source = recipe.data.shortest_edge, recipe.data.source
    sizes = {"tokens": recipe.text.length, "height": edge, "width": edge * 4 // 3}
    own_fields, own_sizes = GENERATED[source](recipe) if source in GENERATED else ({}, {})
    known = {"num_labels", *model_class.config_class.known_fields()}
    return {name: value for name, value in (fields | own_fields).items() if name in known}, sizes | own_sizes
