"""The use of each head: the Hub's name of its task, and lines of Python that make inputs and show outputs."""

from dataclasses import dataclass

# A text, and one with a masked token; the recipe's prompt replaces them where it has one.
TEXT = '"The sky is blue."'
MASKED = "The sky is {mask}."
# The length of a generation; for models that end by themselves `usage.with_room` replaces it.
FEW = "max_new_tokens=20"
READ_TEXT = f'inputs = tokenizer({TEXT}, return_tensors="pt")'
READ_IMAGE = 'inputs = processor(Image.open("image.png"), return_tensors="pt")'
LABELS = '["a cat", "a dog"]'
READ_PAIRS = f"""\
image, labels = Image.open("image.png"), {LABELS}
inputs = processor(text=labels, images=image, padding=True, return_tensors="pt")"""
OPEN_SOUND = """\
import wave

import numpy as np
"""
READ_WAV = """\
with wave.open("speech.wav") as file:  # at the sampling rate of the training data
    assert file.getparams()[:2] == (1, 2), "save it with one channel of 16 bits"
    samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32768)
    speech = {"raw": samples, "sampling_rate": file.getframerate()}"""
READ_SOUND = f"""\
{READ_WAV}
inputs = extractor(speech["raw"], sampling_rate=speech["sampling_rate"], return_tensors="pt")"""
READ_CHOICES = """\
pairs = tokenizer(["The sky is"] * 2, ["blue.", "a fish."], padding=True, return_tensors="pt")
inputs = {name: value[None] for name, value in pairs.items()}"""
READ_BOTH = f'{READ_TEXT}\ninputs["decoder_input_ids"] = inputs["input_ids"]'
NUMBERS = 'inputs = {"input_ids": torch.tensor([[1, 2, 3]])}'
BEST = "print(model.config.id2label[int(outputs.logits[0].argmax())])"
OBJECTS = """\
size = torch.tensor([Image.open("image.png").size[::-1]])
print(processor.post_process_object_detection(outputs, threshold=0.5, target_sizes=size)[0])"""
STATES = "print(outputs.last_hidden_state.shape)"
ANSWER_SPAN = """\
start, end = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))"""
GENERATED = "print(tokenizer.decode(tokens[0], skip_special_tokens=True))"


@dataclass(frozen=True)
class Head:
    """The use of models of an Auto class, in lines of Python.

    `tag` is the Hub's name of the task, and the pipeline's where `pipeline` says what that is called with. `answer`
    shows what is in the `outputs`, or the `tokens` of models that generate; `numbers` are inputs for a model that has
    no processor. `before` are imports, and lines in front of the pipeline's call, where sound has to be read.
    """

    tag: str | None
    answer: str
    inputs: str = READ_TEXT
    pipeline: str | None = None
    generates: bool = False
    numbers: str = NUMBERS
    before: tuple[str, str] = ("", "")


# By Auto class; the first one that knows an official class is the one it is loaded with.
HEADS = {
    "AutoModelForCausalLM": Head(
        "text-generation", GENERATED, pipeline=f"{TEXT}, {FEW}, do_sample=False", generates=True
    ),
    "AutoModelForSeq2SeqLM": Head(None, GENERATED, generates=True),
    "AutoModelForMaskedLM": Head(
        "fill-mask",
        "print(tokenizer.decode(outputs.logits[0].argmax(-1)))",
        inputs=f'inputs = tokenizer("{MASKED}".format(mask=tokenizer.mask_token), return_tensors="pt")',
        pipeline=f'"{MASKED}".format(mask=predict.tokenizer.mask_token)',
    ),
    "AutoModelForSequenceClassification": Head("text-classification", BEST, pipeline=TEXT),
    "AutoModelForTokenClassification": Head(
        "token-classification",
        "print([model.config.id2label[int(label)] for label in outputs.logits[0].argmax(-1)])",
        pipeline=TEXT,
    ),
    "AutoModelForQuestionAnswering": Head(
        "question-answering",
        ANSWER_SPAN,
        inputs='inputs = tokenizer("What is blue?", "The sky is blue.", return_tensors="pt")',
    ),
    "AutoModelForMultipleChoice": Head(
        "multiple-choice",
        "print(int(outputs.logits[0].argmax()))",
        inputs=READ_CHOICES,
        numbers='inputs = {"input_ids": torch.tensor([[[1, 2, 3], [1, 2, 4]]])}',
    ),
    "AutoModelForImageClassification": Head("image-classification", BEST, READ_IMAGE, pipeline='"image.png"'),
    "AutoModelForMaskedImageModeling": Head(None, "print(outputs.reconstruction.shape)", READ_IMAGE),
    "AutoModelForZeroShotImageClassification": Head(
        "zero-shot-image-classification",
        "print(dict(zip(labels, outputs.logits_per_image[0].softmax(-1).tolist())))",
        READ_PAIRS,
        pipeline=f'"image.png", candidate_labels={LABELS}',
    ),
    "AutoModelForObjectDetection": Head("object-detection", OBJECTS, READ_IMAGE, pipeline='"image.png"'),
    "AutoModelForSpeechSeq2Seq": Head(
        "automatic-speech-recognition",
        GENERATED,
        READ_SOUND,
        pipeline=f"speech, {FEW}, num_beams=1",
        generates=True,
        before=(OPEN_SOUND, READ_WAV),
    ),
    "AutoModelForCTC": Head(
        "automatic-speech-recognition",
        "print(tokenizer.decode(outputs.logits[0].argmax(-1), skip_special_tokens=True))",
        READ_SOUND,
        pipeline="speech",
        before=(OPEN_SOUND, READ_WAV),
    ),
    "AutoModelForPreTraining": Head(None, "print(outputs[0].shape)"),
    "AutoModel": Head("feature-extraction", STATES, pipeline=TEXT),
}
IMAGE_FEATURES = Head("image-feature-extraction", STATES, READ_IMAGE, pipeline='"image.png"')
SOUND_FEATURES = Head("feature-extraction", STATES, READ_SOUND, before=(OPEN_SOUND, READ_WAV))
SPOKEN_FEATURES = Head(
    "feature-extraction",
    STATES,
    f'{READ_SOUND}\ninputs["decoder_input_ids"] = torch.tensor([[1, 2, 3]])',
    before=(OPEN_SOUND, READ_WAV),
)
PAIR_FEATURES = Head(
    "feature-extraction", STATES, READ_BOTH, numbers=f'{NUMBERS}\ninputs["decoder_input_ids"] = inputs["input_ids"]'
)
# Beside the tasks of heads: what encoder-decoders are trained for, of which their head does not tell.
KINDS = sorted({head.tag for head in (*HEADS.values(), IMAGE_FEATURES) if head.tag} | {"summarization", "translation"})
