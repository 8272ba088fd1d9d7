"""Predict by the pipeline of a model's task: for each input the columns of that task, in the order of inputs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device

from qkv.scripts.common.phases import say_once
from qkv.scripts.data.audio import read_wav
from qkv.scripts.data.columns import NAMES, located
from qkv.scripts.data.corpus import prefixed
from qkv.scripts.data.dialogues import TOOLS, check_dialogue
from qkv.scripts.data.examples import InvalidRecord, Record, attempt, model_inputs
from qkv.scripts.data.text_columns import MULTI_LABEL, as_list
from qkv.scripts.data.tokenization import SPECIAL, is_trained_here, tokenize
from qkv.scripts.data.validation import check_image, check_text, file_bytes
from qkv.scripts.prediction.contacts import predict_contacts, read_chain
from qkv.scripts.prediction.generation import NEW_TOKENS, batched, new_tokens, positions, write_texts
from qkv.scripts.prediction.inputs import Table, column_of, known
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import ANSWERS, CONTACTS, FOLDS, LONGEST, UNLIMITED, Source
from qkv.scripts.prediction.structures import predict_structures, read_protein
from qkv.scripts.tasks.chat import TEMPLATE, fitted_tokens
from qkv.scripts.tasks.infilling import MIDDLE
from qkv.scripts.tasks.question_answering import best_spans, windows_of
from qkv.scripts.tasks.token_classification import first_tokens

THRESHOLD = 0.5
CHAINS: dict[str, Callable[[Any, Source], str]] = {CONTACTS: read_chain, FOLDS: read_protein}
CUT = ("text-classification", "token-classification", "fill-mask")  # tasks that read the beginnings of long texts
CHUNK = 128  # inputs that are open at a time


def predictions(table: Table, source: Source, options: Options) -> Iterator[tuple[Any, Record | InvalidRecord]]:
    """Yield each row with its new columns, or the reason that it has none; ValueError where a column is missing."""
    read, predict, left = reader_of(table, source, options), PREDICTORS[source.task], iter(table.rows())
    while rows := list(islice(left, CHUNK)):
        inputs = [attempt(read, row) for row in rows]
        valid = [each for each in inputs if not isinstance(each, InvalidRecord)]
        answers = predict(source, valid, options) if valid else iter(())
        for row, each in zip(rows, inputs, strict=True):
            yield row, each if isinstance(each, InvalidRecord) else next(answers)


def reader_of(table: Table, source: Source, options: Options) -> Callable[[Record | InvalidRecord], Any]:
    """Return the reader of a row's input; ValueError where a column is missing."""
    column, pair = column_of(table, source, options), pair_column(table, source, options)

    def read(row: Record | InvalidRecord) -> Any:
        if isinstance(row, InvalidRecord):
            raise row
        if source.chats:
            return read_dialogue(row.get(column), row.get(TOOLS), source)
        own = READERS[source.medium](row.get(column), source, table.folder)
        own = with_task(own, row, source) if source.task == "translation" else own
        own = both_of(source, own, check_text(row.get(pair))) if pair else own
        if source.task in CUT:
            say_cut(own, source)
        return own

    return read


def say_cut(read: Any, source: Source) -> None:
    """Say once that the model does not read the ends of long texts."""
    texts = [*read.values()] if isinstance(read, dict) else [" ".join(read) if isinstance(read, list) else read]
    most = source.tokenizer.model_max_length
    # A token is a byte or more.
    if len("".join(texts).encode()) + 4 > most and len(source.tokenizer(*texts, verbose=False)["input_ids"]) > most:
        say_once(f"{source.name} reads {most:,} tokens of a text; the ends of longer ones are left out")


def both_of(source: Source, text: str, second: str) -> dict[str, str]:
    """Return two texts in the order in which the model reads them: a question before the text that it is about."""
    return {"text": second, "text_pair": text} if source.task == ANSWERS else {"text": text, "text_pair": second}


def with_task(text: str, row: Record, source: Source) -> str:
    """Return the text of a row with the prefix of its task, its own or that of the row's column.

    InvalidRecord where a model of several tasks finds none of them.
    """
    tasks, fields = source.record.get("data", {}).get("mixing", {}), source.record.get("recipe", {}).get("text", {})
    if not tasks or any(text.startswith(prefixed(task, "")) for task in tasks):
        return text
    if (named := row.get(fields.get("task"))) not in tasks:
        known = ", ".join(repr(prefixed(task, "")) for task in tasks)
        raise InvalidRecord(f"no task of the model, expected a text that begins with one of {known}")
    return prefixed(str(named), text)


def pair_column(table: Table, source: Source, options: Options) -> str | None:
    """Return the column of second texts or questions, if the model reads any; ValueError where it is missing."""
    learned, asks = source.columns.get("pair"), source.task == ANSWERS
    if not asks and (source.task != "text-classification" or not (learned or "pair" in options)):
        return None
    names = (learned, "pair", *(NAMES["question"] if asks else ()))
    usual = [name for name in names if name in table.columns]
    if asks and not usual and "pair" not in options:
        raise ValueError(
            f"{source.name} answers questions about texts, and the input has none; name their column as in "
            'question=COLUMN, or after a text write one, as in question="Where is Ada?"'
        )
    return known(table, options.get("pair") or next(iter(usual), "pair"), "pair")


def read_text(value: Any, source: Source, folder: Path) -> Any:
    """Return a text, for tags also a list of words, for masked language models one with a mask, or a chain."""
    if source.task == "token-classification" and (not isinstance(value, str) or value.startswith("[")):
        return as_list(value)
    if source.task in CHAINS:
        return CHAINS[source.task](value, source)
    text = check_text(value)
    if source.task == "text-generation" and MIDDLE in text and MIDDLE in source.tokenizer.get_vocab():
        return whole_prompt(tokenize(source.tokenizer, [text])[0], source)
    if source.task == "fill-mask":
        mask = source.tokenizer.mask_token
        text = text.replace("{mask}", mask)
        if mask not in text:
            raise InvalidRecord(f"no {mask} to fill; write it where a word is to be predicted")
        if taken := [word for word in SPECIAL if word in text.replace(mask, "") and is_trained_here(source.tokenizer)]:
            raise InvalidRecord(f"{taken[0]}, a control token of the model beside {mask}; leave it out")
    return text


def read_dialogue(said: Any, tools: Any, source: Source) -> Any:
    """Return the tokens of a dialogue up to the last message that a model with a chat template answers, or a text.

    A text is a user's message to a model that has learned dialogues here, and a beginning to others, as in pipelines. A
    dialogue that is too long loses its first exchanges, and the screen says so.
    """
    if isinstance(said, str) and not said.startswith("[{"):
        if "messages" not in source.columns and source.tokenizer.chat_template != TEMPLATE:
            return check_text(said)
        said = [{"role": "user", "content": check_text(said)}]
    dialogue, limit = check_dialogue(said, tools), positions(source) or UNLIMITED
    ends = [place for place, each in enumerate(dialogue["messages"], start=1) if each["role"] in ("user", "tool")]
    if not ends:
        raise InvalidRecord("no message of a user to answer")
    dialogue["messages"], most = dialogue["messages"][: ends[-1]], max(limit - NEW_TOKENS, limit // 2)
    (ids, _), left = fitted_tokens(source.tokenizer, dialogue, most, asks=True)
    if left:
        say_once(f"the first {left} messages of dialogues of more than {most} tokens are left out")
    return whole_prompt(ids, source)


def whole_prompt(ids: Any, source: Source) -> dict[str, list[int]]:
    """Return the tokens of a prompt that is never cut; InvalidRecord where they leave no room for an answer."""
    if (limit := positions(source)) and len(ids) >= limit:
        raise InvalidRecord(f"{len(ids)} tokens, of which the model reads {limit} with its answer; give fewer")
    return {"input_ids": ids.tolist()}


def read_image(value: Any, source: Source, folder: Path) -> Any:
    """Return an image, opened to its last pixel."""
    return check_image(located(value, folder))


def read_recording(value: Any, source: Source, folder: Path) -> Any:
    """Return the samples of a recording at the model's rate."""
    try:
        sound = file_bytes(located(value, folder), "recording")
        return read_wav(sound, source.pipeline.feature_extractor.sampling_rate)
    except ValueError as error:
        raise InvalidRecord(str(error)) from None


READERS = {"text": read_text, "image": read_image, "audio": read_recording}


def piped(source: Source, inputs: Sequence[Any], options: Options, **arguments: Any) -> Iterator[Any]:
    """Yield the answer of the pipeline to each input, computed in batches."""
    size = batched(source, options) if source.medium == "text" else options.get("batch_size", 16)
    yield from source.pipeline((each for each in inputs), batch_size=size, **arguments)


def classify(source: Source, inputs: Sequence[Any], options: Options) -> Iterator[Record]:
    """Predict a class of texts or images, or choose one of several texts, with its probability; or predict a number, or
    all classes whose probability reaches the threshold.
    """
    arguments: dict[str, Any] = {"top_k": 1} | ({"truncation": True} if source.medium == "text" else {})
    if source.medium == "text" and source.model.config.problem_type == MULTI_LABEL:
        for answer in piped(source, inputs, options, **arguments | {"top_k": None, "function_to_apply": "sigmoid"}):
            scores = dict(sorted((each["label"], each["score"]) for each in answer))
            has = [label for label in scores if scores[label] >= options.get("threshold", THRESHOLD)]
            yield {"prediction": has, "scores": scores}
        return
    if is_regression := source.medium == "text" and source.model.config.num_labels == 1:
        arguments["function_to_apply"] = "none"
    if source.task == "zero-shot-image-classification":
        arguments = {"candidate_labels": choices(source, options), "hypothesis_template": "{}"}
    for best, *_ in piped(source, inputs, options, **arguments):
        yield {"prediction": best["score"]} if is_regression else {"prediction": best["label"], "score": best["score"]}


def choices(source: Source, options: Options) -> list[str]:
    """Return the texts to choose from: lines of a file, or the parts between commas; ValueError for none."""
    given = options.get("labels", "")
    is_file = bool(given) and Path(given).is_file()
    labels = Path(given).read_text(encoding="utf-8").splitlines() if is_file else given.split(",")
    labels = [label.strip() for label in labels if label.strip()]
    if len(labels) < 2:
        raise ValueError(
            f'{source.name} chooses among texts; give two or more, as in labels="a red square,a blue disc"'
        )
    return labels


def tag(source: Source, inputs: Sequence[Any], options: Options) -> Iterator[Record]:
    """Predict a tag for each word of a list, or the entities in a text; the score is that of the least certain one."""
    if any(isinstance(each, list) for each in inputs):
        rows = [each if isinstance(each, list) else each.split() for each in inputs]
        answers = piped(source, list(map(" ".join, rows)), options, ignore_labels=[])
        for words, answer in zip(rows, answers, strict=True):
            firsts = first_tokens(words, [(token["start"], token["end"]) for token in answer])
            tags = {word: token for word, token in zip(firsts, answer, strict=True) if word is not None}
            predicted = [tags[number]["entity"] if number in tags else None for number in range(len(words))]
            yield {"prediction": predicted, "score": least(tags.values())}
        return
    answers = piped(source, inputs, options, ignore_labels=[], aggregation_strategy="simple")
    for text, answer in zip(inputs, answers, strict=True):
        entities = [
            {"text": text[group["start"] : group["end"]], "label": group["entity_group"], "start": group["start"]}
            for group in answer
            if group["entity_group"] != "O"
        ]
        yield {"prediction": entities, "score": least(answer)}


def least(answers: Any) -> float | None:
    """Return the least score of several answers."""
    return min((float(answer["score"]) for answer in answers), default=None)


def fill_masks(source: Source, inputs: Sequence[Any], options: Options) -> Iterator[Record]:
    """Predict the token of each mask, and its probability; of several the list, and the least."""
    for answer in piped(source, inputs, options, top_k=1, tokenizer_kwargs={"truncation": True}):
        rows = [row[0] if isinstance(row, list) else row for row in answer]
        words = [row["token_str"].strip() for row in rows]
        yield {"prediction": words[0] if len(words) == 1 else words, "score": least(rows)}


def detect(source: Source, inputs: Sequence[Any], options: Options) -> Iterator[Record]:
    """Predict objects, as `qkv train` reads them, of at least a score; the score of a row is that of its best."""
    for answer in piped(source, inputs, options, threshold=options.get("threshold", THRESHOLD)):
        objects = [
            {"bbox": [left, top, right - left, bottom - top], "category": row["label"], "score": row["score"]}
            for row in answer
            for left, top, right, bottom in [[row["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")]]
        ]
        yield {"prediction": objects, "score": max((row["score"] for row in objects), default=None)}


def transcribe(source: Source, inputs: Sequence[Any], options: Options) -> Iterator[Record]:
    """Predict the words of a recording."""
    arguments = {}
    if source.pipeline.type != "ctc":
        arguments["generate_kwargs"] = {"num_beams": options.get("num_beams", 1)} | new_tokens(source, options)
    yield from ({"prediction": answer["text"]} for answer in piped(source, inputs, options, **arguments))


@torch.no_grad()
def answer_questions(source: Source, inputs: Sequence[Any], options: Options) -> Iterator[Record]:
    """Predict answers to questions, empty for none, with their probabilities and the places of their first letters."""
    size, tokenizer = options.get("batch_size", 16), source.tokenizer
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # which the mask hides
    for start in range(0, len(inputs), size):
        questions, contexts = zip(*(each.values() for each in inputs[start : start + size]), strict=True)
        batch = windows_of(tokenizer, questions, contexts, source.most_tokens or LONGEST)
        outputs = source.model(**send_to_device(model_inputs(batch), source.model.device))
        for text, place, score in best_spans(outputs, batch, contexts):
            yield {"prediction": text, "score": score, "start": place}


PREDICTORS: dict[str, Callable[[Source, Sequence[Any], Options], Iterator[Record]]] = {
    **dict.fromkeys(("text-classification", "image-classification", "zero-shot-image-classification"), classify),
    **dict.fromkeys(("translation", "text-generation"), write_texts),
    "token-classification": tag,
    "fill-mask": fill_masks,
    "object-detection": detect,
    "automatic-speech-recognition": transcribe,
    CONTACTS: predict_contacts,
    ANSWERS: answer_questions,
    FOLDS: predict_structures,
}
