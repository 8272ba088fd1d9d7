"""The schema of recipes: a tree of small dataclasses, one for each part of the system.

Files and the command line write `text`, `augment`, `card` and `model` as groups, other fields by their names.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from qkv.scripts.recipes.fields.numbers import Count, Natural, NonNegative, Positive, PositiveShare, Range, Share

Fields = dict[str, Any]


def written_as(key: str, **default: Any) -> Any:
    """Declare a field whose name in files differs from its name in the tree."""
    return field(metadata={"key": key}, **default)


@dataclass(frozen=True)
class Augmentation:
    """Random affine changes of training images, each drawn evenly up to the given size and either way.

    Args:
        degrees (degrees): Rotation.
        shift (pixels): Movement along rows and columns.
        scale (share of the size): Stretching or shrinking.
        shear (share of the size): Slant.
    """

    degrees: NonNegative = 0.0
    shift: NonNegative = 0.0
    scale: NonNegative = 0.0
    shear: NonNegative = 0.0


@dataclass(frozen=True)
class Text:
    """The tokenizer and the columns of texts, and the number of examples where data are synthetic.

    Args:
        tokenizer: `bpe` over bytes (GPT-2), `wordpiece` over words (BERT), `characters`, `words` or the 256 `bytes`,
            trained on the training split; the amino acids, `residues`; or the folder or Hub id of a trained tokenizer.
        vocab_size (tokens): Size of a trained tokenizer, or what the texts have where that is less.
        length (tokens): Maximum length of a row.
        mask (share of the tokens): Tokens that masked language modeling predicts.
        corruption: Makes an encoder-decoder restore corrupted texts: `spans`, for each of which a sentinel stands (T5),
            or `infilling` of spans behind one mask token each (BART).
        noise_density (share of the tokens): Tokens that are corrupted; 0.15 in T5, 0.3 in BART.
        mean_span (tokens): Mean length of a corrupted span.
        permute_sentences: Whether infilling shuffles the sentences of a row, too, which end with full stops.
        made (examples): Number of examples of synthetic data.
        symbols: Maximum number of symbols of copies and reversals, or of shapes.
        evaluated (examples): Examples scored of an evaluated split, the first ones; 0 is all.
        column: Column of the texts of your own data; `translation.en` is the English of a column of translations.
        target: Column of the texts to be written, such as translations.
        pair: Column of a second text that is classified with the first.
        label: Column of the labels, which may be numbers or lists of tags.
        task: Column of the name of each row's task, which becomes the prefix of its text, as in `translate: good`.
        mixing_limit (examples): Examples of a task that count at most for the rate at which it is drawn.
        mixing_temperature: The greater, the more equal are the rates of tasks; 1 draws them by their examples.
        messages: Column of dialogues, of which a decoder learns the assistant's turns; a column `tools` is read, too.
        fim_rate (share of the texts): Pieces of training texts that a decoder learns with their middle at the end.
    """

    tokenizer: str = "bpe"
    vocab_size: Count = 2048
    length: Annotated[int, Range(4)] = 128
    mask: Share = 0.15
    corruption: Literal["spans", "infilling"] | None = None
    noise_density: PositiveShare = 0.15
    mean_span: Annotated[float, Range(1)] = 3.0
    permute_sentences: bool = False
    made: Count = 12000
    symbols: Count = 32
    evaluated: Natural = 0
    column: str = "text"
    target: str | None = None
    pair: str | None = None
    label: str | None = None
    task: str | None = None
    mixing_limit: Count | None = None
    mixing_temperature: Annotated[float, Range(1)] = 1.0
    messages: str | None = None
    fim_rate: Share = 0.0


@dataclass(frozen=True)
class Data:
    """The data, and how they are read and split.

    Args:
        data: Example data, a file, a folder, or a data set of the Hub as `author/name`.
        workers (processes): Processes that make batches ahead; a table of texts is then tokenized once, to a cache.
        shortest_edge (pixels): Size to which images of object detection are resized.
        holdout (share of the rows): Rows of the training data that become the validation split.
        test_size (share of the rows): Rows that become the test split, where the data have none; scored at the end.
        split: `random` draws the rows of a split at random, from each class its share; `time` takes the last ones.
        split_seed: Seed of that draw.
        group: Column whose equal values stay in one split, as equal rows do.
        leaked_records (share of the rows): Rows of an evaluated split that the training split may hold, too.
        streaming: Whether records are read as they are needed.
        shards: Parts in which a stream is read; they, not the processes, decide the order of its records.
        buffer (records): Records among which each shard is shuffled.
        documents: What a document of plain text is: a `line`, a `paragraph` or a `file`.
        encoding: Encoding of files of text that have no byte order mark, such as `latin-1`.
        bad_records (share of the records): Records that may be invalid; more of them end the run.
        augment: Random changes of training images of example data.
    """

    source: str = written_as("data")
    workers: Natural = 0
    shortest_edge: Count = 800
    holdout: Share = 0.0
    test_size: PositiveShare = 0.1
    split: Literal["random", "time"] = "random"
    split_seed: Natural = 0
    group: str | None = None
    leaked_records: NonNegative = 0.01
    streaming: bool = False
    shards: Count = 8
    buffer: Count = 1000
    documents: Literal["line", "paragraph", "file"] = "paragraph"
    encoding: str = "utf-8"
    bad_records: Share = 0.01
    augment: Augmentation = field(default_factory=Augmentation)


@dataclass(frozen=True)
class Model:
    """The model to be trained.

    Args:
        architecture: A public model class of qkv.
        preset: A paper's config, from which `model` differs.
        model: Fields of the config, each as `model.NAME=VALUE`.
        init: A pretrained model to start from, of qkv or transformers: a run, a model folder or a Hub id. It brings its
            config, tokenizer and class names; `model` then changes only fields of the head and of training.
        partial_init: Whether tensors below the head that a pretrained model lacks start at random, not refused.
    """

    architecture: str
    preset: str | None = None
    config: Fields = written_as("model", default_factory=dict)
    init: str | None = None
    partial_init: bool = False


@dataclass(frozen=True)
class Optimization:
    """Each optimizer step: AdamW, which decays matrices only, and gradients that are clipped.

    Args:
        max_steps (optimizer steps): Length of the training.
        epochs (passes over the data): Length of the training, in place of `max_steps`.
        batch_size (examples): Examples of an optimizer step, over all processes and accumulated parts.
        accumulate (parts): Gradient accumulation: parts of a step in each process; less memory, the same result.
        group_by_length: Whether examples of like length come into one step.
        learning_rate: Greatest learning rate of the schedule.
        weight_decay: Share of matrices that a step takes off, times the learning rate.
        max_grad_norm: Norm to which gradients of a greater one are clipped.
    """

    max_steps: Count = 1000
    epochs: Positive | None = None
    batch_size: Count = 32
    accumulate: Count = 1
    group_by_length: bool = False
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 0.01
    max_grad_norm: Positive = 1.0


@dataclass(frozen=True)
class Schedule:
    """The learning rate by step; its peak is `learning_rate`.

    Args:
        schedule: After the warm-up `noam` decays by the inverse square root of the step (Vaswani et al. 2017, §5.3),
            `linear` and `cosine` decay to 0 at the last step, `wsd` stays and decays over the last `decay_steps`
            (MiniCPM, Hu et al. 2024, §4.2), `constant_with_warmup` stays.
        warmup_steps (optimizer steps): Steps in which the learning rate rises from 0 to its peak.
        decay_steps (optimizer steps): Steps at the end in which `wsd` decays.
    """

    name: Literal["noam", "linear", "cosine", "wsd", "constant_with_warmup"] = written_as("schedule", default="cosine")
    warmup_steps: Natural = 0
    decay_steps: Natural = 0


@dataclass(frozen=True)
class Compute:
    """Precision and memory of the steps, and the devices that compute them.

    Args:
        threads (CPU threads): Limit of torch's threads.
        precision: `fp32`, or `bf16` for the products of matrices (autocast), by default on GPUs that compute it;
            weights stay in `fp32`.
        gradient_checkpointing: Whether each layer is computed twice and stored once: less memory, more time.
        compile: Whether torch's inductor fuses operations; by default in long trainings of causal language models on
            one GPU.
        strategy: Several processes each have a whole model (`ddp`) or shard its weights (`fsdp2`); `auto` does what the
            config file of `accelerate launch` says, and `ddp` without one.
        tensor_parallel (processes): Processes that share the heads and intermediate units of each example.
    """

    threads: Count | None = None
    precision: Literal["fp32", "bf16"] | None = None
    gradient_checkpointing: bool = False
    compile: bool | None = None
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    tensor_parallel: Count = 1


@dataclass(frozen=True)
class Output:
    """The run folder, and how often it is written.

    Args:
        out: The run folder; without it, one named after recipe and time in `runs`.
        log_every (optimizer steps): Steps between lines of `metrics.jsonl`.
        eval_every (optimizer steps): Steps between evaluations.
        save_every (optimizer steps): Steps between checkpoints, besides those at the end and after a signal.
        save_minutes (minutes): Time after which a checkpoint is saved, unless saving takes more than 3 % of the time.
        keep (checkpoints): Newest checkpoints that stay.
        resume: `auto` resumes from the newest checkpoint in the same folder; `never` refuses a folder with files.
        tracker: Trackers besides metrics.jsonl: tensorboard, trackio, wandb or mlflow, or several, as in wandb,mlflow.
        metrics: Metrics of the evaluated splits beside those of the task: names of ours, such as `cer`, or Hub ids of
            the library `evaluate`, such as `[rouge, matthews_correlation]`.
        watch: A metric, such as "validation loss", whose best evaluation's weights are kept instead of the last.
        patience (evaluations): Evaluations without a better one after which the training ends early.
        average (evaluations): The last evaluations whose weights are averaged at the end (Vaswani et al. 2017, §6.1).
    """

    folder: str | None = written_as("out", default=None)
    log_every: Count = 10
    eval_every: Count = 100
    save_every: Count | None = None
    save_minutes: Positive | None = 3.0
    keep: Count = 2
    resume: Literal["auto", "never"] = "auto"
    tracker: str | None = None
    metrics: list[str] = field(default_factory=list)
    watch: str | None = None
    patience: Count | None = None
    average: Count = 1


@dataclass(frozen=True)
class Card:
    """The fields of the model's card that a person writes; others follow from the data.

    Args:
        title: A phrase on the model, as the title of a paper.
        description: Sentences on the model and its use.
        license: Identifier of a license that the Hub knows, such as mit.
        language: Identifiers of the languages of the data, such as en, or en, fr.
    """

    title: str = ""
    description: str = ""
    license: str = ""
    language: str = ""


@dataclass(frozen=True)
class Recipe:
    """One training, from data to the last step.

    With other data than the recipe's own, its `title`, `prompt` and `limits` are left out unless they are typed.

    Args:
        name: Its name, by default that of its file.
        title: Title of the card.
        text: Tokenizer and columns of texts.
        seed: Seed of the weights, the order of the data, dropout and augmentation.
        limits: Sentences for the card on what the model cannot do.
        prompt: A text for the programs in the card to ask about, with {mask} where a token is to be predicted.
        card: What its owner says on the card.
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
    card: Card = field(default_factory=Card)
