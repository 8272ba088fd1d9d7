"""One transformer core, many models, all of them Hugging Face models.

This folder is the root of the import package: `configuration/`, `modeling/` and `scripts/` are installed beneath it. In
a checkout they stand in its root.
Importing it makes every `qkv_*` model type known to the Auto classes and to PEFT, and never touches the network. The
models themselves are imported at their first use, or with the Auto classes, whichever comes first.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import configuration, modeling
    from .configuration import *  # noqa: F403
    from .modeling import *  # noqa: F403
    from .scripts.attention.capture import capture_attention as capture_attention
    from .scripts.attention_view.view import attend as attend
    from .scripts.context.extension import extend as extend
    from .scripts.probes.induction import induction_score as induction_score
    from .scripts.probes.inspection import inspect as inspect
    from .scripts.publishing.hub.callback import CodeCallback as CodeCallback
    from .scripts.publishing.hub.publish import publish as publish
    from .scripts.publishing.integrity.manifest import IntegrityError as IntegrityError
    from .scripts.publishing.integrity.verification import verify as verify
    from .scripts.web_demo.server import demo as demo

    __all__ = ["CodeCallback", "IntegrityError", "attend", "capture_attention", "demo", "extend"]
    __all__ += ["induction_score", "inspect", "publish", "verify"]
    __all__ += configuration.__all__
    __all__ += modeling.__all__  # type: ignore[has-type]  # modeling imports this module

try:
    __version__ = version("qkv")
except PackageNotFoundError:  # a bare checkout
    __version__ = "0+checkout"

if not Path(__file__).with_name("modeling").is_dir():
    __path__.append(str(Path(__file__).parents[3]))  # noqa: F405

# The parts whose public names are names of this module too. Configs need no torch, models do.
PARTS = ("configuration", "modeling") if find_spec("torch") else ("configuration",)
COMMANDS = {
    "CodeCallback": "publishing.hub.callback",
    "IntegrityError": "publishing.integrity.manifest",
    "attend": "attention_view.view",
    "capture_attention": "attention.capture",
    "demo": "web_demo.server",
    "extend": "context.extension",
    "induction_score": "probes.induction",
    "inspect": "probes.inspection",
    "publish": "publishing.hub.publish",
    "verify": "publishing.integrity.verification",
}


def __getattr__(name: str) -> Any:
    """Import what the name stands for."""
    if name in COMMANDS:
        extras = import_module(f"{__name__}.scripts.common.extras")
        return getattr(extras.load(f"{__name__}.scripts.{COMMANDS[name]}"), name)
    if name in PARTS:
        return import_module(f"{__name__}.{name}")
    if name == "__all__":
        return [*COMMANDS, *(public for part in PARTS for public in import_module(f"{__name__}.{part}").__all__)]
    if not name.startswith("_"):
        for part in PARTS:
            module = import_module(f"{__name__}.{part}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what is imported at its first use too."""
    return [*globals(), *__getattr__("__all__")]


# Where an Auto class has several of ours for a config, `architectures` decides, or it is the first.
SEVERAL = {
    "QkvEncoderModel": ("QkvEncoderModel", "QkvEncoderForContactPrediction"),
    "QkvEncoderForPreTraining": ("QkvEncoderForPreTraining", "QkvEncoderForReplacedTokenDetection"),
    "QkvEncoderDecoderModel": ("QkvEncoderDecoderModel", "QkvEncoderDecoderEncoderModel"),
    "QkvPairModel": ("QkvPairModel", "QkvPairForContactPrediction", "QkvPairForDistancePrediction"),
}


class LazyClasses(dict[type, object]):
    """Config classes and their models; a model that stands here by its name is imported when it is read."""

    def __getitem__(self, config_class: type) -> object:
        """Return the class of a config, or a tuple of several."""
        return imported(super().__getitem__(config_class))

    def values(self) -> Any:
        """Return all classes."""
        return [self[config_class] for config_class in self]

    def items(self) -> Any:
        """Return all rows."""
        return [(config_class, self[config_class]) for config_class in self]


def imported(model: object) -> object:
    """Return the class of a name, or the classes of several; a class is returned as it is."""
    if isinstance(model, tuple):
        return tuple(map(imported, model))
    return __getattr__(model) if isinstance(model, str) else model


def holds_names(auto_class: Any) -> bool:
    """Let an Auto class hold models by their names; return False where transformers has no such place any more."""
    mapping = getattr(auto_class, "_model_mapping", None)
    # What `register` adds to. transformers' own models stand beside it, by their names too.
    held = getattr(mapping, "_extra_content", None)
    if isinstance(held, dict) and not isinstance(held, LazyClasses):
        mapping._extra_content = LazyClasses(held)  # type: ignore[union-attr]  # it has what `held` was read from
    return isinstance(held, dict)


def register_models(auto: ModuleType) -> None:
    """Register the models with the Auto classes of transformers, without importing them where that is possible."""
    # transformers decides some behaviour by class name alone (label smoothing's shift, what a pipeline may load).
    name_tables = {
        "AutoModelForCausalLM": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "AutoModelForSeq2SeqLM": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }
    for config_class in import_module(f"{__name__}.configuration").CONFIGS:
        for auto_class, reference in config_class.auto_classes.items():
            if auto_class != "AutoConfig":
                # Its file is that of the published copy, where a family is one file.
                name = reference.rpartition(".")[2]
                model, owner = SEVERAL.get(name, name), getattr(auto, auto_class)
                owner.register(config_class, model if holds_names(owner) else imported(model))
                if auto_class in name_tables:
                    name_tables[auto_class][config_class.model_type] = name


# The norms of a layer; the last one of a stack may be none, which an adapter cannot be put on.
LAYER_NORMS = ["self_attn_residual.norm", "cross_attn_residual.norm", "mlp_residual.norm"]
PAIR_NORMS = ["row_attn_residual.norm", "column_attn_residual.norm", "transition_residual.norm", "pair_transition.norm"]


def register_adapters(constants: ModuleType) -> None:
    """Tell PEFT what an adapter is put on unless it is said: what it takes in Llama, whose names our layers have."""
    for table in vars(constants).values():
        targets: list[str] = table.get("llama", []) if isinstance(table, dict) else []
        for config_class in import_module(f"{__name__}.configuration").CONFIGS if targets else ():
            table[config_class.model_type] = LAYER_NORMS + PAIR_NORMS if "norm" in targets else targets


def register_adaption_prompts(adaption: ModuleType) -> None:
    """Tell PEFT's LLaMA-Adapter how the attention of our decoders makes its queries; else it is that of Llama."""

    def queries(model: Any, hidden: Any, position: Any, **kwargs: object) -> Any:
        hooks = import_module(f"{__name__}.modeling.position.hooks")
        query = model.placed_query(hidden, position)
        return hooks.apply_rotation(query, query, position.rotation)[0]

    table = adaption.TRANSFORMERS_MODEL_CONFIG
    table["qkv_decoder"] = table["llama"]._replace(compute_query_states=queries)


# What is done once a module is imported. Importing them takes longer than all of `import qkv`.
REGISTRATIONS: dict[str, Callable[[ModuleType], object]] = {
    "transformers.models.auto.configuration_auto": lambda _: import_module(f"{__name__}.configuration"),
    "transformers.models.auto.modeling_auto": register_models,
    "peft.tuners.adaption_prompt.config": register_adaption_prompts,
    "peft.utils.constants": register_adapters,
}


class RegisteringLoader(SourceFileLoader):
    """Load a module that holds tables of models, then register ours."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then what REGISTRATIONS has for it."""
        super().exec_module(module)
        REGISTRATIONS[module.__name__](module)


class RegisteringFinder:
    """Find the modules that hold tables of models."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's own spec with another loader, or None for any other module."""
        spec = PathFinder.find_spec(name, path, target) if name in REGISTRATIONS else None
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        return spec_from_file_location(name, spec.origin, loader=RegisteringLoader(name, spec.loader.path))


def check_size(model_class: type, config: object) -> None:
    """Raise ValueError where a model is larger than the memory of this machine."""
    import_module(f"{__name__}.scripts.common.model_size").check_size(model_class, config)


def load_on_request(load: Callable[..., object], source: object, *args: object, **options: object) -> object:
    """Load a model, and warn where the code in its folder is older than the installed transformers.

    With QKV_VERIFY=1 only if it is what the manifest of its source says, else raise IntegrityError.
    """
    if isinstance(source, str | os.PathLike) and (folder := Path(source, str(options.get("subfolder", "")))).is_dir():
        import_module(f"{__name__}.scripts.publishing.export.tested_releases").warn_of_outdated_code(folder)
    if os.environ.get("QKV_VERIFY", "").lower() in ("", "0", "false", "no", "off"):
        return load(source, *args, **options)
    guard = import_module(f"{__name__}.scripts.publishing.integrity.guard")
    return guard.load_checked(load, source, *args, **options)


def save_code(model: object, folder: str | os.PathLike[str]) -> None:
    """Put the code that a config names into a saved folder: a program that reads it may not import qkv."""
    import_module(f"{__name__}.scripts.publishing.hub.callback").save_code(model, Path(folder))


def add_code(model: object, folder: str | os.PathLike[str], repo_id: str, **options: object) -> None:
    """Put the code that a config names into a folder before `push_to_hub`: a reader may not have qkv."""
    import_module(f"{__name__}.scripts.publishing.hub.callback").complete(model, Path(folder), repo_id, **options)


sys.meta_path.insert(0, RegisteringFinder)
for module_name, register in REGISTRATIONS.items():
    if module_name in sys.modules:
        register(sys.modules[module_name])
