"""The names of transformers that modeling/ and configuration/ stand on, by kind: `python tests/compatibility/upstream.py`."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn
from transformers import AutoModel, GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.utils.auto_docstring import ClassAttrs

from checkout import ROOT

# {page of its documentation: names there that `from transformers import …` does not give}
PAGES = {
    "main_classes/output": "modeling_outputs utils.ModelOutput",
    "model_output_tracing": "utils.generic.merge_with_config_defaults utils.output_capturing.capture_outputs "
    "utils.output_capturing.OutputRecorder",
    "community_integrations/transformers_as_backend": "modeling_utils.ALL_ATTENTION_FUNCTIONS",
    "model_doc/bert": "models.bert.modeling_bert.BertForPreTrainingOutput",
    "model_doc/detr": "models.detr.modeling_detr.DetrModelOutput models.detr.modeling_detr.DetrObjectDetectionOutput",
    "rules/trf062 of transformers-mlinter": "initialization",
}
DOCUMENTED = tuple(f"{name}." for names in PAGES.values() for name in names.split())
# Private names that authors of models are told to set: by `ClassAttrs`, by `DistributedConfig`, and on the pages
# add_new_model, model_output_tracing and community_integrations/transformers_as_backend.
HOOKS = {*vars(ClassAttrs), "_fsdp_plan", "_init_weights", "_can_record_outputs", "_attn_implementation"}
# What a release does without one of the private names that `modeling/checks/upstream.py` does not ask for.
FALLBACKS = {
    "PreTrainedModel._can_set_attn_implementation": "it looks for no `ALL_ATTENTION_FUNCTIONS.get_interface(` in our text",
    "PreTrainedModel._keys_to_ignore_on_load_unexpected": "it reports the decoder that an encoder alone does not load",
    "_is_hf_initialized": "loading builds a model twice, and keeps what it has loaded",
    "_weight_conversions": "conversion raises AttributeError",
}
OWNERS: list[Any] = [PreTrainedModel, GenerationMixin, GenerationConfig, PreTrainedConfig(), AutoModel]
# Others that have private names which we use.
OTHERS = (nn.LSTM(1, 1), torch.Tensor, NamedTuple("Row", []))
PATHS = [path for folder in ("configuration", "modeling") for path in sorted((ROOT / folder).rglob("*.py"))]
NODES = [node for path in PATHS for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def names_by_kind() -> dict[str, list[str]]:
    """Return names by kind: documented; hooks, private but documented; public; private."""
    kinds: dict[str, set[str]] = {kind: set() for kind in ("documented", "hooks", "public", "private")}
    for name, documented in (*imported(), *overridden(), *accessed()):
        kind = "documented" if documented else "public"
        if any(part.startswith("_") for part in name.split(".")):
            kind = "hooks" if name.rpartition(".")[2] in HOOKS else "private"
        kinds[kind].add(name)
    return {kind: sorted(names) for kind, names in kinds.items()}


def is_documented(module: str, name: str) -> bool:
    """Return True for what `from transformers import …` gives, and for what stands on one of the PAGES."""
    value, path = getattr(import_module(module), name, None), f"{module}.{name}.".removeprefix("transformers.")
    return value is not None and getattr(transformers, name, None) is value or path.startswith(DOCUMENTED)


def imported() -> Iterator[tuple[str, bool]]:
    """Yield what files import, and modules that are waited for by their names."""
    for node in NODES:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "transformers":
            for name in (alias.name for alias in node.names):
                path = f"{node.module}.{name}".removeprefix("transformers.")
                yield path, is_documented(str(node.module), name)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"transformers(\.\w+)+", str(node.value)):
            yield node.value.removeprefix("transformers."), False


def overridden() -> Iterator[tuple[str, bool]]:
    """Yield what classes define that a class of transformers, from which they inherit, has defined before."""
    for owner in classes():
        theirs = [base for base in owner.__mro__ if base.__module__.startswith("transformers.")]
        before = {name for base in theirs for name in vars(base) if not name.startswith("__")}
        for name in {name for base in owner.__mro__ if base.__module__.startswith("qkv.") for name in body(base)}:
            holders = [base for base in theirs if name in before and hasattr(base, name)]
            holders.sort(key=lambda base: is_documented(base.__module__, base.__name__))
            yield from (
                (f"{base.__name__}.{name}", is_documented(base.__module__, base.__name__)) for base in holders[-1:]
            )


def classes() -> Iterator[type]:
    for path in PATHS:
        name = ".".join(("qkv", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        module = import_module("qkv" if name == "qkv.modeling.package.qkv" else name)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (getattr(module, node.name) for node in tree.body if isinstance(node, ast.ClassDef))


@cache
def body(owner: type) -> set[str]:
    """Return the names that stand in a class, without those that decorators and parents have put there."""
    source = inspect.getsource(owner)
    return {name for name in vars(owner) if re.search(rf"^    (def )?{name}\b", source, re.MULTILINE)}


def accessed() -> Iterator[tuple[str, bool]]:
    """Yield private names that are read, set or defined anywhere, and the method that reads the text of attention layers.

    One that a class of ours defines may be looked for by a base class of transformers that does not define it.
    """
    ours = {name for owner in classes() for name in body(owner) if re.match("_[a-z]", name)}
    theirs = "".join(path.read_text(encoding="utf-8") for path in Path(transformers.__path__[0]).glob("*.py"))
    for name in ours | {name for node in NODES for name in private_names(node)}:
        owner = next((owner for owner in (*OTHERS, *OWNERS) if hasattr(owner, name)), None)
        if owner in OWNERS:
            yield f"{getattr(owner, '__name__', type(owner).__name__)}.{name}", False
        elif owner is None and (name not in ours or name in theirs):
            yield name, False
    if any("ALL_ATTENTION_FUNCTIONS.get_interface(" in path.read_text(encoding="utf-8") for path in PATHS):
        yield "PreTrainedModel._can_set_attn_implementation", False


def private_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        owner, name = node.value, node.attr
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
        owner, name = node.args[0], ast.unparse(node.args[1]).strip("'")
    else:
        return []
    return [name] if re.fullmatch(r"_[a-z]\w*", name) and not ast.unparse(owner).startswith("torch.") else []


if __name__ == "__main__":
    for kind, names in names_by_kind().items():
        print(f"{kind} ({len(names)}): {', '.join(names)}\n")
