"""The table of heads: the task, inputs, targets, pipeline and Auto class of each."""

from dataclasses import dataclass, field

from qkv.scripts.common.words import did_you_mean

TOKENS, ROWS, PAIRS, PATCHES = ({"labels": "T"}, {"labels": "B"}, {"labels": "P"}, {"bool_masked_pos": "N"})


@dataclass(frozen=True)
class Head:
    """A head, by the end of its architecture's name.

    Args:
        ending: End of the names of its classes, such as `ForCausalLM`.
        auto_class: Auto class that loads it.
        task: Task that `qkv train` and `qkv predict` know it by; empty for heads that are not trained by recipes.
        hub: The Hub's name of its task, for cards; None where the Hub has none.
        inputs: Kind of its inputs: text, choice, pair (image and text), image, scene, audio, or ctc (audio, frame by
            frame).
        targets: Names of its targets, each one for every row (B), token (T), pair of tokens (P), patch (N) or
            atom of a residue (A).
        has_pipeline: Whether transformers has a pipeline of the name of its task.
    """

    ending: str
    auto_class: str
    task: str = ""
    hub: str | None = None
    inputs: str = "text"
    targets: dict[str, str] = field(default_factory=dict)
    has_pipeline: bool = True

    @property
    def medium(self) -> str:
        """Return the kind of file or column that inputs come from: text, image or audio."""
        media = {"image": "image", "scene": "image", "pair": "image", "audio": "audio", "ctc": "audio"}
        return media.get(self.inputs, "text")


def pipelined(ending: str, task: str, inputs: str, targets: dict[str, str] | None = None) -> Head:
    """Describe a head whose Auto class has its ending, and whose task is one of the Hub with a pipeline."""
    return Head(ending, f"AutoModel{ending}", task, task, inputs, targets or {})


# An official class of several Auto classes is loaded by the first; a preset of several heads is planned with the first.
HEADS = (
    pipelined("ForCausalLM", "text-generation", "text", TOKENS),
    Head("ForConditionalGeneration", "AutoModelForSeq2SeqLM", "translation", None, "text", TOKENS, has_pipeline=False),
    Head("ForDistancePrediction", "AutoModel", targets=PAIRS, has_pipeline=False),
    pipelined("ForMaskedLM", "fill-mask", "text", TOKENS),
    pipelined("ForSequenceClassification", "text-classification", "text", ROWS),
    pipelined("ForTokenClassification", "token-classification", "text", TOKENS),
    Head("ForQuestionAnswering", "AutoModelForQuestionAnswering", "question-answering", "question-answering", "text",
         {"start_positions": "B", "end_positions": "B"}, has_pipeline=False),
    Head("ForMultipleChoice", "AutoModelForMultipleChoice", "", "multiple-choice", "choice", ROWS, has_pipeline=False),
    pipelined("ForImageClassification", "image-classification", "image", ROWS),
    Head("ForMaskedImageModeling", "AutoModelForMaskedImageModeling", "", None, "image", PATCHES, has_pipeline=False),
    Head("DualEncoderModel", "AutoModelForZeroShotImageClassification", "zero-shot-image-classification",
         "zero-shot-image-classification", "pair"),
    pipelined("ForObjectDetection", "object-detection", "scene"),
    pipelined("ForSpeechSeq2Seq", "automatic-speech-recognition", "audio"),
    pipelined("ForCTC", "automatic-speech-recognition", "ctc"),
    Head("ForReplacedTokenDetection", "AutoModelForPreTraining", "", None, "text", TOKENS, has_pipeline=False),
    Head("ForPreTraining", "AutoModelForPreTraining", "", None, "text", {"labels": "T", "next_sentence_label": "B"},
         has_pipeline=False),
    Head("ForContactPrediction", "AutoModel", "contact-prediction", None, "text", PAIRS, has_pipeline=False),
    Head("FoldingModel", "AutoModel", "protein-folding", None, "text", {"labels": "A"}, has_pipeline=False),
    Head("Model", "AutoModel", "", "feature-extraction", has_pipeline=False),
    Head("TextEncoder", "AutoModelForTextEncoding", "", "feature-extraction", has_pipeline=False),
)  # fmt: skip


# Words of `task=` for the tasks of heads, and for kinds of text classification.
WORDS = {
    "causal-lm": "text-generation", "chat": "text-generation", "masked-lm": "fill-mask", "seq2seq": "translation",
    "regression": "text-classification",
    "multi-label": "text-classification", "captions": "zero-shot-image-classification",
    "speech-recognition": "automatic-speech-recognition", "denoising": "translation",
}  # fmt: skip
# Words of `task=` that fields of `text` imply.
IMPLIED = {"corruption": "denoising", "task": "seq2seq", "messages": "chat"}


def head_for(task: str) -> Head:
    """Return the first head of a task, by its name or our word; ValueError for an unknown one."""
    known = {head.task: head for head in reversed(HEADS) if head.task}
    if WORDS.get(task, task) not in known:
        raise ValueError(f"task={task!r} is not known; {did_you_mean(task, sorted({*known, *WORDS}), 'tasks')}")
    return known[WORDS.get(task, task)]


def head_of(architecture: str) -> Head:
    """Return the head of an architecture."""
    return next(head for head in HEADS if architecture.endswith(head.ending))


# The Hub's name of the task by Auto class, in the order in which a class of several Auto classes is loaded: bases last.
BASES = ("AutoModel", "AutoModelForTextEncoding")
HUB_TASKS = {head.auto_class: head.hub for head in sorted(HEADS, key=lambda head: head.auto_class in BASES)}
