"""The Hub's name of the task of each head, by the Auto class that loads it."""

# The first Auto class that knows an official class is the one it is loaded with.
HEADS: dict[str, str | None] = {
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForSeq2SeqLM": None,
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForImageClassification": "image-classification",
    "AutoModelForMaskedImageModeling": None,
    "AutoModelForZeroShotImageClassification": "zero-shot-image-classification",
    "AutoModelForObjectDetection": "object-detection",
    "AutoModelForSpeechSeq2Seq": "automatic-speech-recognition",
    "AutoModelForCTC": "automatic-speech-recognition",
    "AutoModelForPreTraining": None,
    "AutoModel": "feature-extraction",
    "AutoModelForTextEncoding": "feature-extraction",
}
IMAGE_FEATURES = "image-feature-extraction"
# Beside the tasks of heads: what encoder-decoders are trained for, of which their head does not tell.
# The Hub has no task for contacts.
KINDS = sorted(
    {task for task in HEADS.values() if task} | {IMAGE_FEATURES, "summarization", "translation", "contact-prediction"}
)
