"""Serve a page of Gradio on which a person tries a model, and sees its attention."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.exceptions import ServerFailedToStartError
from PIL import Image

from qkv.scripts.attention_view.inputs import read_row
from qkv.scripts.attention_view.view import title_of, view_of
from qkv.scripts.common.phases import phase
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.predictor import PREDICTORS, READERS, both_of, piped, read_dialogue
from qkv.scripts.prediction.source import ANSWERS, CONTACTS, Source, open_source

TEXTS, CHOICES = ("translation", "text-generation"), "zero-shot-image-classification"
# Tasks whose pipelines score several labels, with the arguments of the pipelines.
SCORED: dict[str, dict[str, Any]] = {
    "text-classification": {"top_k": 10, "truncation": True},
    "fill-mask": {"top_k": 10, "tokenizer_kwargs": {"truncation": True}},
    "image-classification": {"top_k": 10},
    CHOICES: {"hypothesis_template": "{}"},
}
# Components of the inputs, by medium and by task, and of the answers.
TEXTBOX = partial(gr.Textbox, lines=3, max_length=10_000)
SCORE = partial(gr.Slider, 0.01, 1, 0.5, label="Minimum score")
WRITTEN = {
    "max_new_tokens": partial(gr.Slider, 1, 256, 64, step=1, label="Maximum number of new tokens"),
    "temperature": partial(gr.Slider, 0, 2, 0, label="Temperature (0: always the most probable token)"),
}
INPUTS: dict[str, dict[str, Any]] = {
    "text": {"text": partial(TEXTBOX, label="Text")},
    "audio": {"audio": partial(gr.Audio, label="Recording", type="filepath")},
    "image": {"image": partial(gr.Image, label="Image", type="filepath", image_mode=None)},
    CHOICES: {"labels": partial(TEXTBOX, label="Texts to choose from, one in each line")},
    "object-detection": {"threshold": SCORE},
    CONTACTS: {"threshold": SCORE},
    **dict.fromkeys(TEXTS, WRITTEN),
}
OUTPUTS = {"object-detection": gr.AnnotatedImage, "token-classification": gr.HighlightedText, CONTACTS: gr.JSON}
SKETCHPAD = partial(gr.Sketchpad, label="Drawing", type="pil", layers=False, transforms=(), canvas_size=(280, 280))
CHARACTER = re.compile(r"(LABEL_)?\w")  # a label that a person can draw
Values = dict[str, Any]


def predict(source: Source, names: list[str], *values: Any) -> tuple[Any, str]:
    """Return the answer to the inputs of the page, and its attention as HTML; gr.Error where an input is wrong."""
    typed = dict(zip(names, values, strict=True))
    kinds = {"max_new_tokens": int, "temperature": float, "threshold": float}  # a slider at 2.0 sends 2
    options = {name: kind(typed[name]) for name, kind in kinds.items() if typed.get(name)}
    try:
        own = READERS[source.medium](input_of(typed, source.medium), source, Path())
        own = both_of(source, own, typed["pair"]) if "pair" in typed else own
        answer, second = (None, None) if source.task in TEXTS else answered(source, own, typed, options)
        reading = read_row(source, own, second, options)
        view = view_of(title_of(source), reading, None, None)
    except (InvalidRecord, ValueError) as error:
        raise gr.Error(" ".join(str(error).split()), print_exception=False) from None
    return reading.written if source.task in TEXTS else answer, view._repr_html_()


def reply(source: Source, message: str, history: list[Values], most: float, temperature: float) -> str:
    """Return the answer to a message after the dialogue so far; gr.Error where it is too long."""
    turns = [(turn["role"], "".join(part["text"] for part in turn["content"])) for turn in history]
    said = [{"role": role, "content": text} for role, text in (*turns, ("user", message)) if text.strip()]
    options = {"max_new_tokens": int(most)} | ({"temperature": temperature} if temperature else {})
    try:
        own = read_dialogue(said, None, source)
        return str(next(PREDICTORS[source.task](source, [own], options))["prediction"])
    except (InvalidRecord, ValueError) as error:
        raise gr.Error(" ".join(str(error).split()), print_exception=False) from None


def input_of(typed: Values, medium: str) -> Any:
    """Return the text, the file, or the drawing: bright on black, in a square, as the digits of data sets are."""
    if medium == "text" or typed[medium]:
        return typed[medium] if medium == "text" else {"path": typed[medium], "bytes": None}
    layers = (typed.get("drawing") or {}).get("layers") or []
    ink = layers[0].getchannel("A") if layers else None
    if ink is None or not (box := ink.getbbox()):
        raise ValueError(f"there is no {medium}; draw, record or upload one")
    width, height = box[2] - box[0], box[3] - box[1]
    square = Image.new("L", (max(width, height),) * 2)
    square.paste(ink.crop(box), ((square.width - width) // 2, (square.height - height) // 2))
    return square


def is_scored(source: Source) -> bool:
    """Tell whether the answers of a model are scores of labels; a regression predicts a number."""
    return source.task in SCORED and (source.task != "text-classification" or source.model.config.num_labels > 1)


def answered(source: Source, own: Any, typed: Values, options: Values) -> tuple[Any, str | None]:
    """Return the prediction of the model, as its component shows it, and the text whose attention is shown."""
    if not is_scored(source):
        inputs = [dict(own) if source.medium == "audio" else own]  # the pipeline of recordings empties its input
        made = next(PREDICTORS[source.task](source, inputs, options))["prediction"]
        return shown(source.task, own, made), made if source.medium == "audio" else None
    labels = [line for line in map(str.strip, typed.get("labels", "").splitlines()) if line]
    if source.task == CHOICES and len(labels) < 2:
        raise ValueError("give two or more texts to choose from, one in each line")
    choices = {"candidate_labels": labels} if labels else {}
    rows = next(piped(source, [own], options, **SCORED[source.task], **choices))
    rows = rows[0] if isinstance(rows[0], list) else rows  # of several masks the first
    scores = {str(row.get("label", row.get("token_str"))): float(row["score"]) for row in rows}
    return scores, max(scores, key=scores.__getitem__) if labels else None


def shown(task: str, own: Any, made: Any) -> Any:
    """Return a prediction as its component takes it: boxes in an image, entities in a text, or a text."""
    if task == "object-detection":
        boxes = [(*map(round, row["bbox"]), f"{row['category']} {row['score']:.0%}") for row in made]
        return own, [((x, y, x + width, y + height), label) for x, y, width, height, label in boxes]
    if task != "token-classification":
        return made if isinstance(made, list) else str(made)
    if isinstance(own, list):
        return list(zip(own, made, strict=True))
    places = [{"entity": one["label"], "start": one["start"], "end": one["start"] + len(one["text"])} for one in made]
    return {"text": own, "entities": places}


def inputs_of(source: Source) -> Values:
    """Return the components of a person's inputs, by name."""
    wanted = {**INPUTS[source.medium], **INPUTS.get(source.task, {})}
    labels = (getattr(source.model.config, "id2label", None) or {}).values()
    if source.task == "image-classification" and all(CHARACTER.fullmatch(str(label)) for label in labels):
        wanted["drawing"] = partial(SKETCHPAD, height=400, brush=gr.Brush(13, ["#000000"]))
    if "target" in source.columns and "text" in source.columns:  # as question, answer
        wanted["text"] = partial(TEXTBOX, label=source.columns["text"])
    if source.task == ANSWERS or (source.task == "text-classification" and "pair" in source.columns):
        wanted["pair"] = partial(TEXTBOX, label="Question" if source.task == ANSWERS else "Second text")
    made = {name: make() for name, make in wanted.items()}
    prompt = str((source.record.get("recipe") or {}).get("prompt") or "")
    if prompt and source.medium == "text":
        made["text"].value = prompt.replace("{mask}", getattr(source.tokenizer, "mask_token", None) or "{mask}")
    return made


def page_of(source: Source) -> gr.Blocks:
    """Return the page of a model: its inputs, its answer, and the attention of the answer; or a chat."""
    recipe, component = source.record.get("recipe") or {}, OUTPUTS.get(source.task, gr.Textbox)
    about = f"{type(source.model).__name__}, {source.model.num_parameters():,} parameters"
    about = f"{recipe.get('title') or ''}\n\n{about}\n\n{recipe.get('limits') or ''}"
    if source.chats:
        return gr.ChatInterface(
            partial(reply, source), title=source.public_name, description=about, analytics_enabled=False,
            additional_inputs=[make() for make in WRITTEN.values()], api_visibility="private",
        )  # fmt: skip
    with gr.Blocks(title=source.public_name, analytics_enabled=False) as page:
        gr.Markdown(f"# {source.public_name}\n{about}")
        inputs = inputs_of(source)  # in no row: a sketchpad takes the width that it first has
        button = gr.Button("Predict", variant="primary")
        answer = source.columns.get("target", "Answer")
        answers = [(gr.Label if is_scored(source) else component)(label=answer), gr.HTML(label="Attention")]
        button.click(partial(predict, source, list(inputs)), [*inputs.values()], answers, api_visibility="private")
    return page


def demo(
    source: str,
    *,
    port: int | None = None,
    host: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> gr.Blocks:
    """Serve a page on which a person tries a model and sees its attention, until `close()` of the returned page.

    `source` is a run, a model folder or a Hub id; `local_url` is the address, which this machine alone reaches unless
    `host` says otherwise. ValueError where there is no model; OSError for a port that is taken.
    """
    opened = open_source(str(source), revision, trust_remote_code=trust_remote_code)
    with phase(f"loading {opened.name}"):
        page = page_of(opened)
    try:
        page.launch(server_name=host, server_port=port, prevent_thread_lock=True, quiet=True, max_file_size="16mb")
    except (OSError, OverflowError, ServerFailedToStartError) as error:
        raise OSError(f"--host={host} --port={port} cannot be served: {error}; give others") from None
    return page
