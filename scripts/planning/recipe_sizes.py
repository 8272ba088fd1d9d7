"""Derive config fields and example sizes of a recipe's data without reading them."""

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
PIXELS = digit_drawings.SIDE**2
CAPTIONS = {"a", *digit_drawings.STROKES, *digit_drawings.NAMES}
BARS = tune_grammar.BARS * tune_grammar.ROW
WORDS = {*tune_grammar.NAMES, *tune_grammar.STEPS, *tune_grammar.FORMS, *tune_grammar.vocabulary()}
# A prompt of three words and a start token stand before the tokens in rows of a grid.
DRAWING = {"max_position_embeddings": 4 + PIXELS, "text_length": 4, "grid_columns": digit_drawings.SIDE}
TUNE = {"max_position_embeddings": 4 + BARS, "text_length": 4, "grid_columns": tune_grammar.ROW}


def vocabularies(recipe: Recipe) -> dict[str, tuple[str, int]]:
    """Return the tokenizer of generated data, and the number of tokens that it makes of them without special ones."""
    keys, values = recipe.text.symbols, long_texts.VALUES
    return {
        "copy": ("characters", len(synthetic_text.LETTERS)),
        "reverse": ("characters", len(synthetic_text.LETTERS)),
        "associative-recall": ("words", keys * (1 + values)),
        "rna-folds": ("characters", len(rna_folding.BASES)),
        "digit-drawings": ("words", len(CAPTIONS) + digit_drawings.LEVELS),
        "tunes": ("words", len(WORDS)),
        "spoken-digits": ("characters", len(set(" ".join(spoken_digits.DIGITS)))),
    }


FIELDS: dict[str, dict[str, Any]] = {
    "associative-recall": {"num_labels": long_texts.VALUES},
    "digits": {"num_labels": len(digit_drawings.NAMES)},
    "digit-drawings": DRAWING,
    "tunes": TUNE,
    "django-paragraphs": {"num_labels": len(documentation.SUBJECTS)},
}
SIZES: dict[str, dict[str, int]] = {
    "digit-drawings": {"tokens": 4 + PIXELS},
    "tunes": {"tokens": 4 + BARS},
    "spoken-digits": {"frames": 200},  # the slowest voice says the longest recording in two seconds
}


def captioned(recipe: Recipe) -> DataSizes:
    """Return the sizes of images and captions, whose tokenizer is quickly made."""
    texts = [shapes.caption(pair) for part in shapes.pairs(recipe.text.symbols) for pair in part]
    tokenizer = contrastive.clip_processor(texts, shapes.CAPTION_SIDE, shapes.VOCAB_SIZE).tokenizer
    fields = {"text_config": contrastive.text_config(tokenizer), "vision_config": {"image_size": shapes.CAPTION_SIDE}}
    return fields, {"tokens": max(map(len, tokenizer(texts)["input_ids"]))}


def data_sizes(recipe: Recipe, model_class: Any) -> DataSizes:
    """Return the sizes of generated data, and of other data as many tokens and pixels as the recipe allows.

    Other images are taken to be of 4:3.
    """
    edge, source = recipe.data.shortest_edge, recipe.data.source
    fields: dict[str, Any] = {"vocab_size": recipe.text.vocab_size} if recipe.text.tokenizer in MAKERS else {}
    sizes = {"tokens": recipe.text.length, "height": edge, "width": edge * 4 // 3, **SIZES.get(source, {})}
    tokenizer, count = vocabularies(recipe).get(source, (None, 0))
    if recipe.text.tokenizer == tokenizer:
        fields["vocab_size"] = len(SPECIAL) + count
    fields |= FIELDS.get(source, {})
    if source == "shapes-captions":
        own_fields, own_sizes = captioned(recipe)
        fields, sizes = fields | own_fields, sizes | own_sizes
    if source == "shapes-detect":  # one or two shapes in square images
        fields, sizes = fields | {"num_labels": recipe.text.symbols}, sizes | {"width": edge, "objects": 2}
    known = {"num_labels", *model_class.config_class.known_fields()}
    return {name: value for name, value in fields.items() if name in known}, sizes
