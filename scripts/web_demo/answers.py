"""Answer what a person tries: read the input as `qkv predict` does, and give scores, texts or boxes for the page."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from qkv.scripts.attention_view.inputs import read_row
from qkv.scripts.attention_view.reading import Reading
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.predictor import PREDICTORS, READERS, piped
from qkv.scripts.prediction.source import CONTACTS, Source
from qkv.scripts.web_demo.requests import (
    RefusedError,
    check_duration,
    check_size,
    file_of,
    labels_of,
    options_of,
    text_of,
)

SHOWN = 10  # most scores in an answer
Request = Mapping[str, Any]
Answer = dict[str, Any]
CHECKS: dict[str, Callable[[bytes], None]] = {"image": check_size, "audio": check_duration}


def read_request(source: Source, request: Request) -> Any:
    """Return the input of a request as the pipeline of the model takes it."""
    try:
        given = given_to(source, request)
        own = READERS[source.medium](given, source, Path())
        return {"text": own, "text_pair": pair_of(request)} if reads_pairs(source) else own
    except InvalidRecord as error:
        raise RefusedError(400, f"the {NOUNS[source.medium]} cannot be used: {error}") from None


def given_to(source: Source, request: Request) -> Any:
    """Return the text of a request, or the content of its file, which is never read by a name."""
    if source.medium == "text":
        return text_of(request, "text")
    data = file_of(request)
    CHECKS[source.medium](data)
    return {"bytes": data, "path": None}


NOUNS = {"text": "text", "image": "image", "audio": "recording"}


def reads_pairs(source: Source) -> bool:
    """Tell whether the model has learned from pairs of texts."""
    return source.task == "text-classification" and "pair" in source.columns


def pair_of(request: Request) -> str:
    """Return the second text of a request."""
    pair = text_of(request, "pair")
    if not pair.strip():
        raise RefusedError(400, "the second text is empty; write one")
    return pair


def answer(source: Source, request: Request) -> tuple[Answer, Reading]:
    """Predict for a request: {"scores": …}, {"text": …}, {"number": …}, {"boxes": …} or {"entities": …}.

    The second is what the model read, whose attention is that of this answer: with the text that fits an image best,
    and with the tokens that were written.
    """
    options, given = options_of(request), read_request(source, request)
    if source.task in WRITING:
        reading = read_row(source, given, None, options)
        return {"text": reading.written}, reading
    made = ANSWERS[source.task](source, given, options, request)
    is_choice = source.task == "zero-shot-image-classification"
    return made, read_row(source, given, made["scores"][0]["label"] if is_choice else made.get("text"), options)


def scores_of(rows: Iterable[Mapping[str, Any]], name: str = "label") -> Answer:
    """Return the most probable of several labels, the best first."""
    best = sorted(rows, key=lambda row: -row["score"])[:SHOWN]
    return {"scores": [{"label": str(row[name]), "score": float(row["score"])} for row in best]}


def classified_text(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return the classes of a text, or the number that a regression predicts."""
    if source.model.config.num_labels == 1:
        return {"number": predicted(source, given, options)["prediction"]}
    return scores_of(next(piped(source, [given], options, top_k=SHOWN, truncation=True)))


def classified_image(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return the classes of an image."""
    return scores_of(next(piped(source, [given], options, top_k=SHOWN)))


def chosen_texts(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return how well each text of a request fits an image."""
    arguments = {"candidate_labels": labels_of(request), "hypothesis_template": "{}"}
    return scores_of(next(piped(source, [given], options, **arguments)))


def filled_mask(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return the tokens of the first mask of a text."""
    rows = next(piped(source, [given], options, top_k=SHOWN, tokenizer_kwargs={"truncation": True}))
    return scores_of(rows[0] if isinstance(rows[0], list) else rows, "token_str")


def tagged_words(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return the entities of a text, or the tags of a list of words."""
    own = predicted(source, given, options)["prediction"]
    if isinstance(given, list):
        own = [{"text": word, "label": tag} for word, tag in zip(given, own, strict=True)]
    return {"entities": own}


def contacts(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return the most probable pairs of residues of a chain, however probable they are."""
    rows = predicted(source, given, {**options, "threshold": 0})["prediction"]
    return scores_of({**row, "label": "{residues[0]}{i} {residues[1]}{j}".format(**row)} for row in rows)


def boxes(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return the objects of an image, and the size of the image that their boxes are in."""
    return {"boxes": predicted(source, given, options)["prediction"], "size": list(given.size)}


def transcribed(source: Source, given: Any, options: Options, request: Request) -> Answer:
    """Return what is said in a recording, of a copy: the pipeline empties what it is given."""
    return {"text": predicted(source, dict(given), options)["prediction"]}


def predicted(source: Source, given: Any, options: Options) -> dict[str, Any]:
    """Return what `qkv predict` has for an input."""
    return next(PREDICTORS[source.task](source, [given], options))


ANSWERS: dict[str, Callable[[Source, Any, Options, Request], Answer]] = {
    "text-classification": classified_text,
    "token-classification": tagged_words,
    "fill-mask": filled_mask,
    "image-classification": classified_image,
    "object-detection": boxes,
    "zero-shot-image-classification": chosen_texts,
    "automatic-speech-recognition": transcribed,
    CONTACTS: contacts,
}
WRITING = ("translation", "text-generation")
