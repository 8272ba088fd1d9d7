"""Derive config fields and example sizes of a recipe's data without reading them."""

from typing import Any

from qkv.scripts.data.tokenization import MAKERS, SPECIAL
from qkv.scripts.example_data import (
    digits,
    documentation,
    rna_folding,
    shapes,
    spoken_digits,
    synthetic_text,
    tune_grammar,
)
from qkv.scripts.recipes.schema import Fields, Recipe
from qkv.scripts.tasks import contrastive

DRAWN, PLAYED = digits.SIDE**2, tune_grammar.BARS * tune_grammar.ROW
CAPTIONS = {"a", *digits.STROKES, *digits.NAMES}
MUSIC = {*tune_grammar.NAMES, *tune_grammar.STEPS, *tune_grammar.FORMS, *tune_grammar.vocabulary()}


def grid(tokens: int, columns: int) -> Fields:
    """Return the fields of a decoder whose prompt, of three words and a start token, stands before rows of a grid."""
    return {"max_position_embeddings": 4 + tokens, "text_length": 4, "grid_columns": columns}


# A tokenizer, its number of tokens but for special ones, config fields, and sizes of the model by name.
Sizes = tuple[str, int, Fields, dict[str, int]]


def generated(recipe: Recipe) -> Sizes:
    """Return the tokenizer of generated data, its number of tokens but for special ones, config fields and sizes."""
    values, symbols = synthetic_text.VALUES, recipe.text.symbols
    letters: Sizes = ("characters", len(synthetic_text.LETTERS), {}, {})
    table: dict[str, Sizes] = {
        "copy": letters,
        "reverse": letters,
        "associative-recall": ("words", symbols * (1 + values), {"num_labels": values}, {}),
        "rna-folds": ("characters", len(rna_folding.BASES), {}, {}),
        "digits": ("", 0, {"num_labels": len(digits.NAMES)}, {}),
        "digit-drawings": (
            "words", len(CAPTIONS) + digits.LEVELS, grid(DRAWN, digits.SIDE), {"tokens": 4 + DRAWN},
        ),
        "tunes": ("words", len(MUSIC), grid(PLAYED, tune_grammar.ROW), {"tokens": 4 + PLAYED}),
        "django-paragraphs": ("", 0, {"num_labels": len(documentation.SUBJECTS)}, {}),
        # The slowest voice says the longest recording in two seconds.
        "spoken-digits": ("characters", len(set(" ".join(spoken_digits.DIGITS))), {}, {"frames": 200}),
        # One or two shapes in square images.
        "shapes-detect": ("", 0, {"num_labels": symbols}, {"width": recipe.data.shortest_edge, "objects": 2}),
    }  # fmt: skip
    if recipe.data.source == "shapes-captions":
        return "", 0, *captioned(recipe)
    return table.get(recipe.data.source, ("", 0, {}, {}))


def captioned(recipe: Recipe) -> tuple[Fields, dict[str, int]]:
    """Return the fields and sizes of images and captions, whose tokenizer is quickly made."""
    texts = [shapes.caption(pair) for part in shapes.pairs(recipe.text.symbols) for pair in part]
    tokenizer = contrastive.clip_processor(texts, shapes.CAPTION_SIDE, shapes.VOCAB_SIZE).tokenizer
    fields = {"text_config": contrastive.text_config(tokenizer), "vision_config": {"image_size": shapes.CAPTION_SIDE}}
    return fields, {"tokens": max(map(len, tokenizer(texts)["input_ids"]))}


def data_sizes(recipe: Recipe, model_class: Any) -> tuple[Fields, dict[str, int]]:
    """Return config fields that follow from the data, those of a part nested, and sizes of examples.

    Data that are not generated have as many tokens and pixels as the recipe allows, in images of 4:3.
    """
    edge = recipe.data.shortest_edge
    tokenizer, count, fields, sizes = generated(recipe)
    made = {"vocab_size": recipe.text.vocab_size} if recipe.text.tokenizer in MAKERS else {}
    if recipe.text.tokenizer == tokenizer:
        made["vocab_size"] = len(SPECIAL) + count
    known = {"num_labels", *model_class.config_class.known_fields()}
    fields = {name: value for name, value in (made | fields).items() if name in known}
    return fields, {"tokens": recipe.text.length, "height": edge, "width": edge * 4 // 3, **sizes}
