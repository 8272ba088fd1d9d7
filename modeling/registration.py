"""Registration of every model with Auto classes and PEFT, and of the hooks for loading, saving and pushing."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import transformers
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from ..configuration import CONFIGS
from .base import QkvPreTrainedModel

SCRIPTS = f"{__package__.rpartition('.')[0]}.scripts"
# Where an Auto class has several models for a config, `architectures` decides, or it is the first.
SEVERAL = {
    "QkvEncoderModel": ("QkvEncoderModel", "QkvEncoderForContactPrediction"),
    "QkvEncoderForPreTraining": ("QkvEncoderForPreTraining", "QkvEncoderForReplacedTokenDetection"),
    "QkvEncoderDecoderModel": ("QkvEncoderDecoderModel", "QkvEncoderDecoderEncoderModel"),
    "QkvPairModel": ("QkvPairModel", "QkvPairForContactPrediction", "QkvPairForDistancePrediction"),
}
# transformers decides some behaviour by class name alone (label smoothing's shift, the models of a pipeline).
NAME_TABLES = {
    "AutoModelForCausalLM": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "AutoModelForSeq2SeqLM": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
# The norms of a layer; the last one of a stack may be none, which an adapter cannot be put on.
LAYER_NORMS = ["self_attn_residual.norm", "cross_attn_residual.norm", "mlp_residual.norm"]
PAIR_NORMS = ["row_attn_residual.norm", "column_attn_residual.norm", "transition_residual.norm", "pair_transition.norm"]


def register(models: dict[str, type[PreTrainedModel]]) -> None:
    """Register models, by the names that configs have for them, with Auto classes and PEFT."""
    for config_class in CONFIGS:
        for auto_class, reference in config_class.auto_classes.items():
            if auto_class != "AutoConfig":
                # Its file is that of the published copy, where a family is one file.
                name = reference.rpartition(".")[2]
                several = tuple(models[each] for each in SEVERAL.get(name, ()))
                getattr(transformers, auto_class).register(config_class, several or models[name])
                if auto_class in NAME_TABLES:
                    NAME_TABLES[auto_class][config_class.model_type] = name
    QkvPreTrainedModel.load_hook = check_source
    QkvPreTrainedModel.save_hook = save_code
    QkvPreTrainedModel.upload_hook = add_code
    if find_spec("peft"):
        register_adapters()


def register_adapters() -> None:
    """Tell PEFT the default targets of adapters, those of Llama, whose names our layers have, and our queries."""
    for table in vars(import_module("peft.utils.constants")).values():
        targets: list[str] = table.get("llama", []) if isinstance(table, dict) else []
        for config_class in CONFIGS if targets else ():
            table[config_class.model_type] = LAYER_NORMS + PAIR_NORMS if "norm" in targets else targets
    prompts = import_module("peft.tuners.adaption_prompt.config").TRANSFORMERS_MODEL_CONFIG
    # LLaMA-Adapter reads the rotated queries of an attention.
    prompts["qkv_decoder"] = prompts["llama"]._replace(
        compute_query_states=lambda model, hidden, context, **others: model.placed(hidden, context)[0]
    )


def check_source(source: object, options: dict[str, object]) -> dict[str, object]:
    """Warn of code older than the installed transformers; with QKV_VERIFY=1 raise IntegrityError on changed files."""
    if not isinstance(source, str | os.PathLike):  # without a source the tensors are the caller's
        return options
    if (folder := Path(source, str(options.get("subfolder") or ""))).is_dir():
        import_module(f"{SCRIPTS}.publishing.export.tested_releases").warn_of_outdated_code(folder)
    if os.environ.get("QKV_VERIFY", "").lower() in ("", "0", "false", "no", "off"):
        return options
    checked: dict[str, object] = import_module(f"{SCRIPTS}.publishing.integrity.verification").checked(source, options)
    return checked


def save_code(model: object, folder: str | os.PathLike[str]) -> None:
    """Put the code that a config names into a saved folder: a program that reads it may not import qkv."""
    import_module(f"{SCRIPTS}.publishing.hub.callback").save_code(model, Path(folder))


def add_code(model: object, folder: str | os.PathLike[str], repo_id: str, **options: object) -> None:
    """Put the code that a config names into a folder before `push_to_hub`: a reader may not have qkv."""
    import_module(f"{SCRIPTS}.publishing.hub.callback").complete(model, Path(folder), repo_id, **options)
