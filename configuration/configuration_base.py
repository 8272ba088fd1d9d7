"""Base of all configs: checked values, misspelt fields refused, and the `auto_map` that a saved folder needs."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import fields
from difflib import get_close_matches
from functools import cache, wraps
from inspect import getattr_static
from reprlib import repr as shortened
from typing import Any, ClassVar, TypeVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import logging

from .earlier_names import EARLIER_NAMES, set_earlier_names, value_of_today
from .fields import check_choice, check_value
from .saved_config import check_saved_config

# Names that transformers and PEFT themselves hand to a config without declaring them as fields, and settings of
# generation that look like a misspelt field.
HUGGING_FACE_EXTRAS = frozenset(
    "num_labels attn_implementation experts_implementation output_attentions torch_dtype rope_scaling rope_theta "
    "per_layer_config name_or_path auto_map quantization_config model_type transformers_weights use_return_dict "
    "task_specific_params custom_pipelines num_items_in_batch partial_rotary_factor tie_word_embeddings use_cache "
    "pad_token_id bos_token_id eos_token_id cls_token_id sep_token_id mask_token_id unk_token_id "
    "forced_bos_token_id forced_eos_token_id max_length tokenizer_class finetuning_task base_model_name_or_path".split()
)
# Keywords of `from_pretrained` that Auto classes and `transformers serve` hand to that of a config.
LOADING_KEYWORDS = frozenset(
    "config cache_dir ignore_mismatched_sizes force_download local_files_only token revision use_safetensors "
    "weights_only fusion_config disable_mmap state_dict proxies tqdm_class output_loading_info device_map max_memory "
    "offload_folder offload_buffers offload_state_dict subfolder variant adapter_kwargs adapter_name generation_config "
    "gguf_file distributed_config device_mesh tp_plan tp_size trust_remote_code allow_all_kernels use_kernels "
    "kernel_config key_mapping code_revision resume_download use_auth_token user_agent return_unused_kwargs".split()
)
# Names of other libraries for a field: named where one is typed.
ALIASES = {
    alias: row.split()[0]
    for row in (
        "hidden_size n_embd d_model dim embed_dim n_embed",
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers layers",
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads heads",
        "num_key_value_heads n_kv_heads num_kv_heads kv_heads",
        "head_dim d_kv d_head",
        "intermediate_size n_inner d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim hidden_dim",
        "max_position_embeddings n_positions n_ctx max_seq_len max_seq_length context_length",
        "hidden_act activation activation_function hidden_activation",
        "norm_eps layer_norm_eps layer_norm_epsilon rms_norm_eps",
        "attention_dropout attention_probs_dropout_prob attn_pdrop",
        "residual_dropout dropout hidden_dropout_prob hidden_dropout resid_pdrop dropout_rate",
        "embedding_dropout embd_pdrop",
    )
    for alias in row.split()[1:]
}
# Words of fields that transformers declares, but does not check.
WORDS = {
    "problem_type": ("regression", "single_label_classification", "multi_label_classification"),
    "dtype": ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
}

# Whether a config is read from a file: nobody types its fields, and a misspelt one must not lock its model up.
reading_saved: ContextVar[bool] = ContextVar("reading_saved", default=False)
logger = logging.get_logger(__name__)

Config = TypeVar("Config", bound="QkvConfig")


def in_one_sentence(validate: Callable[[object], None]) -> Callable[[object], None]:
    """Wrap the `validate` of `strict` so that it raises the cause alone, as a ValueError."""

    @wraps(validate)
    def validate_in_one_sentence(config: object) -> None:
        try:
            validate(config)
        except StrictDataclassError as error:
            raise ValueError(str(error.__cause__ or error)) from None

    return validate_in_one_sentence


def auto_classes_of(family: str, name: str, heads: str = "", **others: str) -> dict[str, str]:
    """Map transformers' Auto classes to the classes of a family, by the files of its published copy.

    `AutoModelForX` loads the head `…ForX`, but for `others`.
    """
    models = {"": "Model", **{f"For{head}": f"For{head}" for head in heads.split()}, **others}
    named = {f"AutoModel{auto}": f"modeling_{family}.{name}{model}" for auto, model in models.items()}
    return {"AutoConfig": f"configuration_{family}.{name}Config", **named}


def model_configs() -> "list[type[QkvConfig]]":
    """Return the config class of every model type."""
    classes: list[type[QkvConfig]] = [QkvConfig]
    for config_class in classes:
        classes += config_class.__subclasses__()
    return [each for each in dict.fromkeys(classes) if each.model_type]


def owner_of(name: str) -> str | None:
    """Return the name of a config that has a field, rather one that models are loaded by than a part of another."""
    owners = [each for each in model_configs() if name in {field.name for field in fields(each)}]
    return min(owners, key=lambda each: not each.auto_classes).__name__ if owners else None


@cache
def is_fixed(config_class: "type[QkvConfig]", name: str) -> bool:
    """Return whether a class fixes a value, by a constant or by a property that derives it from fields."""
    if name.startswith("_") or name in {field.name for field in fields(config_class)}:
        return False
    found = getattr_static(config_class, name, ...)
    return found.fset is None if isinstance(found, property) else found is None or isinstance(found, int | float | str)


def refuse_field(config_class: "type[QkvConfig]", name: str, *, typed: bool) -> None:
    """Raise ValueError on a field that a config has not, naming its own; only a typed one needs to be known at all."""
    known, absent = config_class.known_fields(), f"{config_class.__name__} has no field {name!r}"
    if ALIASES.get(name) in known:
        raise ValueError(f"{absent}, which is {ALIASES[name]!r} here")
    if close := get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.72):
        raise ValueError(f"{absent}; did you mean {close[0]!r}?")
    if other := owner_of(name):
        raise ValueError(f"{absent}, which is one of {other}; leave it out")
    if typed and name not in vars(GenerationConfig()):
        raise ValueError(f"{absent}; leave it out, or set it on the finished config")


def check_model_type(config_class: "type[QkvConfig]", kind: object) -> None:
    """Raise ValueError where a saved config is that of another model."""
    if kind != config_class.model_type:
        raise ValueError(
            f"config of model_type={kind!r} is not one for {config_class.__name__}, which needs "
            f"{config_class.model_type!r}; use AutoConfig, or qkv.from_transformers for an official checkpoint"
        )


def pop_changes(config_class: "type[QkvConfig]", typed: dict[str, object]) -> dict[str, object]:
    """Take the fields out of what was typed beside a saved config, and return them."""
    own = {field.name for field in fields(config_class)}
    for name in typed.keys() - LOADING_KEYWORDS:
        config_class.check_spelling(name, typed=not typed.get("return_unused_kwargs"))
        if name in config_class.known_fields() - own and not hasattr(config_class, name):
            raise ValueError(f"{name} belongs to parts of a saved {config_class.__name__}; change it in one of them")
    changes = {name: typed.pop(name) for name in own & set(typed) - set(config_class.sub_configs)}
    return {name: value for name, value in changes.items() if (name, value) != ("dtype", "auto")}  # the saved one


def in_order(id2label: object) -> dict[int, str] | None:
    """Return labels in the order of their numbers, in which scores are read; ValueError where there are gaps."""
    if id2label is None:
        return None
    given: dict[object, str] = id2label if isinstance(id2label, dict) else {"": ""}
    labels, numbers = {str(number): given[number] for number in given}, list(map(str, range(len(given))))
    if {*labels} != {*numbers} or not all(isinstance(label, str | int) for label in labels.values()):
        raise ValueError(f"id2label={shortened(id2label)} is no dict of labels numbered 0, 1, … such as {{0: 'cat'}}")
    return {int(number): labels[number] for number in numbers}


def complete(config: "QkvConfig") -> None:
    """Set the fields that were left out and follow from others; JSON knows lists only, so tuples become lists."""
    for each in fields(config):
        value = getattr(config, each.name)
        if value is None and (follows := each.metadata.get("follows")):
            setattr(config, each.name, follows(config))
        elif isinstance(value, tuple):
            setattr(config, each.name, list(value))


class QkvConfig(PreTrainedConfig):
    """Check what transformers silently keeps: a wrong value or misspelt field raises, with what was probably meant.

    Values are checked by the types and bounds of fields and by the methods `validate_…`. `auto_classes` is written into
    every saved config as the full `auto_map`, so one folder serves all its heads. Its files are those of a published
    copy, which has one for the config and one for all models of a family.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        hidden_size: Width of the hidden states.
        num_hidden_layers: Number of layers.
        hidden_act: Activation of the feed-forward network.
        norm_eps: Added to the variance before the square root.
        embedding_dropout: Dropout probability after the embeddings.
        attention_dropout: Dropout probability of the attention weights.
        residual_dropout: Dropout probability at the end of each branch.
        classifier_dropout: Dropout probability before a classifier.
        label_smoothing: Probability that the loss moves from the right class or token to all of them evenly.
        initializer_range: Standard deviation of initial weights.
        embedding_multiplier: Factor on token embeddings, such as sqrt(hidden_size) (Transformer, Gemma).
        tie_word_embeddings: Whether the head shares the table of token embeddings.
        share_embeddings: Whether encoder and decoder share one table of token embeddings.
        use_cache: Whether keys and values, or states, of earlier tokens are returned and reused.
        is_encoder_decoder: Whether there is a decoder that attends to an encoder; transformers' generation reads it.
        decoder_start_token_id: Token that the decoder starts from.
        pad_token_id: Token that fills up short rows.
        bos_token_id: Token that begins a text.
        eos_token_id: Token or tokens that end a text.
    """

    auto_classes: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        inherited, checked = cls.__setattr__, strict(cls)
        # PreTrainedConfig's own runs the validators of every subclass already, once is enough.
        checked.__setattr__ = inherited  # type: ignore[method-assign]
        checked.validate = in_one_sentence(checked.validate)  # type: ignore[attr-defined]

    def __post_init__(self, **kwargs: object) -> None:
        self.check_extras(kwargs)
        kwargs.setdefault("auto_map", dict(self.auto_classes))
        # transformers looks through them where an Auto class has several models for a config.
        self.architectures: list[str] | None = self.architectures or []
        if self.label2id is not None and (self.id2label is None or not isinstance(self.label2id, dict)):
            raise ValueError(f"label2id={shortened(self.label2id)} must be a dict, with id2label beside it")
        self.id2label = in_order(self.id2label)
        set_earlier_names(self, kwargs)
        complete(self)
        super().__post_init__(**kwargs)

    def check_extras(self, extras: dict[str, object]) -> None:
        """Raise ValueError on misspelt extras, of which one that is read has a warning, and on wrong num_labels."""
        typed = not reading_saved.get() and "model_type" not in extras  # which nobody types, but every saved dict has
        for name, value in extras.items():
            try:
                self.check_spelling(name, typed=typed)
            except ValueError as error:
                if not reading_saved.get():
                    raise
                logger.warning(f"{error}; {name}={value!r} of the saved config is kept and changes nothing")
        labels = extras.get("num_labels")
        if labels is not None and (type(labels) is not int or not 1 <= labels <= 10**6):
            raise ValueError(f"num_labels={labels!r} must be a whole number of at least 1 and at most 1000000")

    def __setattr__(self, name: str, value: object) -> None:
        kind: Any = type(self)
        if is_fixed(kind, name):
            if getattr(self, name) != value:
                fixed = shortened(getattr(self, name))
                raise ValueError(f"{name}={value!r} is not for {kind.__name__}, where it is {fixed}; leave it out")
            return  # tools repeat what follows from the fields
        value = value_of_today(name, value)
        if name in WORDS and value is not None and type(value).__name__ != "dtype":
            for word in value.values() if isinstance(value, dict) else [value]:
                check_choice(WORDS[name], name, word)
        try:
            super().__setattr__(name, value)
        except StrictDataclassError as error:
            mistake = error.__cause__
        else:
            return
        check_value(kind.__dataclass_fields__[name], value, mistake)

    @property
    def embedding_width(self) -> int:
        """Width of a token's embedding, before it is projected to the hidden size where the two differ."""
        return int(getattr(self, "embedding_size", 0) or getattr(self, "hidden_size", 0))

    @property
    def output_attentions(self) -> bool:
        """True to return attention weights; allowed with every implementation, for models then attend eagerly."""
        return bool(self._output_attentions)

    @output_attentions.setter
    def output_attentions(self, value: bool) -> None:
        self._output_attentions = value

    def validate_output_attentions(self) -> None:
        """Check nothing: every attention implementation may return weights here."""

    @classmethod
    def from_dict(cls: type[Config], config_dict: dict[str, object], **kwargs: object) -> Config:
        """Make a config of a dict, changes checked as on construction: `from_pretrained(folder, image_size=32)`."""
        check_model_type(cls, check_saved_config(config_dict).get("model_type", cls.model_type))
        changes = pop_changes(cls, kwargs)
        token = reading_saved.set(True)
        try:
            return super().from_dict({**config_dict, **changes}, **kwargs)
        finally:
            reading_saved.reset(token)

    @classmethod
    def known_fields(cls) -> set[str]:
        """Return the name of every field, those of earlier configs too."""
        return {field.name for field in fields(cls)} | {name for name in EARLIER_NAMES if hasattr(cls, name)}

    @classmethod
    def check_spelling(cls, name: str, *, typed: bool = True) -> None:
        """Raise ValueError on a misspelt field (`hiden_size`), one of another config, and any unknown one if `typed`.

        Extras of transformers and settings of generation pass.
        """
        if not (name in cls.known_fields() | HUGGING_FACE_EXTRAS or hasattr(cls, name) or name[0] == "_"):
            refuse_field(cls, name, typed=typed)
