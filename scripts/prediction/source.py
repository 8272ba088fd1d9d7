"""Open the model of a run, a folder or the Hub: its head, which follows from its class, and its pipeline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer

from qkv.configuration.saved_config import check_saved_config
from qkv.modeling.conversion.files import CONFIG, at_revision, located, read_json
from qkv.scripts.common.files import RECORD
from qkv.scripts.common.heads import HEADS, Head, head_for
from qkv.scripts.common.words import either

CONTACTS, ANSWERS, FOLDS = "contact-prediction", "question-answering", "protein-folding"
TASKS = {head.task: head for head in HEADS if head.task}
# Fields of a recipe's `text`.
ROLES = {"text": "column", "pair": "pair", "label": "label", "target": "target", "messages": "messages"}
LONGEST = 512  # tokens of a text, for models that no run of ours has made
UNLIMITED = 10**9  # a tokenizer without a limit states a larger one


@dataclass
class Source:
    """A model: its name as typed, its folder, head and class, and the record of the run that made it, if any."""

    name: str
    folder: Path
    head: Head
    model_class: str
    record: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """Return the task of its head."""
        return self.head.task

    @property
    def medium(self) -> str:
        """Return the kind of its inputs: text, image or audio."""
        return self.head.medium

    @property
    def architecture(self) -> str:
        """Return a name of ours with its head; the class itself for contacts, where the layout of tokens differs."""
        return self.model_class if self.task == CONTACTS else f"Qkv{self.head.ending}"

    @property
    def public_name(self) -> str:
        """Return the Hub id, or the folder's name without the path to it."""
        folder = Path(self.name).expanduser()
        return folder.resolve().name if folder.is_dir() else self.name

    @cached_property
    def pipeline(self) -> Any:
        """Load the pipeline of transformers for its task."""
        make: Any = transformers.pipeline
        made = make(self.task, model=self.where, **self.options)
        if getattr(made, "tokenizer", None) is not None:
            made.tokenizer.model_max_length = read_by(made.model, made.tokenizer) or made.tokenizer.model_max_length
        return made

    @cached_property
    def model(self) -> Any:
        """Load the model, ready to predict."""
        if self.head.has_pipeline:
            return self.pipeline.model
        return getattr(transformers, self.head.auto_class).from_pretrained(self.where, **self.options).eval()

    @cached_property
    def tokenizer(self) -> Any:
        """Load the tokenizer."""
        return AutoTokenizer.from_pretrained(self.where, **self.options)

    @cached_property
    def most_tokens(self) -> int | None:
        """Return the tokens of the longest text that it reads; None where nothing says so."""
        return read_by(self.model, self.tokenizer)

    @cached_property
    def chats(self) -> bool:
        """Return whether it answers dialogues: a language model whose tokenizer has a chat template."""
        return self.task == "text-generation" and bool(self.tokenizer.chat_template)

    @property
    def labels(self) -> list[str]:
        """Return its classes in the order of their numbers, in which a stock config need not have them."""
        return [label for _, label in sorted(self.model.config.id2label.items())]

    @property
    def where(self) -> str:
        """Return the name that transformers loads: the folder, or the Hub id of a model with remote code."""
        on_hub = "trust_remote_code" in self.options and not Path(self.name).is_dir()
        return at_revision(self.name, None)[0] if on_hub else str(self.folder)

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns that the run learned from, by role."""
        text = self.record.get("recipe", {}).get("text", {})
        return {role: text[key] for role, key in ROLES.items() if text.get(key)}


def read_by(model: Any, tokenizer: Any) -> int | None:
    """Return the tokens of the longest text that a model and its tokenizer read; None where neither says so."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limits = [limit for limit in (positions, tokenizer.model_max_length) if limit and limit < UNLIMITED]
    return min(limits, default=None)


def open_source(
    name: str, revision: str | None = None, *, trust_remote_code: bool = False, task: str | None = None
) -> Source:
    """Open a model without loading its weights; ValueError where there is none, or it is for another `task` or none."""
    is_here = Path(name).expanduser().is_dir()
    folder = Path(name).expanduser() if is_here else located(name, revision)
    if not (folder / CONFIG).is_file():
        mend = "give a run such as runs/first, a model folder or a Hub id"
        if (folder / "checkpoints").is_dir():
            mend = "it is no finished run; the command that trained it goes on from its last checkpoint"
        raise ValueError(f"{name} holds no {CONFIG}; {mend}")
    check_saved_config(read_json(folder / CONFIG))  # of a stock model, too, a kernel that it names would be loaded
    options: dict[str, Any] = {"trust_remote_code": True} if trust_remote_code else {}
    if trust_remote_code and not is_here and (commit := at_revision(name, revision)[1]):
        options["revision"] = commit
    record = Path(name).expanduser() / RECORD
    known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    head, model_class = head_of(name, folder, options)
    if task is not None and head_for(task).task != head.task:
        raise ValueError(f"task={task}: {name} is for {head.task}; leave task= out, or give a model for {task}")
    return Source(name, folder, head, model_class, known, options)


def head_of(name: str, folder: Path, options: Mapping[str, Any]) -> tuple[Head, str]:
    """Return the head of a model and its class; ValueError for one without a task."""
    try:
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code="trust_remote_code" in options or None)
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        mend = "where it needs its own code, --trust-remote-code runs that"
        raise ValueError(f"{name}: its config cannot be read ({reason}); {mend}") from None
    classes = list(config.architectures or ())
    for head in HEADS:
        names = loaded_by(head.auto_class, config) if head.task else set()
        # AutoModel loads models without a head, too.
        own = [each for each in classes if each in names and (head.auto_class != "AutoModel" or head.ending in each)]
        if own:
            return head, own[0]
    said = ", ".join(classes) or "a model without a class in its config"
    raise ValueError(f"{name} is {said}, which has no task here; the tasks are {either(list(TASKS))}")


def loaded_by(auto_class: str, config: Any) -> set[str]:
    """Return the names of the classes that an Auto class loads for a config, remote code included."""
    known = getattr(transformers, auto_class)._model_mapping.get(type(config), ())
    remote = (getattr(config, "auto_map", None) or {}).get(auto_class)
    classes = known if isinstance(known, tuple | list) else (known,)
    return {each.__name__ for each in classes} | ({remote.rpartition(".")[2]} if remote else set())
