"""What is learned from? The data sets that a recipe can name, each made into the task of the recipe's head."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.text_columns import outside
from qkv.scripts.data.validation import Complaints
from qkv.scripts.example_data import docstrings, number_words, symbols
from qkv.scripts.example_data import documentation as django_docs
from qkv.scripts.example_data import synthetic_text as dates
from qkv.scripts.example_data.digit_drawings import digit_drawings
from qkv.scripts.example_data.digits import digits
from qkv.scripts.example_data.spoken_digits import spoken_digits
from qkv.scripts.example_data.tunes import tunes
from qkv.scripts.recipes.schema import Recipe, meant
from qkv.scripts.tasks.causal_lm import language, streamed_language
from qkv.scripts.tasks.contrastive import captions
from qkv.scripts.tasks.image_classification import images
from qkv.scripts.tasks.masked_lm import masked, streamed_masked
from qkv.scripts.tasks.object_detection import detection
from qkv.scripts.tasks.seq2seq import seq2seq
from qkv.scripts.tasks.speech_recognition import Source, given, speech
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import classification
from qkv.scripts.tasks.transcription import READINGS

IMAGES: dict[str, Callable[[Recipe], Task]] = {
    "digits": digits,
    "shapes-captions": captions,
    "shapes-detect": detection,
}
# What is learned from pictures of files, folders and the Hub, by the end of the head's name.
SEEN: dict[str, Callable[[Recipe], Task]] = {"ForImageClassification": images, "ForObjectDetection": detection}
SOUNDS: dict[str, Callable[[Recipe], Source]] = {"spoken-digits": spoken_digits}
# What a decoder makes of a prompt.
PROMPTED: dict[str, Callable[[Recipe], Task]] = {"digit-drawings": digit_drawings, "tunes": tunes}
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
# Those of them that need not have all texts at once.
STREAMS: dict[str, Callable[[Recipe], Task]] = {"ForCausalLM": streamed_language, "ForMaskedLM": streamed_masked}


def load(recipe: Recipe) -> Task:
    """The recipe's data, as its architecture learns from it.

    ValueError when there is no data set of that name, and for an architecture that does not learn from texts.
    """
    known = [*IMAGES, *PROMPTED, *SOUNDS, *TEXTS]
    if recipe.data not in known and not elsewhere(recipe.data):
        raise ValueError(f"there is no data set {recipe.data!r}; {meant(recipe.data, known, 'data sets')}")
    found = seen_or_heard(recipe)
    if found is not None:
        return found
    table = STREAMS if recipe.streaming else TASKS
    ending = next((name for name in table if recipe.architecture.endswith(name)), None)
    if ending is None:
        raise ValueError(
            f"architecture={recipe.architecture!r} does not learn from the texts of data={recipe.data!r}"
            f"{' as a stream' if recipe.streaming else ''}; take one that ends in {', '.join(table)}"
        )
    if recipe.streaming:
        return STREAMS[ending](recipe)
    complaints = Complaints(recipe.bad_records)
    corpus = TEXTS[recipe.data](recipe) if recipe.data in TEXTS else outside(recipe, complaints)
    corpus = corpus.held_back(recipe.holdout).limited(recipe.text.evaluated)
    return replace(TASKS[ending](recipe, corpus), complaints=complaints)


def refuse_other_heads(recipe: Recipe) -> None:
    """Raise ValueError unless the architecture writes after a prompt."""
    if not recipe.architecture.endswith("ForCausalLM"):
        raise ValueError(
            f"architecture={recipe.architecture!r} makes nothing of the prompts of data={recipe.data!r}; take "
            "QkvDecoderForCausalLM"
        )


def seen_or_heard(recipe: Recipe) -> Task | None:
    """The task of data that are no texts alone."""
    if recipe.data in IMAGES:
        return IMAGES[recipe.data](recipe)
    if recipe.data in PROMPTED:
        refuse_other_heads(recipe)
        return PROMPTED[recipe.data](recipe)
    if recipe.data in SOUNDS or (recipe.data not in TEXTS and recipe.architecture.endswith(tuple(READINGS))):
        return speech(recipe, SOUNDS.get(recipe.data, given))
    ending = next((name for name in SEEN if recipe.architecture.endswith(name)), None)
    return SEEN[ending](recipe) if ending and recipe.data not in TEXTS else None


def elsewhere(where: str) -> bool:
    """Whether data are a file, a folder or a name on the Hub, which has an author, and no word of ours."""
    return "/" in where or Path(where).exists()
