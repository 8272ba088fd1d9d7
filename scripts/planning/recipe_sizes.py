"""What is known of a recipe's data without reading them? Fields of the model's config, and how large examples are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qkv.scripts.data.tokenization import MAKERS, SPECIAL
from qkv.scripts.example_data import digit_drawings, shapes, spoken_digits, symbols
from qkv.scripts.example_data import documentation as django_docs
from qkv.scripts.example_data import tune_grammar as tune_rules
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import contrastive as captions


@dataclass(frozen=True)
class Known:
    """Fields that follow from data, those of a part nested, and sizes of examples."""

    fields: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def words(recipe: Recipe, tokenizer: str, count: int) -> dict[str, int]:
    """The vocabulary, where the recipe's tokenizer is of the kind that finds so many words in the data."""
    return {"vocab_size": len(SPECIAL) + count} if recipe.text.tokenizer == tokenizer else {}


def letters(recipe: Recipe) -> Known:
    """Copies and reversals."""
    return Known(words(recipe, "characters", len(symbols.LETTERS)))


def rows(recipe: Recipe, count: int, columns: int, length: int) -> Known:
    """What is made of three words and a token that asks for it: so many tokens of `count` words, in rows."""
    grid = {"max_position_embeddings": 4 + length, "text_length": 4, "grid_columns": columns}
    return Known({**words(recipe, "words", count), **grid}, {"tokens": 4 + length})


def drawings(recipe: Recipe) -> Known:
    """Captions and pixels."""
    names = {"a", *digit_drawings.STROKES, *digit_drawings.NAMES}
    side = digit_drawings.SIDE
    return rows(recipe, len(names) + digit_drawings.LEVELS, side, side**2)


def tunes(recipe: Recipe) -> Known:
    """Keys and forms, and bars in them."""
    names = {*tune_rules.NAMES, *tune_rules.STEPS, *tune_rules.FORMS}
    return rows(recipe, len(names | tune_rules.vocabulary()), tune_rules.ROW, tune_rules.BARS * tune_rules.ROW)


def pairs(recipe: Recipe) -> Known:
    """Pictures and captions, whose tokenizer is soon made."""
    texts = [shapes.caption(pair) for part in shapes.pairs(recipe.text.symbols) for pair in part]
    tokenizer = captions.processor_for(texts).tokenizer
    fields = {"text_config": captions.text_fields(tokenizer), "vision_config": {"image_size": shapes.SIDE}}
    return Known(fields, {"tokens": max(map(len, tokenizer(texts)["input_ids"]))})


def scenes(recipe: Recipe) -> Known:
    """Square pictures of one or two shapes."""
    return Known({"num_labels": recipe.text.symbols}, {"width": recipe.shortest_edge, "objects": 2})


def spoken(recipe: Recipe) -> Known:
    """Up to four digits, which the slowest voice says in two seconds."""
    return Known(words(recipe, "characters", len(set(" ".join(spoken_digits.DIGITS)))), {"frames": 200})


MADE: dict[str, Callable[[Recipe], Known]] = {
    "copy": letters,
    "reverse": letters,
    "digits": lambda recipe: Known({"num_labels": len(digit_drawings.NAMES)}),
    "digit-drawings": drawings,
    "tunes": tunes,
    "django-paragraphs": lambda recipe: Known({"num_labels": len(django_docs.SUBJECTS)}),
    "shapes-captions": pairs,
    "shapes-detect": scenes,
    "spoken-digits": spoken,
}


def known(recipe: Recipe, model_class: Any) -> Known:
    """Of data that are made here what they will be like; of others as many words and pixels as the recipe allows.

    Pictures from elsewhere are taken to be of 4:3.
    """
    fields: dict[str, Any] = {}
    if recipe.text.tokenizer in MAKERS:
        fields["vocab_size"] = recipe.text.vocab_size
    if model_class.reads == "spectrogram":
        fields |= {"frontend": "spectrogram", "share_embeddings": False}
    sizes = {"tokens": recipe.text.length, "height": recipe.shortest_edge, "width": recipe.shortest_edge * 4 // 3}
    made = MADE[recipe.data](recipe) if recipe.data in MADE else Known()
    names = {"num_labels", *model_class.config_class.known_fields()}
    return Known({name: value for name, value in (fields | made.fields).items() if name in names}, sizes | made.sizes)
