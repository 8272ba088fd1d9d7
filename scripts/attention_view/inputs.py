"""Make the inputs of a forward from a text, two texts, an image, a recording, or the row of a table."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import set_seed

from qkv.scripts.attention_view.reading import Reading
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.generation import generate_tokens, new_tokens, prepared
from qkv.scripts.prediction.inputs import read_input
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.predictor import attempt_row, choices, reader_of
from qkv.scripts.prediction.source import CONTACTS, Source


def read_source(source: Source, given: str, options: Options) -> Reading:
    """Read an input as `qkv predict` does, of a table one row.

    A second text is read beside the first one; by a model that writes texts as its output, and by a model of images
    and texts beside the image. ValueError for an input that cannot be used.
    """
    options = dict(options)
    learned = source.task == "text-classification" and source.columns.get("pair")
    second = None if learned else options.pop("pair", None)
    table = read_input(given, source, options)
    number = options.get("row", 1) - 1
    if number >= len(table.rows):
        raise ValueError(f"row={number + 1}, but the input has {len(table.rows):,} rows; name one of them")
    if second in table.columns:
        second = str(table.rows[number][second])
    own = attempt_row(reader_of(table, source, options), number)
    if isinstance(own, InvalidRecord):
        raise ValueError(f"row {number + 1} of the input cannot be used: {own}")
    set_seed(options.get("seed", 0))
    reading = read_row(source, own, second, options)
    if len(table.rows) > 1:
        reading.notes.append(f"Row {number + 1} of {len(table.rows):,} is shown; row= names another")
    return reading


def read_row(source: Source, own: Any, second: str | None, options: Options) -> Reading:
    """Read an input as its pipeline takes it, and the second text of `read_source`.

    A model that writes texts writes one here, unless that is the second text.
    """
    reading = READERS[source.task](source, own, second, options)
    names = inspect.signature(type(source.model).forward).parameters
    reading.inputs = on_device(source, {name: each for name, each in reading.inputs.items() if name in names})
    return reading


def on_device(source: Source, inputs: Any) -> dict[str, Any]:
    """Put inputs on the device of the model."""
    device = source.model.device
    return {name: each.to(device) if isinstance(each, Tensor) else each for name, each in inputs.items()}


def note_cut(reading: Reading, texts: Sequence[Any], length: int) -> Reading:
    """Add a note where texts are longer than the model reads."""
    is_text = all(isinstance(text, str) for text in texts)
    whole = len(reading.tokenizer(*texts, verbose=False)["input_ids"]) if is_text else 0
    if whole > length:
        reading.notes.append(f"The text has {whole:,} tokens, of which the model reads {length:,}")
    return reading


def read_texts(source: Source, own: Any, second: str | None, options: Options) -> Reading:
    """Tokenize a text, or two."""
    if second is not None and source.task == CONTACTS:
        raise ValueError(f"pair={second!r} is not for {source.task}, which reads one chain; leave it out")
    texts = [own["text"], own["text_pair"]] if isinstance(own, dict) else [own, *([second] if second else [])]
    given: dict[str, Any] = {"max_length": source.most_tokens, "truncation": True} if source.most_tokens else {}
    given |= {"is_split_into_words": True} if isinstance(own, list) else {}
    inputs = source.tokenizer(*texts, return_tensors="pt", **given)
    return note_cut(Reading(source.model, dict(inputs), source.tokenizer), texts, inputs["input_ids"].shape[1])


def read_prompt(source: Source, own: str, second: str | None, options: Options) -> Reading:
    """Tokenize a prompt with the tokens that a decoder writes after it, or is said to have written."""
    if second is None:
        prompt, made = generate_tokens(source, own, options)
    else:
        prompt = prepared(source, [own], options)
        after = source.tokenizer(second, add_special_tokens=False, return_tensors="pt")["input_ids"]
        made = torch.cat((prompt["input_ids"].cpu(), after.long()), dim=1)
    length = prompt["input_ids"].shape[1]
    inputs = {"input_ids": made[:, :-1], "attention_mask": torch.ones_like(made[:, :-1])}
    reading = Reading(source.model, inputs, source.tokenizer, prompt=length, last=made[0, -1:].tolist())
    return note_cut(reading, [own], length)


def read_translation(source: Source, own: str, second: str | None, options: Options) -> Reading:
    """Tokenize a text, and generate its translation unless there is one."""
    if second is None:
        tokens, target = generate_tokens(source, own, options)
    else:
        tokens, target = prepared(source, [own], options), given_target(source.model, source.tokenizer, second)
    reading = with_target(Reading(source.model, dict(tokens), source.tokenizer), target)
    return note_cut(reading, [own], tokens["input_ids"].shape[1])


def given_target(model: Any, tokenizer: Any, text: str) -> Tensor:
    """Return the tokens of a text as a decoder reads and writes them, the start token first: (1, T)."""
    labels = tokenizer(text_target=text, return_tensors="pt", truncation=True)["input_ids"].to(model.device)
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return torch.cat((model.prepare_decoder_input_ids_from_labels(labels), labels[:, -1:]), dim=1)
    start = model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id
    begun = int(labels[0, 0]) == start  # by the tokenizer, as of Whisper
    return labels if begun else torch.cat((torch.full_like(labels[:, :1], start), labels), dim=1)


def with_target(reading: Reading, target: Tensor) -> Reading:
    """Add the tokens of a decoder, the start token first, that it reads and writes: (1, T)."""
    reading.inputs["decoder_input_ids"] = target[:, :-1]
    reading.prompt, reading.last = 1, target[0, -1:].tolist()
    return reading


def read_image(source: Source, own: Any, second: str | None, options: Options) -> Reading:
    """Prepare the pixels of an image."""
    processor = source.pipeline.image_processor
    return Reading(source.model, dict(processor(own, return_tensors="pt")), processor=processor)


@torch.no_grad()
def read_caption(source: Source, own: Any, second: str | None, options: Options) -> Reading:
    """Prepare the pixels of an image and tokenize a text, of several the one that fits best."""
    reading, texts = read_image(source, own, second, options), [second] if second else choices(source, options)
    reading.tokenizer = source.pipeline.tokenizer
    inputs = [{**reading.inputs, **reading.tokenizer([t], return_tensors="pt", truncation=True)} for t in texts]
    best = 0
    if second is None:
        scores = [source.model(**on_device(source, each)).logits_per_image[0, 0] for each in inputs]
        share, index = torch.stack(scores).float().softmax(0).max(0)
        best = int(index)
        reading.notes.append(
            f"Of {len(texts)} texts {texts[best]!r} fits best, with a probability of {float(share):.0%}"
        )
    reading.inputs = inputs[best]
    return reading


@torch.no_grad()
def read_recording(source: Source, own: Any, second: str | None, options: Options) -> Reading:
    """Prepare the features of a recording, with the tokens that a decoder writes down."""
    extractor, tokenizer = source.pipeline.feature_extractor, source.pipeline.tokenizer
    rate, samples = own["sampling_rate"], own["raw"]
    features = extractor(samples, sampling_rate=rate, return_tensors="pt", return_attention_mask=True)
    seconds = max(len(samples), getattr(extractor, "n_samples", 0)) / rate  # Whisper's are padded
    reading = Reading(source.model, dict(features), tokenizer, seconds=seconds)
    if source.pipeline.type == "ctc":
        return reading
    if second is not None:
        return with_target(reading, given_target(source.model, tokenizer, second))
    limit: dict[str, Any] = {"num_beams": options.get("num_beams", 1)} | new_tokens(source, options)
    if "force_unique_generate_call" in inspect.signature(source.model.generate).parameters:
        limit["force_unique_generate_call"] = True  # else Whisper leaves out the first tokens of its decoder
    return with_target(reading, source.model.generate(**on_device(source, features), **limit))


READERS: dict[str, Callable[[Source, Any, str | None, Options], Reading]] = {
    "text-classification": read_texts,
    "token-classification": read_texts,
    "fill-mask": read_texts,
    CONTACTS: read_texts,
    "translation": read_translation,
    "text-generation": read_prompt,
    "image-classification": read_image,
    "object-detection": read_image,
    "zero-shot-image-classification": read_caption,
    "automatic-speech-recognition": read_recording,
}
