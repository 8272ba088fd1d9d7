"""Other names of fields that people type: those of transformers, of other trainers, and fields without their group."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NoReturn

from qkv.scripts.common.phases import say
from qkv.scripts.common.words import nearest
from qkv.scripts.recipes.fields.config_fields import config_fields
from qkv.scripts.recipes.fields.recipe_fields import key_value, recipe_fields

# A key and its value, as text.
Pair = tuple[str, str]
DROPOUTS = "model.embedding_dropout model.attention_dropout model.residual_dropout"
# The fields that a name stands for, each followed by its other names.
NAMES = {
    "learning_rate": "lr peak_lr max_lr base_lr",
    "batch_size": "bs batch train_batch_size per_device_train_batch_size per_gpu_train_batch_size",
    "max_steps": "steps num_steps train_steps num_train_steps max_train_steps max_iters iterations",
    "epochs": "epoch num_epochs n_epochs num_train_epochs max_epochs",
    "accumulate": "gradient_accumulation_steps grad_accum accumulation_steps accumulate_grad_batches",
    "weight_decay": "wd",
    "max_grad_norm": "grad_clip clip_grad clip clip_norm gradient_clip gradient_clip_val clip_grad_norm",
    "schedule": "scheduler lr_scheduler lr_scheduler_type lr_schedule",
    "warmup_steps": "warmup num_warmup_steps",
    "out": "output_dir output out_dir output_path save_dir run_dir",
    "seed": "random_seed random_state manual_seed",
    "compile": "torch_compile",
    "data": "dataset dataset_name data_dir data_path train_file train_data",
    "init": "checkpoint pretrained model_name_or_path init_from",
    "tensor_parallel": "tp tensor_parallel_size",
    "workers": "num_workers dataloader_num_workers",
    "holdout": "val_split validation_split valid_size val_size validation_size",
    "test_size": "test_split test_ratio",
    "group": "group_by group_column",
    "save_every": "save_steps checkpoint_every",
    "eval_every": "eval_steps eval_interval",
    "log_every": "logging_steps log_interval log_steps",
    "keep": "save_total_limit",
    "tracker": "trackers report_to log_with logger",
    "watch": "metric_for_best_model monitor metric",
    "patience": "early_stopping_patience",
    "ema_decay": "ema",
    "text.length": "max_length max_seq_length seq_len sequence_length context context_length max_len",
    "text.tokenizer": "tokenizer_name tokenizer_name_or_path",
    "text.vocab_size": "vocab",
    "text.column": "text_column",
    "text.label": "label_column labels",
    "text.target": "target_column",
    "text.mask": "mlm_probability mask_prob",
    "model.hidden_size": "d_model n_embd dim width embed_dim model_dim hidden",
    "model.num_hidden_layers": "layers num_layers n_layer n_layers depth",
    "model.num_attention_heads": "heads num_heads n_head n_heads nhead",
    "model.num_key_value_heads": "kv_heads n_kv_heads num_kv_heads",
    "model.intermediate_size": "ffn_dim d_ff dim_feedforward mlp_dim",
    "model.hidden_act": "activation act",
    "model.patch_size": "patch",
    "model.image_size": "img_size input_size image_resolution",
    "model.label_smoothing": "smoothing label_smoothing_factor",
    "model.position": "pos positional_encoding position_embedding_type position_encoding pos_encoding",
    "model.max_position_embeddings": "n_positions max_positions",
    "model.norm_eps": "layer_norm_eps layer_norm_epsilon rms_norm_eps",
    "model.norm_first": "pre_norm prenorm",
    "model.drop_path_rate": "drop_path stochastic_depth",
    "model.norm": "norm_type normalization",
    DROPOUTS: "dropout dropout_rate hidden_dropout_prob",
}
# How like a name has to be, from 0 to 1, to be suggested: with so many names, those of other things are like it too.
SIMILAR = 0.76
ALIASES = {name: fields.split() for fields, names in NAMES.items() for name in names.split()}
CHOSEN = (
    "a training takes the first GPU where there is one, else the CPU; CUDA_VISIBLE_DEVICES=1 before the command takes "
    "another GPU, CUDA_VISIBLE_DEVICES= the CPU, and torchrun --nproc-per-node N scripts/train.py several"
)
HALF = "the words are precision=fp32 and precision=bf16"
ADAMW = "the optimizer is AdamW; its words are learning_rate, weight_decay and max_grad_norm"
SHARED = (
    "write strategy=ddp or strategy=fsdp2; DeepSpeed starts by accelerate launch --config_file "
    "scripts/accelerate/zero2.yaml scripts/train.py"
)
BEST = 'write watch="validation loss" to keep the best weights, and patience=3 to stop early'
# What to type instead of names that are no field, each before these names.
INSTEAD = {
    CHOSEN: "device devices gpu gpus num_gpus n_gpu cuda no_cuda cpu use_cpu accelerator num_processes world_size",
    HALF: "fp16 bf16 fp32 half amp mixed_precision dtype torch_dtype",
    ADAMW: "optimizer optim adam adamw sgd momentum betas adam_beta1 adam_beta2 adam_epsilon eps",
    SHARED: "ddp fsdp deepspeed zero",
    BEST: "early_stopping load_best_model_at_end",
    "write tracker=wandb, or tensorboard, trackio or mlflow": "tensorboard wandb trackio mlflow",
    "the same command goes on from its last checkpoint; init=RUN starts from a trained model": "resume_from_checkpoint",
    "train first; then qkv publish RUN user/name": "push_to_hub hub_model_id",
    "the classes follow from the data": "num_labels num_classes classes",
    "each class has its share of every split (split=random)": "stratify",
    "warm-up is counted in steps, write warmup_steps=100": "warmup_ratio",
    "the log is metrics.jsonl in the run folder, with a line every log_every steps": "verbose",
    "the task follows from the architecture: write architecture=QkvDecoderForCausalLM, for example": "task",
}
ANSWERS = {name: answer for answer, names in INSTEAD.items() for name in names.split()}


def resolve(overrides: Sequence[str]) -> list[str]:
    """Return `key=value` words under the keys of recipes, and print what was typed otherwise; ValueError for no key."""
    return [word for typed in overrides for word in resolve_word(typed, fields_of)]


def resolve_for_config(overrides: Sequence[str]) -> list[str]:
    """Return `key=value` words under the names of a config's fields, and print what was typed otherwise."""
    return [word for typed in overrides for word in resolve_word(typed.removeprefix("model."), config_fields_of)]


def resolve_word(typed: str, fields: Callable[[str], list[str]]) -> list[str]:
    """Return the words that one stands for: itself, unless its key is another name of some fields."""
    key, equals, value = typed.partition("=")
    if not (key and equals):
        return [typed]
    words = [f"{field}={value}" for field in fields(key)]
    if words != [f"{key.replace('-', '_')}={value}"]:
        say_once(f"{typed} is {' '.join(words)}")
    return words


def config_fields_of(typed: str) -> list[str]:
    """Return the fields of a config that a key stands for; the key where a config has to say what is wrong with it."""
    key = typed.replace("-", "_")
    named = [] if key in config_fields() else ALIASES.get(key, [])
    return [field.removeprefix("model.") for field in named] or [key]


def example_of(typed: str) -> str:
    """Return a `key=value` word with a key that was typed alone, where it is one; ValueError for an answered name."""
    if typed in ANSWERS:
        fields_of(typed)
    key = ALIASES.get(typed, [typed])[0]
    return key_value(key) or (f"{typed}=VALUE" if key.removeprefix("model.") in config_fields() else "")


def fields_of(typed: str) -> list[str]:
    """Return the fields that a key stands for; ValueError, with the right word, where it stands for none."""
    key = typed.replace("-", "_")
    first, _, last = key.partition(".")
    own = recipe_fields()
    if first == "model" and last in ALIASES and last not in config_fields():
        return [field for field in ALIASES[last] if field.startswith("model.")] or [key]
    if first in own:
        return [key]
    if key in ANSWERS:
        raise ValueError(f"there is no field {typed!r}: {ANSWERS[key]}")
    if key in ALIASES:
        return ALIASES[key]
    grouped = [f"{group}.{key}" for group in ("text", "augment") if f"{group}.{key}" in own]
    if grouped or key in config_fields():
        return grouped or [f"model.{key}"]
    unknown(typed)


def unknown(typed: str) -> NoReturn:
    """Raise ValueError for a key that stands for nothing, with the nearest that stands for something."""
    key = typed.replace("-", "_")
    known = {**{name: name for name in recipe_fields()}, **{name: f"model.{name}" for name in config_fields()}}
    known |= {field.rpartition(".")[2]: field for field in recipe_fields() if "." in field}
    known |= {name: " ".join(fields) for name, fields in ALIASES.items()} | {name: name for name in ANSWERS}
    close = nearest(key, list(known), SIMILAR)
    hint = f"did you mean {known[close]!r}?" if close else "qkv train RECIPE --help lists the fields"
    raise ValueError(f"unknown key {typed!r}; {hint}")


def options_as_words(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of a command with each `--key value` or `--key=value` that is none of its options as key=value.

    They stand behind the recipe, where no option takes them for its own. A key without a value is `true`.
    """
    rest: list[str] = []
    overrides: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word.partition("=")[0] in options or word == "--":
            rest.append(word)
            continue
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") and "=" not in left[0] else "true"
        overrides.append(f"{key}={value}")
    after = next((index + 1 for index, word in enumerate(rest) if not word.startswith("-")), 0)
    return [*rest[:after], *overrides, *rest[after:]]


@cache
def say_once(line: str) -> None:
    """Print a line on standard error, once."""
    say(line)
