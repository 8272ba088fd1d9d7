"""The class and the configuration of a source (class, model, `module:Class`, folder, Hub id), shrunk if need be."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.dynamic_module_utils import get_class_from_dynamic_module

import qkv
from qkv.scripts.common.files import table

TABLE = table(__file__)
TINY = {name: size for size, names in TABLE["sizes"].items() for name in names.split()} | TABLE["values"]


def shrink(default: PreTrainedConfig) -> dict[str, Any]:
    """Return fields for a small model: known names with small values, parts likewise, each kind of layer once."""
    fields: dict[str, Any] = {"decoder_start_token_id": 1} if getattr(default, "is_encoder_decoder", False) else {}
    for name, value in default.to_dict().items():
        part = getattr(default, name, None)
        if isinstance(part, PreTrainedConfig):
            fields[name] = {**part.to_dict(), **shrink(part)}
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
    return fields


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
        raise ValueError(
            f"there is no class of transformers and no folder {name!r}; give these, module:Class or user/name"
        )
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
    references = (getattr(stored, "auto_map", None) or {}).values()
    code = next((reference for reference in references if str(reference).endswith(f".{name}")), None)
    native = getattr(transformers, name, None) or getattr(qkv, name, None)
    if code and native is None and not options.get("trust_remote_code"):
        raise ValueError(f"{source} has code of its own; read it, then run it with --trust-remote-code")
    if code and options.get("trust_remote_code"):
        return get_class_from_dynamic_module(code, source, revision=options.get("revision"))
    if native is None:
        raise ValueError(f"architectures={name} of {source} is no class of transformers; give module:Class")
    return native
