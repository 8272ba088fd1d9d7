"""The registry: joins the data that a recipe names with the task of its architecture's head."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qkv import modeling
from qkv.scripts.common.environment import is_local
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.corpus import Corpus, FoldedChains, PromptedCorpus, SpeechData
from qkv.scripts.data.dialogues import Dialogues, read_dialogues
from qkv.scripts.data.image_data import CaptionData, ImageData, ObjectData, read_captions, read_images, read_objects
from qkv.scripts.data.questions import AnsweredQuestions, read_questions
from qkv.scripts.data.text_columns import (
    SecondaryStructures,
    TaggedWords,
    read_corpus,
    read_structures,
    read_tagged_words,
)
from qkv.scripts.example_data import documentation, shapes, synthetic_text
from qkv.scripts.example_data.digits import digit_drawings, digits
from qkv.scripts.example_data.facts import facts
from qkv.scripts.example_data.peptides import peptides
from qkv.scripts.example_data.rna_folding import rna_folds
from qkv.scripts.example_data.spoken_digits import spoken_digits
from qkv.scripts.example_data.tunes import tunes
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.contact_prediction import ContactPrediction
from qkv.scripts.tasks.contrastive import Contrastive
from qkv.scripts.tasks.denoising import text_to_text
from qkv.scripts.tasks.image_classification import ImageClassification
from qkv.scripts.tasks.infilling import causal_lm
from qkv.scripts.tasks.masked_lm import MaskedLM
from qkv.scripts.tasks.metrics import load as load_metric
from qkv.scripts.tasks.object_detection import ObjectDetection
from qkv.scripts.tasks.prompted_generation import PromptedGeneration
from qkv.scripts.tasks.protein_folding import ProteinFolding, read_folded
from qkv.scripts.tasks.question_answering import QuestionAnswering
from qkv.scripts.tasks.speech_recognition import CTCSpeechRecognition, Seq2SeqSpeechRecognition, read_speech
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import text_classification
from qkv.scripts.tasks.token_classification import TokenClassification

# Example data by kind and name.
EXAMPLE_DATA: dict[type, dict[str, Callable[[Recipe], Any]]] = {
    ImageData: {"digits": digits},
    CaptionData: {"shapes-captions": shapes.captioned_shapes},
    ObjectData: {"shapes-detect": shapes.scenes},
    SpeechData: {"spoken-digits": spoken_digits},
    PromptedCorpus: {"digit-drawings": digit_drawings, "tunes": tunes},
    TaggedWords: {"associative-recall": synthetic_text.associative_recall},
    SecondaryStructures: {"rna-folds": rna_folds},
    FoldedChains: {"peptides": peptides},
    Dialogues: {"number-dialogues": synthetic_text.number_dialogues},
    AnsweredQuestions: {"facts": facts},
    Corpus: {
        "copy": synthetic_text.copy,
        "reverse": synthetic_text.reverse,
        "numbers": synthetic_text.numbers,
        **dict.fromkeys(documentation.TEXTS_OF, documentation.library),
        "django-docs": documentation.documents,
        "django-paragraphs": documentation.paragraphs,
        "django-tasks": documentation.tasks,
    },
}
NAMES = [name for makers in EXAMPLE_DATA.values() for name in makers]


@dataclass(frozen=True)
class Learning:
    """The training of a head of the table of heads: its data, its task, and the reader of `data=`.

    `streams` says that it learns from a stream, too.
    """

    ending: str
    data: type
    task: Callable[..., Task]
    read: Callable[[Recipe], Any] | None = None
    streams: bool = False


LEARNING = (
    Learning("ForImageClassification", ImageData, ImageClassification, read_images, streams=True),
    Learning("ForObjectDetection", ObjectData, ObjectDetection, read_objects),
    Learning("DualEncoderModel", CaptionData, Contrastive, read_captions),
    Learning("ForSpeechSeq2Seq", SpeechData, Seq2SeqSpeechRecognition, read_speech),
    Learning("ForCTC", SpeechData, CTCSpeechRecognition, read_speech),
    Learning("ForCausalLM", PromptedCorpus, PromptedGeneration),
    Learning("ForCausalLM", Dialogues, causal_lm, read_dialogues),
    Learning("ForCausalLM", Corpus, causal_lm, read_corpus, streams=True),
    Learning("ForMaskedLM", Corpus, MaskedLM, read_corpus, streams=True),
    Learning("ForSequenceClassification", Corpus, text_classification, read_corpus),
    Learning("ForTokenClassification", TaggedWords, TokenClassification, read_tagged_words),
    Learning("ForQuestionAnswering", AnsweredQuestions, QuestionAnswering, read_questions),
    Learning("ForContactPrediction", SecondaryStructures, ContactPrediction, read_structures),
    Learning("FoldingModel", FoldedChains, ProteinFolding, read_folded),
    Learning("ForConditionalGeneration", Corpus, text_to_text, read_corpus),
)


def load(recipe: Recipe) -> Task:
    """Load the recipe's data as the task of its architecture.

    ValueError when there is no data set of that name, and for an architecture that does not learn from it.
    """
    where = recipe.data.source
    made = next((kind for kind, makers in EXAMPLE_DATA.items() if where in makers), None)
    if made is None and "/" not in where and not is_local(where):
        raise ValueError(f"there is no data set {where!r}; {did_you_mean(where, NAMES, 'data sets')}")
    learning = learning_of(recipe, made)
    check_fields(recipe)
    if recipe.data.streaming and (made or not (learning.streams or recipe.text.corruption)):
        raise ValueError(
            f"streaming=true is not for architecture={recipe.model.architecture!r} on data={where!r}: all records are "
            "read before the training; leave it out"
        )
    for name in recipe.output.metrics:
        load_metric(name)
    data: Any = EXAMPLE_DATA[made][where](recipe) if made else learning.read and learning.read(recipe)
    if made and issubclass(made, Corpus):
        data = data.divided(recipe)
    return with_metrics(learning.task(recipe, data), recipe)


def check_fields(recipe: Recipe) -> None:
    """Raise ValueError for fields of encoder-decoders or decoders where the architecture is another."""
    endings = {"corruption": "ForConditionalGeneration", "task": "ForConditionalGeneration", "fim_rate": "ForCausalLM"}
    for name, ending in endings.items():
        if (value := getattr(recipe.text, name)) and not recipe.model.architecture.endswith(ending):
            raise ValueError(
                f"text.{name}={value} is for an architecture that ends in {ending}, and "
                f"{recipe.model.architecture!r} does not; leave it out, or take such an architecture"
            )


def with_metrics(task: Task, recipe: Recipe) -> Task:
    """Add the metrics that a recipe names; ValueError for a task whose answers these cannot compare."""
    if recipe.output.metrics and not task.has_references:
        raise ValueError(
            f"metrics={recipe.output.metrics} is not for {task.kind}, whose answers are not single predictions beside "
            "references; leave it out"
        )
    task.metrics = [*dict.fromkeys((*task.metrics, *recipe.output.metrics))]
    return task


def learning_of(recipe: Recipe, made: type | None) -> Learning:
    """Return how the architecture learns from that kind of example data, or from other data; ValueError for none."""
    fitting = [each for each in LEARNING if (each.data is made if made else each.read)]
    if not made:
        fitting = [each for each in fitting if (each.data is Dialogues) == (recipe.text.messages is not None)]
    architecture = recipe.model.architecture
    for learning in fitting:
        if architecture.endswith(learning.ending):
            return learning
    if architecture not in modeling.__all__:
        known = [name for name in modeling.__all__ if name.endswith(tuple(each.ending for each in LEARNING))]
        raise ValueError(
            f"there is no architecture {architecture!r}; {did_you_mean(architecture, known, 'architectures')}"
        )
    raise ValueError(
        f"architecture={architecture!r} does not learn from data={recipe.data.source!r}; take one that ends in "
        f"{', '.join(each.ending for each in fitting)}"
    )
