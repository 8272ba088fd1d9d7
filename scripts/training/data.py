"""What is learned from? The data sets that a recipe can name, each made into the task of the recipe's head."""

from collections.abc import Callable

from qkv.scripts.training import dates, django_docs, docstrings, number_words, symbols
from qkv.scripts.training.classification import classification
from qkv.scripts.training.corpus import Corpus
from qkv.scripts.training.digits import digits
from qkv.scripts.training.language import language
from qkv.scripts.training.masked import masked
from qkv.scripts.training.recipe import Recipe, meant
from qkv.scripts.training.seq2seq import seq2seq
from qkv.scripts.training.task import Task

IMAGES: dict[str, Callable[[Recipe], Task]] = {"digits": digits}
TEXTS: dict[str, Callable[[Recipe], Corpus]] = {
    "copy": symbols.copy,
    "reverse": symbols.reverse,
    "numbers": number_words.numbers,
    "dates": dates.dates,
    "docstrings": docstrings.docstrings,
    "django-docs": django_docs.documents,
    "django-paragraphs": django_docs.paragraphs,
}
# What a head is trained for, by the end of its name.
TASKS: dict[str, Callable[[Recipe, Corpus], Task]] = {
    "ForCausalLM": language,
    "ForMaskedLM": masked,
    "ForSequenceClassification": classification,
    "ForConditionalGeneration": seq2seq,
}


def load(recipe: Recipe) -> Task:
    """The recipe's data, as its architecture learns from it.

    ValueError when there is no data set of that name, and for an architecture that does not learn from texts.
    """
    if recipe.data in IMAGES:
        return IMAGES[recipe.data](recipe)
    if recipe.data not in TEXTS:
        known = [*IMAGES, *TEXTS]
        raise ValueError(f"there is no data set {recipe.data!r}; {meant(recipe.data, known, 'data sets')}")
    for ending, task in TASKS.items():
        if recipe.architecture.endswith(ending):
            return task(recipe, TEXTS[recipe.data](recipe).limited(recipe.text.evaluated))
    raise ValueError(
        f"architecture={recipe.architecture!r} does not learn from the texts of data={recipe.data!r}; take one that "
        f"ends in {', '.join(TASKS)}"
    )
