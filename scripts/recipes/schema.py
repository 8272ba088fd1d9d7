"""What is trained, on what, and how? A recipe is a YAML file of these fields, changed by key=value words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

FOLDER = Path(__file__).parent
# The least value that makes sense, of fields that have one.
LEAST = dict.fromkeys(
    ("max_steps", "batch_size", "accumulate", "threads", "log_every", "eval_every", "save_every", "keep", "patience",
     "tensor_parallel", "shards", "buffer", "vocab_size", "made", "symbols", "shortest_edge"), 1
) | {"length": 4}  # fmt: skip
POSITIVE = ("learning_rate", "max_grad_norm")
SHARES = {
    "holdout": "leaves nothing to train on; give a share below 1, such as 0.2",
    "mask": "leaves nothing to guess from; give a share below 1, such as 0.15",
    "bad_records": "lets every record be bad; give a share below 1, such as 0.01",
    "ema_decay": "never forgets the random start; give a share below 1, such as 0.999",
}
NOT_NEGATIVE = (
    "weight_decay", "warmup_steps", "decay_steps", "seed", "workers", "degrees", "shift", "scale", "shear", "evaluated",
)  # fmt: skip
NUMBERS = {int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Augmentation:
    """Random affine changes of training images, each drawn evenly up to the given size and either way.

    `degrees` rotates, `shift` moves by pixels, `scale` stretches by a share of the size, `shear` slants.
    """

    degrees: float = 0.0
    shift: float = 0.0
    scale: float = 0.0
    shear: float = 0.0

    def __post_init__(self) -> None:
        refuse_out_of_range(asdict(self))


@dataclass(frozen=True)
class Text:
    """How texts become tokens, and how many of those that are made on the spot there are.

    The `tokenizer` is trained on the training split, to `vocab_size` tokens or what the texts have: `bpe` over bytes
    as GPT-2's, `wordpiece` over words as BERT's, `characters`, whole `words`, or the 256 `bytes` themselves. All of
    these come out the same each time; those of a unigram model do not, so there is none. Any other word is the folder
    or Hub id of a tokenizer that there is. `column`, `target` and `label` name the columns of `data=` that is read from
    elsewhere; `translation.en` is the English of a column of translations. `length` is the most tokens of a row, and
    `mask` the share of them that masked language modeling asks for. Of made data there are `made` examples, of up to
    `symbols` symbols in copies and reversals, or of as many shapes; of an evaluated split the first `evaluated` are
    looked at, or all of them when 0.
    """

    tokenizer: str = "bpe"
    vocab_size: int = 2048
    length: int = 128
    mask: float = 0.15
    made: int = 12000
    symbols: int = 32
    evaluated: int = 0
    column: str = "text"
    target: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        refuse_out_of_range(asdict(self))


@dataclass(frozen=True, kw_only=True)
class Feeding:
    """How examples become steps.

    `batch_size` counts the examples of an optimizer step, however many processes share it and in however many parts
    (`accumulate`) each takes its share. `group_by_length` puts examples of like length into a step. `workers`
    processes make batches ahead, and first the tokens of a table of texts, which datasets' cache keeps then. Pictures
    whose objects are looked for are brought to a `shortest_edge` of that many pixels. `holdout`
    keeps that share of the training data back, to be watched; the test split is scored once, at the end.

    `streaming` reads records as they are needed: in `shards`, whose number is that of no device but part of the order,
    each shuffled within a `buffer` of records. `documents` says what a document of plain text is. A share of more than
    `bad_records` that cannot be learned from ends the run.
    """

    batch_size: int = 32
    accumulate: int = 1
    group_by_length: bool = False
    workers: int = 0
    shortest_edge: int = 800
    holdout: float = 0.0
    streaming: bool = False
    shards: int = 8
    buffer: int = 1000
    documents: Literal["line", "paragraph", "file"] = "paragraph"
    bad_records: float = 0.01
    augment: Augmentation = field(default_factory=Augmentation)
    text: Text = field(default_factory=Text)


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """What is done at each step: AdamW, which decays matrices only, and gradients clipped to `max_grad_norm`.

    `schedule="wsd"` decays over the last `decay_steps`; of all schedules `learning_rate` is the peak. With `ema_decay`
    it is the moving average of the weights that is evaluated and kept. `gradient_checkpointing` computes each layer
    twice and stores it once; `compile` lets torch's inductor fuse what it can.
    """

    max_steps: int = 1000
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    schedule: Literal["noam", "linear", "cosine", "wsd", "constant_with_warmup"] = "cosine"
    warmup_steps: int = 0
    decay_steps: int = 0
    max_grad_norm: float = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"
    ema_decay: float | None = None
    gradient_checkpointing: bool = False
    compile: bool = False


@dataclass(frozen=True, kw_only=True)
class Running:
    """Where a training leaves what, and how often it looks up.

    `threads` limits torch's CPU threads. The state is saved at the end, when a signal ends the training and every
    `save_every` steps, in the background with `async_save`; the newest `keep` stay. `resume="auto"`: the same recipe
    in the same folder goes on from the newest; with "never" a folder that is not empty is refused. What is logged also
    goes to the `tracker`, one that Accelerate knows, such as tensorboard.
    With `watch`, such as "validation loss", the weights of the best evaluation are kept instead of the last, and the
    training ends early after `patience` evaluations without a better one.
    Several processes each have a whole model (`strategy="ddp"`), or share its weights (`"fsdp2"`); `"auto"` does what
    the config file of `accelerate launch` says, and `ddp` without one. With `tensor_parallel` as many processes work on
    each example, every one with its share of the heads and inner units.
    """

    out: str | None = None
    seed: int = 0
    threads: int | None = None
    log_every: int = 10
    eval_every: int = 100
    save_every: int | None = None
    keep: int = 2
    async_save: bool = False
    resume: Literal["auto", "never"] = "auto"
    tracker: str | None = None
    watch: str | None = None
    patience: int | None = None
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    tensor_parallel: int = 1


@dataclass(frozen=True)
class Recipe(Feeding, Optimization, Running):
    """One training, from data to the last step.

    `prompt` is a text for the programs in the model's card to ask about, with {mask} where a token is to be guessed.
    `architecture` is a public class of qkv and `model` the fields of its config, or, with the name of a `preset`, those
    that differ from it. `init` is the model folder of an earlier run, whose weights are taken over where names and
    shapes agree, and whose tokenizer reads the texts. `model_source="stock"` trains what the model is compared with
    instead: the model of transformers that `stock` describes by its `model_type` and the fields of its config, or,
    where it says nothing, the one of the same architecture.
    """

    name: str
    title: str
    data: str
    architecture: str
    preset: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    init: str | None = None
    model_source: Literal["qkv", "stock"] = "qkv"
    stock: dict[str, Any] = field(default_factory=dict)
    limits: str = ""
    prompt: str = ""

    def __post_init__(self) -> None:
        refuse_out_of_range(asdict(self))


def refuse_out_of_range(values: dict[str, Any]) -> None:
    """Raise ValueError for the first number outside what its field allows."""
    for name, value in values.items():
        if value is None or name not in (*LEAST, *POSITIVE, *NOT_NEGATIVE, *SHARES):
            continue
        if value < LEAST.get(name, 0) or (value == 0 and name in POSITIVE):
            bound = f"at least {LEAST[name]}" if name in LEAST else "above 0" if name in POSITIVE else "0 or more"
            raise ValueError(f"{name}={value} must be {bound}")
        if name in SHARES and value >= 1:
            raise ValueError(f"{name}={value} {SHARES[name]}")


def names() -> list[str]:
    """Every recipe that comes with qkv."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that YAML file, with `key=value` words applied; ValueError names what is wrong."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.exists():
        raise ValueError(f"there is no recipe {name!r}; {meant(name, names(), 'recipes')}")
    values = read(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} is not a recipe: it holds no keys")
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not key=value; write for example seed=1")
        assign(values, key, read(value, word))
    return build(Recipe, {"name": path.stem, **values})


def read(text: str, where: str) -> Any:
    """A YAML value; ValueError where it is none."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not valid YAML: {getattr(error, 'problem', error)}") from None


def assign(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested values."""
    *groups, last = key.split(".")
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise ValueError(f"{key!r} is not a recipe key: {group!r} holds a single value")
    values[last] = value


def build(kind: type, values: dict[str, Any], prefix: str = "") -> Any:
    """A dataclass from plain values, each converted to the type of its field."""
    types = get_type_hints(kind)
    for key in values:
        refuse_unknown(prefix + key, [prefix + known.name for known in fields(kind)])
    missing = [known for known in ("title", "data", "architecture") if known in types and known not in values]
    if missing:
        raise ValueError(f"the recipe says nothing about {', '.join(missing)}")
    return kind(**{key: convert(prefix + key, value, types[key]) for key, value in values.items()})


def convert(key: str, value: Any, kind: Any) -> Any:
    """The value as the type of its field; ValueError says what was expected."""
    if get_origin(kind) is Literal:
        words = get_args(kind)
        if value not in words:
            raise ValueError(f"{key}={value!r} is not allowed; {meant(str(value), words, 'words')}")
        return value
    options = get_args(kind) if NoneType in get_args(kind) else (kind,)
    if value is None and NoneType in options:
        return None
    if hasattr(options[0], "__dataclass_fields__"):
        return build(options[0], convert(key, value, dict), f"{key}.")
    return convert_plain(key, value, get_origin(options[0]) or options[0])


def convert_plain(key: str, value: Any, kind: type) -> Any:
    """A number, text or mapping; text that spells a number is one (YAML reads 1e-3 as text)."""
    if kind is str:
        return str(value)
    if kind is bool and isinstance(value, bool):
        return value
    try:
        if kind in (int, float) and not isinstance(value, bool) and float(value) == kind(value):
            return kind(value)
    except (TypeError, ValueError, OverflowError):
        pass
    if kind is dict and isinstance(value, dict):
        return value
    raise ValueError(f"{key}={value!r} is not {NUMBERS.get(kind, 'a group of keys')}")


def refuse_unknown(key: str, known: Sequence[str]) -> None:
    """Raise ValueError for a key that is not known."""
    if key not in known:
        raise ValueError(f"unknown key {key!r}; {meant(key, known, 'keys')}")


def meant(word: str, known: Sequence[str], what: str) -> str:
    """The nearest known word as a question, or all of them."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the {what} are {', '.join(known)}"
