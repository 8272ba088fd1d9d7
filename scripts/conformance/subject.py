"""A model under check: its class and configuration, shrunk if need be, weights, fresh copies, and inputs that fit."""

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, initialization
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.pytorch_utils import Conv1D

import qkv
from qkv.scripts.common.files import table

TABLE = table(__file__)
TINY = {name: size for size, names in TABLE["sizes"].items() for name in names.split()} | TABLE["values"]
Inputs = dict[str, Tensor]
CACHES = ("cache", "past_key_values")  # the cache has another name from transformers 5.24 on
MODALITIES = {"pixel_values": "image", "input_values": "speech", "input_features": "speech"}
MATRICES = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, Conv1D)
SPREAD = 0.15


@dataclass(eq=False)
class Subject:
    """A model that is built from a source at its first use; its options are those of `qkv.conform`."""

    source: Any
    config: Any = None
    inputs: Callable[[int, int, int], Inputs] | None = None
    seed: int = 0
    weights: bool = False
    trust_remote_code: bool = False
    revision: str | None = None

    def __post_init__(self) -> None:
        """Read class, configuration and the names of inputs; those of its parts where forward names none."""
        self.loading = {"trust_remote_code": self.trust_remote_code, "revision": self.revision}
        self.cls, self.config = resolve(self.source, self.config, **self.loading)
        self.text, self.names = self.config.get_text_config(decoder=True), parameters_of(self.cls)
        if not self.names & {"input_ids", *MODALITIES}:
            self.names = set[str]().union(*(parameters_of(type(part)) for part in self.model.children()))
        self.cache = next((name for name in CACHES if name in self.names), None)
        decodes = getattr(self.config, "is_encoder_decoder", False) and "SequenceClass" not in self.cls.__name__
        self.stream = "decoder_input_ids" if decodes and "decoder_input_ids" in self.names else "input_ids"

    @cached_property
    def state(self) -> Mapping[str, Tensor]:
        """Return the weights: those of a model or a folder, else random ones that show every path."""
        torch.manual_seed(self.seed)
        if isinstance(self.source, nn.Module):
            return self.source.state_dict()
        if self.weights:
            return self.cls.from_pretrained(self.source, dtype=torch.float32, **self.loading).state_dict()
        return agitate(self.cls._from_config(copy.deepcopy(self.config), dtype=torch.float32), self.seed).state_dict()

    @cached_property
    def model(self) -> Any:
        """Return the model in evaluation mode."""
        return self.fresh()

    @cached_property
    def kind(self) -> str:
        """Return the tag that chooses the checks: decoder, encoder, seq2seq, image, speech or pair."""
        if "pixel_values" in self.names and hasattr(self.model, "logit_scale"):
            return "pair"
        if self.stream != "input_ids":
            return "seq2seq"
        return MODALITIES.get(self.cls.main_input_name, "decoder" if self.cls.can_generate() else "encoder")

    @cached_property
    def per_token(self) -> bool:
        """Return whether there is one row of logits for each token."""
        shape, shorter = (self.logits(self.model, self.batch(2, length)).shape for length in (12, 11))
        return self.kind != "seq2seq" and shape[1:] == (12, shorter[-1])  # maps of pairs have another last dimension

    @cached_property
    def image_length(self) -> int:
        """Return how many tokens stand for an image in the text of a decoder; 0 where it reads none."""
        if self.kind != "decoder" or "pixel_values" not in self.names or not hasattr(self.config, "image_token_id"):
            return 0
        if self.inputs:
            return int((self.batch(1)["input_ids"] == self.config.image_token_id).sum())
        return sum(map(len, self.model.get_image_features(**features(self, 1, 0, "pixel_values")).pooler_output))

    @cached_property
    def backends(self) -> list[str]:
        """Return the attention backends that run on two rows, of those that the class claims: eager, then others."""
        claimed = ["sdpa"] * self.cls._supports_sdpa + ["flex_attention"] * self.cls._supports_flex_attn
        self.run(self.fresh("eager"), self.batch())
        self.refused = {backend: error for backend in claimed if (error := refusal(self, backend))}
        return ["eager", *(backend for backend in claimed if backend not in self.refused)]

    def fresh(self, attention: str | None = None, config: Any = None) -> Any:
        """Return the same weights in a new model."""
        torch.manual_seed(self.seed)
        chosen = {"attn_implementation": attention} if attention else {}
        with initialization.no_init_weights():
            model = self.cls._from_config(copy.deepcopy(config or self.config), dtype=torch.float32, **chosen)
        model.tie_weights()  # which no_init_weights leaves out
        model.load_state_dict(self.state)
        if model.can_generate():
            model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
        return model.eval()

    def batch(self, rows: int = 2, length: int = 12, shift: int = 0) -> Inputs:
        """Return inputs; another shift gives other values."""
        return self.inputs(rows, length, self.seed + shift) if self.inputs else made_batch(self, rows, length, shift)

    def ids(self, rows: int, length: int, shift: int = 0) -> Tensor:
        """Return random tokens, none of them special but one that ends a text."""
        generator = torch.Generator().manual_seed(self.seed + shift)
        ids = torch.randint(5, self.text.vocab_size - 3, (rows, length), generator=generator)
        if self.kind in ("encoder", "pair") and isinstance(end := getattr(self.text, "eos_token_id", None), int):
            ids[:, min(5, length - 1)] = end  # for models that pool there
        return ids

    @torch.no_grad()
    def run(self, model: Any, inputs: Inputs, **more: Any) -> Any:
        """Run a forward pass without gradients."""
        return model(**inputs, **more)

    def logits(self, model: Any, inputs: Inputs, **more: Any) -> Tensor:
        """Return the main output of a forward pass."""
        return main_output(self.run(model, inputs, **more))


def shrink(default: PreTrainedConfig) -> dict[str, Any]:
    """Return fields for a small model: known names with small values, parts likewise, each kind of layer once."""
    fields: dict[str, Any] = {"decoder_start_token_id": 1} if getattr(default, "is_encoder_decoder", False) else {}
    for name, value in default.to_dict().items():
        part = getattr(default, name, None)
        if isinstance(part, PreTrainedConfig):
            part = transformers.ResNetConfig() if isinstance(part, transformers.TimmBackboneConfig) else part
            fields[name] = {**part.to_dict(), **shrink(part), **TABLE["parts"].get(name, {})}
        elif name == "layer_types" and value:
            kinds = list(dict.fromkeys(value))
            fields[name] = kinds if len(kinds) > 1 else kinds * 2
            fields["num_hidden_layers"] = len(fields[name])
        elif isinstance(value, list | tuple):
            fields |= {name: type(value)(TABLE["lists"][name])} if name in TABLE["lists"] else {}
        elif name in TINY and name not in fields and (value is not None or name in TABLE["also_none"]):
            fields[name] = TINY[name]
    if hasattr(default, "kv_lora_rank"):  # latent attention makes keys and values for every head
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    return fields | TABLE["models"].get(default.model_type, {})


def small_config(model_class: Any) -> PreTrainedConfig:
    """Return a small configuration for a class."""
    if getattr(model_class, "config_class", None) is None:
        raise ValueError(f"{model_class.__name__} names no config_class; give a subclass of PreTrainedModel")
    default = model_class.config_class()
    alone = any(word in model_class.__name__ for word in ("CausalLM", "LMHead"))
    decoder = {"is_decoder": True} if alone and hasattr(default, "is_decoder") else {}
    return type(default)(**shrink(default), **decoder)


def named_class(name: str) -> Any:
    """Return the class of `module:Class`, or of a name in transformers or qkv; None where it is none of these."""
    module, colon, own = name.rpartition(":")
    if colon:
        try:
            return getattr(importlib.import_module(module), own)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{name} cannot be imported: {error}; give module:Class") from error
    found = getattr(transformers, name, None) or getattr(qkv, name, None)
    if found is None and "/" not in name and not Path(name).exists():
        raise ValueError(f"no class of transformers and no folder is called {name!r}; give module:Class or user/name")
    return found


def resolve(source: Any, config: PreTrainedConfig | None, **options: Any) -> tuple[Any, Any]:
    """Return the class and the configuration of a source."""
    if isinstance(source, nn.Module):
        return type(source), source.config
    if isinstance(source, str) and (found := named_class(source)) is not None:
        source = found
    if inspect.isclass(source):
        return source, config or small_config(source)
    if not isinstance(source, str | Path):
        raise ValueError(f"{source!r} is no model; give a class, a model, module:Class, a folder or a Hub id")
    stored = AutoConfig.from_pretrained(source, **{"trust_remote_code": False} | options)
    return stored_class(str(source), stored, **options), stored


def stored_class(source: str, stored: PreTrainedConfig, **options: Any) -> Any:
    """Return the class that a stored configuration names; ValueError where it is unknown, or its code may not run."""
    name = (stored.architectures or ["AutoModel"])[0]
    code = next(
        (each for each in (getattr(stored, "auto_map", None) or {}).values() if each.endswith(f".{name}")), None
    )
    if code and options.get("trust_remote_code"):
        return get_class_from_dynamic_module(code, source, revision=options.get("revision"))
    native = getattr(transformers, name, None) or getattr(qkv, name, None)
    if native is None:
        remedy = "read its code, then run it with --trust-remote-code" if code else "give module:Class"
        raise ValueError(f"architectures={name} of {source} is no class of transformers or qkv; {remedy}")
    return native


def refusal(subject: Subject, backend: str) -> Exception | None:
    """Return the error of an attention backend on two rows; None if it runs."""
    try:
        subject.run(subject.fresh(backend), subject.batch())
    except Exception as error:
        return error
    return None


def parameters_of(model_class: Any) -> set[str]:
    """Return the parameters that forward names, behind `*args, **kwargs` also those of the classes below."""
    names: set[str] = set()
    for each in model_class.__mro__:
        if "forward" in vars(each):
            parameters = inspect.signature(each.forward).parameters.values()
            names |= {parameter.name for parameter in parameters}
            if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
                break
    return names


@torch.no_grad()
def agitate(model: Any, seed: int) -> Any:
    """Make weights so large that every path shows in the output; start at random what starts at zero."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            if isinstance(module, MATRICES) and weight.dim() >= 2 and 0 < weight.std() < SPREAD:
                weight.mul_(SPREAD / weight.std())
            elif not weight.any():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.05)
    return model


def still(model: Any) -> Any:
    """Take dropout, layer drop and masking of inputs from a model: numbers so named of modules and configurations."""
    for module in model.modules():
        for owner in (module, getattr(module, "config", None)):
            for name, value in list(getattr(owner, "__dict__", {}).items()):
                named = "drop" in name or name.startswith("mask_") or (name == "p" and isinstance(module, nn.Dropout))
                if isinstance(value, float) and named:
                    setattr(owner, name, 0.0)
    return model


def made_batch(subject: Subject, rows: int, length: int, shift: int) -> Inputs:
    """Return random inputs of the kind of a model; a text too short for an image has none."""
    tokens, name = subject.image_length, "pixel_values" if subject.kind == "pair" else subject.cls.main_input_name
    inputs = features(subject, rows, shift, "pixel_values" if 0 < tokens < length - 1 else name)
    if not inputs or tokens or subject.kind == "pair":
        choices = 2 if "MultipleChoice" in subject.cls.__name__ else 1
        ids = subject.ids(rows * choices, length, shift)
        ids[:, : tokens if inputs else 0] = getattr(subject.config, "image_token_id", 0)
        inputs["input_ids"] = ids.unflatten(0, (rows, choices)) if choices > 1 else ids
    if subject.kind == "seq2seq":
        inputs["decoder_input_ids"] = subject.ids(rows, length, shift + 50)
    return inputs


def features(subject: Subject, rows: int, shift: int, name: str) -> Inputs:
    """Return random pixels or sound, of the size that a configuration names."""
    generator, config = torch.Generator().manual_seed(subject.seed + shift), subject.config
    shapes: dict[str, tuple[int, ...]] = {}
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", None) or 32
        shapes[name] = (getattr(vision, "num_channels", 3), *((side, side) if isinstance(side, int) else side))
    elif name == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 20)
        channels = getattr(config, "input_feat_per_channel", None)  # the last dimension of Speech2Text, not the first
        shapes[name] = (frames, channels) if channels else (getattr(config, "num_mel_bins", 80), frames)
    elif name == "input_values":
        shapes[name] = (800,)
    return {name: torch.randn(rows, *shape, generator=generator) for name, shape in shapes.items()}


def main_output(output: Any) -> Tensor:
    """Return the tensor of an output that checks compare: logits, else states; those of a pair side by side."""
    for pair in (("image_embeds", "text_embeds"), ("start_logits", "end_logits")):
        if all(torch.is_tensor(output.get(name)) for name in pair):
            return torch.stack([output[name] for name in pair], -1)
    names = ("logits", "prediction_logits", "last_hidden_state", "pooler_output", *output)
    found = (output[name] for name in names if torch.is_tensor(output.get(name)))
    return next(tensor for tensor in found if tensor.is_floating_point() and tensor.dim())


def score(output: Any) -> Tensor:
    """Return a number with another gradient for each value of the main output."""
    values = main_output(output).float()
    return (values * torch.linspace(-1, 1, values.numel()).view_as(values)).sum()
