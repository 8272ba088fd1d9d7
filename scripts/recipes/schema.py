"""The schema of recipes: a tree of small dataclasses, of which each part of the system takes the one that it reads.

In YAML files and on the command line every field stands under its own name (`learning_rate`, not
`optimization.learning_rate`); only `text`, `augment`, `model` and `stock` are written as groups.
"""

from dataclasses import Field, asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, TypeVar, get_type_hints


@dataclass(frozen=True)
class Range:
    """The values that a number may take: from `least` on, or above it; a share stays below 1, for a reason."""

    least: float = 0
    above: bool = False
    share: str = ""

    def check(self, key: str, value: float) -> None:
        """Raise ValueError for a number out of range."""
        if value < self.least or (self.above and value == self.least):
            bound = "0 or more" if self.least == 0 else f"at least {self.least:g}"
            raise ValueError(f"{key}={value} must be {'above 0' if self.above else bound}")
        if self.share and value >= 1:
            raise ValueError(f"{key}={value} {self.share}")


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range()]
NonNegative = Annotated[float, Range()]
Positive = Annotated[float, Range(above=True)]
Fields = dict[str, Any]
T = TypeVar("T")


def written_as(key: str, **default: Any) -> Any:
    """Declare a field whose name in files differs from its name in the tree."""
    return field(metadata={"key": key}, **default)


@dataclass(frozen=True)
class Augmentation:
    """Random affine changes of training images, each drawn evenly up to the given size and either way.

    `degrees` rotates, `shift` moves by pixels, `scale` stretches by a share of the size, `shear` slants.
    """

    degrees: NonNegative = 0.0
    shift: NonNegative = 0.0
    scale: NonNegative = 0.0
    shear: NonNegative = 0.0


@dataclass(frozen=True)
class Text:
    """The tokenizer and the columns of texts, and the number of examples where data are synthetic.

    The `tokenizer` is trained on the training split, to `vocab_size` tokens or what the texts have: `bpe` over bytes
    as GPT-2's, `wordpiece` over words as BERT's, `characters`, whole `words`, or the 256 `bytes` themselves. All of
    these come out the same each time; those of a unigram model do not, so there is none. Any other word is the folder
    or Hub id of a trained tokenizer. `column`, `target` and `label` name the columns of `data=` that is no example
    data; `translation.en` is the English of a column of translations. `length` is the maximum number of tokens of a
    row, and `mask` the share of them that masked language modeling predicts. Synthetic data have `made` examples, of
    up to `symbols` symbols in copies and reversals, or of as many shapes; of an evaluated split the first `evaluated`
    are scored, or all of them when 0.
    """

    tokenizer: str = "bpe"
    vocab_size: Count = 2048
    length: Annotated[int, Range(4)] = 128
    mask: Annotated[float, Range(share="leaves nothing to guess from; give a share below 1, such as 0.15")] = 0.15
    made: Count = 12000
    symbols: Count = 32
    evaluated: Natural = 0
    column: str = "text"
    target: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Data:
    """The data: example data, a file, a folder or a data set of the Hub (`data`).

    `workers` processes make batches ahead, and first the tokens of a table of texts, which datasets' cache keeps then.
    Images of object detection are resized to a `shortest_edge` of that many pixels, and those of example data changed
    at random by `augment`.

    Data without a test split give a share of `test_size` to it, and, for a `holdout`, that share to validation; the
    test split is scored once, at the end. Rows are drawn at random by `split_seed`, from each class its share
    (`split="random"`), or the last ones are taken (`"time"`); rows with one value in the column `group`, and equal
    rows, stay together. More than a share of `leaked_records` of an evaluated split that the training split holds as
    well ends the run.

    `streaming` reads records as they are needed: in `shards`, whose number is that of no device but part of the order,
    each shuffled within a `buffer` of records. `documents` says what a document of plain text is, `encoding`
    how files of text are stored that have no byte order mark. A share of more than
    `bad_records` that are invalid ends the run.
    """

    source: str = written_as("data")
    workers: Natural = 0
    shortest_edge: Count = 800
    holdout: Annotated[float, Range(share="leaves nothing to train on; give a share below 1, such as 0.2")] = 0.0
    test_size: Annotated[float, Range(above=True, share="leaves nothing to train on; give a share such as 0.1")] = 0.1
    split: Literal["random", "time"] = "random"
    split_seed: Natural = 0
    group: str | None = None
    leaked_records: NonNegative = 0.01
    streaming: bool = False
    shards: Count = 8
    buffer: Count = 1000
    documents: Literal["line", "paragraph", "file"] = "paragraph"
    encoding: str = "utf-8"
    bad_records: Annotated[float, Range(share="lets every record be bad; give a share below 1, such as 0.01")] = 0.01
    augment: Augmentation = field(default_factory=Augmentation)


@dataclass(frozen=True)
class Model:
    """The model to be trained.

    `architecture` is a public class of qkv and `model` the fields of its config, or, with the name of a `preset`, those
    that differ from it. `init` is a pretrained model to start from: a run, a model folder or a Hub id, of qkv or of
    stock transformers. It brings its config, tokenizer and class names; of `model` only what training and the head
    read counts then. A pretrained model that lacks tensors below the head is refused, unless `partial_init` starts
    these at random. `model_source="stock"` trains what the model is compared with instead: the model of transformers
    that `stock` describes by its `model_type` and the fields of its config, or, where it says nothing, the one of the
    same architecture.
    """

    architecture: str
    preset: str | None = None
    config: Fields = written_as("model", default_factory=dict)
    init: str | None = None
    partial_init: bool = False
    source: Literal["qkv", "stock"] = written_as("model_source", default="qkv")
    stock: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Optimization:
    """Each optimizer step: AdamW, which decays matrices only, and gradients clipped to `max_grad_norm`.

    `batch_size` counts the examples of an optimizer step, however many processes share it and in however many parts
    (`accumulate`) each takes its share. `group_by_length` puts examples of like length into a step. With `ema_decay`
    the moving average of the weights is evaluated and kept.
    """

    max_steps: Count = 1000
    batch_size: Count = 32
    accumulate: Count = 1
    group_by_length: bool = False
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 0.01
    max_grad_norm: Positive = 1.0
    ema_decay: (
        Annotated[float, Range(share="never forgets the random start; give a share below 1, such as 0.999")] | None
    ) = None


@dataclass(frozen=True)
class Schedule:
    """The learning rate by step, of which `learning_rate` is the peak; `wsd` decays over the last `decay_steps`."""

    name: Literal["noam", "linear", "cosine", "wsd", "constant_with_warmup"] = written_as("schedule", default="cosine")
    warmup_steps: Natural = 0
    decay_steps: Natural = 0


@dataclass(frozen=True)
class Compute:
    """Precision and memory of the steps, and the devices that compute them.

    `threads` limits torch's CPU threads. `gradient_checkpointing` computes each layer twice and stores it once;
    `compile` lets torch's inductor fuse operations. Several processes each have a whole model (`strategy="ddp"`), or
    shard its weights (`"fsdp2"`); `"auto"` does what the config file of `accelerate launch` says, and `ddp` without
    one. With `tensor_parallel` as many processes work on each example, each with its share of the heads and
    intermediate units.
    """

    threads: Count | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    gradient_checkpointing: bool = False
    compile: bool = False
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    tensor_parallel: Count = 1


@dataclass(frozen=True)
class Output:
    """The run folder `out`, and how often it is written.

    A checkpoint is saved at the end, when a signal ends the training and every `save_every` steps, in the background
    with `async_save`; the newest `keep` stay. `resume="auto"`: the same recipe in the same folder resumes from the
    newest; with "never" a folder that is not empty is refused. Logs also go to the `tracker`, one that Accelerate
    knows, such as tensorboard. With `watch`, such as "validation loss", the weights of the best evaluation are kept
    instead of the last, and the training ends early after `patience` evaluations without a better one.
    """

    folder: str | None = written_as("out", default=None)
    log_every: Count = 10
    eval_every: Count = 100
    save_every: Count | None = None
    keep: Count = 2
    async_save: bool = False
    resume: Literal["auto", "never"] = "auto"
    tracker: str | None = None
    watch: str | None = None
    patience: Count | None = None


@dataclass(frozen=True)
class Recipe:
    """One training, from data to the last step.

    `prompt` is a text for the programs in the model's card to ask about, with {mask} where a token is to be predicted;
    `limits` are sentences for it on what the model cannot do.
    """

    name: str
    title: str
    data: Data
    model: Model
    text: Text = field(default_factory=Text)
    optimization: Optimization = field(default_factory=Optimization)
    schedule: Schedule = field(default_factory=Schedule)
    compute: Compute = field(default_factory=Compute)
    output: Output = field(default_factory=Output)
    seed: Natural = 0
    limits: str = ""
    prompt: str = ""


# The parts of the tree whose fields are written under their own names, and those that files write as groups.
PARTS: dict[str, type] = {
    "data": Data, "model": Model, "optimization": Optimization, "schedule": Schedule, "compute": Compute,
    "output": Output,
}  # fmt: skip
GROUPS: dict[str, type] = {"text": Text, "augment": Augmentation}


def key_of(known: Field[Any]) -> str:
    """Return the name of a field in files."""
    key: str = known.metadata.get("key", known.name)
    return key


def types_of(kind: type) -> dict[str, Any]:
    """Return {name in files: type} of the fields of a part."""
    types = get_type_hints(kind, include_extras=True)
    return {key_of(known): types[known.name] for known in fields(kind)}


def known_types() -> dict[str, Any]:
    """Return {name in files: type} of everything that a recipe says."""
    own = {name: kind for name, kind in types_of(Recipe).items() if name not in PARTS}
    return own | {key: kind for part in PARTS.values() for key, kind in types_of(part).items()}


def tree(values: Fields) -> Recipe:
    """Make a recipe of checked values under their names in files."""
    parts = {
        name: part(**{known.name: values[key] for known in fields(part) if (key := key_of(known)) in values})
        for name, part in PARTS.items()
    }
    own = {known.name: values[known.name] for known in fields(Recipe) if known.name in values.keys() - PARTS.keys()}
    return Recipe(**own, **parts)


def flat(recipe: Recipe) -> Fields:
    """Return the values of a recipe under their names in files, as records keep them."""
    values = asdict(recipe)
    for name, part in PARTS.items():
        inner = values.pop(name)
        values |= {key_of(known): inner[known.name] for known in fields(part)}
    return values
