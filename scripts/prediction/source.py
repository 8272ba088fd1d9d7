"""Open the model of a run, a folder or the Hub: its task, which follows from its class, and its pipeline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer

import qkv  # noqa: F401  registers our classes
from qkv.configuration.saved_config import check_saved_config
from qkv.modeling.conversion.files import CONFIG, at_revision, located, read_json
from qkv.scripts.common.files import RECORD, model_folder
from qkv.scripts.common.words import either

CONTACTS = "contact-prediction"
# Of AutoModel, which has models without a head, too.
CONTACT_HEADS = ("QkvEncoderForContactPrediction", "QkvPairForContactPrediction")
# The Auto classes of each task, by the pipeline's name for it.
TASKS: dict[str, tuple[str, ...]] = {
    "text-classification": ("AutoModelForSequenceClassification",),
    "token-classification": ("AutoModelForTokenClassification",),
    "fill-mask": ("AutoModelForMaskedLM",),
    "translation": ("AutoModelForSeq2SeqLM",),
    "text-generation": ("AutoModelForCausalLM",),
    "image-classification": ("AutoModelForImageClassification",),
    "object-detection": ("AutoModelForObjectDetection",),
    "zero-shot-image-classification": ("AutoModelForZeroShotImageClassification",),
    "automatic-speech-recognition": ("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
    CONTACTS: ("AutoModel",),
}
WITHOUT_PIPELINE = ("translation", CONTACTS)  # that of translation is no more
# Heads whose names do not end as their Auto class.
HEADS = {
    "AutoModelForSeq2SeqLM": "ForConditionalGeneration",
    "AutoModelForZeroShotImageClassification": "DualEncoderModel",
}
IMAGES = ("image-classification", "object-detection", "zero-shot-image-classification")


@dataclass
class Source:
    """A model: its name as given, its folder, task and class, and the record of the run that it is from, if any."""

    name: str
    folder: Path
    task: str
    auto_class: str
    model_class: str
    record: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """Return its class, or of any but heads on pairs of residues what stands for those of ours with its head."""
        if self.task == CONTACTS:
            return self.model_class
        return "Qkv" + (HEADS.get(self.auto_class) or self.auto_class.removeprefix("AutoModel"))

    @property
    def public_name(self) -> str:
        """Return the Hub id, or the folder's own name: where that lies is nobody's business whom a page reaches."""
        folder = Path(self.name).expanduser()
        return folder.resolve().name if folder.is_dir() else self.name

    @property
    def medium(self) -> str:
        """Return the kind of its inputs: text, image or audio."""
        return "image" if self.task in IMAGES else "audio" if "speech" in self.task else "text"

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
        if self.task not in WITHOUT_PIPELINE:
            return self.pipeline.model
        return getattr(transformers, self.auto_class).from_pretrained(self.where, **self.options).eval()

    @cached_property
    def tokenizer(self) -> Any:
        """Load the tokenizer."""
        return AutoTokenizer.from_pretrained(self.where, **self.options)

    @cached_property
    def most_tokens(self) -> int | None:
        """Return the tokens of the longest text that it reads; None where nothing says so."""
        return read_by(self.model, self.tokenizer)

    @property
    def where(self) -> str:
        """Return what transformers loads: the folder, or the Hub id where its own code is to run."""
        on_hub = "trust_remote_code" in self.options and not Path(self.name).is_dir()
        return at_revision(self.name, None)[0] if on_hub else str(self.folder)

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns that the run learned from, by role."""
        text = self.record.get("recipe", {}).get("text", {})
        return {role: text[key] for role, key in ROLES.items() if text.get(key)}


UNLIMITED = 10**9  # what a tokenizer that knows no limit says is more


def read_by(model: Any, tokenizer: Any) -> int | None:
    """Return the tokens of the longest text that a model and its tokenizer read; None where neither says so."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limits = [limit for limit in (positions, tokenizer.model_max_length) if limit and 0 < limit < UNLIMITED]
    return min(limits, default=None)


ROLES = {"text": "column", "pair": "pair", "label": "label", "target": "target"}


def open_source(name: str, revision: str | None = None, *, trust_remote_code: bool = False) -> Source:
    """Open a model without loading its weights; ValueError where there is none, or it has no task."""
    is_here = Path(name).expanduser().is_dir()
    folder = model_folder(Path(name)) if is_here else located(name, revision)
    if not (folder / CONFIG).is_file():
        mend = "give a run such as runs/first, a model folder or a Hub id"
        if (folder / "checkpoints").is_dir():
            mend = "it is no finished run; the command that trained it goes on from its last checkpoint"
        raise ValueError(f"{name} holds no {CONFIG}; {mend}")
    check_saved_config(read_json(folder / CONFIG))  # of a stock model, too, a kernel that it names would be loaded
    options: dict[str, Any] = {"trust_remote_code": True} if trust_remote_code else {}
    if trust_remote_code and not is_here and (commit := at_revision(name, revision)[1]):
        options["revision"] = commit
    known_as = task_of(name, folder, options)
    record = Path(name).expanduser() / RECORD
    known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    return Source(name, folder, *known_as, known, options)


def task_of(name: str, folder: Path, options: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the task of a model's class, its Auto class and the class itself; ValueError for one without a task."""
    try:
        config: Any = AutoConfig.from_pretrained(folder, **{k: v for k, v in options.items() if k != "revision"})
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        mend = "where it needs its own code, --trust-remote-code runs that"
        raise ValueError(f"{name}: its config cannot be read ({reason}); {mend}") from None
    classes = list(config.architectures or ())
    own = getattr(config, "auto_map", None) or {}
    for task, autos in TASKS.items():
        for auto in autos:
            mapping = getattr(transformers, auto)._model_mapping
            known = mapping[type(config)] if type(config) in mapping else ()
            names = {each.__name__ for each in (known if isinstance(known, tuple) else (known,))}
            names |= {own[auto].rpartition(".")[2]} if auto in own else set()
            names &= set(CONTACT_HEADS) if task == CONTACTS else names
            if own_class := next((each for each in classes if each in names), None):
                return task, auto, own_class
    said = ", ".join(classes) or "a model without a class in its config"
    raise ValueError(f"{name} is {said}, which has no task here; the tasks are {either(list(TASKS))}")
