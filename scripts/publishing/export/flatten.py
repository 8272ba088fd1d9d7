"""How does a package of folders become two files that people read on the Hub? Joined, specialised, and nothing unused.

transformers copies remote code file by file, and finds what else to copy by looking for lines `from .name import`. So
there is one such line: the models import the config.
"""

import ast
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import transformers
from torch import nn
from transformers import PreTrainedConfig

import qkv
from qkv.configuration.configuration_base import QkvConfig
from qkv.scripts.publishing.export.freeze import Decisions, freeze
from qkv.scripts.publishing.export.join import Joined, without_attributes
from qkv.scripts.publishing.export.specialize import specialise
from qkv.scripts.publishing.export.syntax import Text, replace

HEADER = """\
# Copyright 2026 The qkv authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#
# Made from qkv {version} for the architecture in config.json: what other architectures need is left out, and so are
# checks that only word errors better. Docstrings are written by hand, therefore `trf-ignore: TRF057`.
{notes}# SHA-256 of the lines below: {digest}
"""
# The package words the errors of huggingface_hub's decorator; a copy uses that itself.
RENAMED = {"@checked": "@strict"}
# transformers' linter wants its generated docstrings on these, which print an error for each field it does not know.
PUBLIC = re.compile(r"^(?:class (?:Qkv\w+|\w+Config)\(.*\):|    def (?:forward|get_\w+_features)\()$", re.MULTILINE)
BY_HAND = "  # trf-ignore: TRF057"


@dataclass(frozen=True)
class FlatCode:
    """{file name: text}, and the `auto_map` that names what is in them."""

    files: dict[str, str]
    auto_map: dict[str, str]


def flatten(config: PreTrainedConfig) -> FlatCode:
    """The code of every head that a model with this config can have: a file for the config, and one for the models.

    ValueError names the file and line that cannot be copied.
    """
    if not isinstance(config, QkvConfig):
        raise ValueError(f"{type(config).__name__} is not a config of qkv; qkv.from_transformers makes the model one")
    classes = {auto: class_of(reference) for auto, reference in config.auto_map.items()}
    return copied(tuple((auto, owner) for auto, owner in classes.items() if fits(owner, config)), Decisions.of(config))


@cache
def copied(classes: tuple[tuple[str, type], ...], decisions: Decisions) -> FlatCode:
    """The code of these classes, by the Auto classes that load them, for what is decided."""
    heads = dict(classes)
    family = heads.pop("AutoConfig")
    config_file, model_file = stem(family), stem(heads["AutoModel"])
    auto_map = {"AutoConfig": f"{config_file}.{family.__name__}"}
    auto_map |= {auto: f"{model_file}.{owner.__name__}" for auto, owner in heads.items()}
    models = specialised("qkv.modeling", [owner.__module__ for owner in heads.values()], decisions)
    models.keep(owner.__name__ for owner in heads.values())
    borrowed = [name for name in sorted(models.borrowed) if models.mentions(name)]
    models.imports.append(f"from .{config_file} import {', '.join(borrowed)}")
    settings = specialised("qkv.configuration", [family.__module__], decisions)
    settings.keep([family.__name__, *borrowed])
    for joined, other in ((settings, models), (models, settings)):
        # Those that only dropped code reads.
        joined.text = without_attributes(joined.text, joined.read - read_of_modules())
        joined.drop_methods(names_called() | set(re.findall(r"\w+", other.text)))
        joined.text = with_map(joined.text, auto_map, family.__name__)
    code = printed(model_file, models, decisions)
    # transformers remembers, for a config class of a local folder, the model that it saw with it first. So no two
    # models share the text of their config.
    own = f"# Goes with {model_file}.py of SHA-256\n# {hashlib.sha256(code.encode()).hexdigest()}\n"
    files = {f"{config_file}.py": printed(config_file, settings, decisions, own), f"{model_file}.py": code}
    return FlatCode(files, auto_map)


def class_of(reference: str) -> type:
    """The class of this package that an entry of an `auto_map` names, in whichever file that entry looks for it."""
    name = reference.rpartition(".")[2]
    owner = getattr(qkv, name, None)
    if not isinstance(owner, type):
        raise ValueError(f"auto_map names {reference}, but qkv has no class {name}; leave auto_map out of the config")
    return owner


def stem(owner: type) -> str:
    """The name of the file that a class is in."""
    return owner.__module__.rpartition(".")[2]


def fits(owner: type, config: QkvConfig) -> bool:
    """Whether a head reads what the model reads: one for words is no use to a model of images."""
    reads = getattr(owner, "reads", None)
    return reads in (None, getattr(config, "frontend", reads))


def specialised(folder: str, modules: Iterable[str], decisions: Decisions) -> Joined:
    """The modules of a folder in one text that says only what this config needs."""
    joined = Joined(folder)
    for module in modules:
        joined.add(module)
    known = dict(decisions.facts)
    if folder == "qkv.configuration":
        joined.text = freeze(joined.text, decisions)
        known = {**known, **{name.replace("config.", "self."): values for name, values in known.items()}}
    for old, new in RENAMED.items():
        joined.text = joined.text.replace(old, new)
    joined.text = specialise(joined.text, known, decisions.gone)
    return joined


@cache
def shared_files() -> list[Path]:
    """The files of transformers itself, its models apart."""
    root = Path(transformers.__file__).parent
    return [path for path in root.rglob("*.py") if "models" not in path.relative_to(root).parts]


@cache
def names_called() -> frozenset[str]:
    """Every name in transformers itself, its models apart, and in torch's modules: what they may call on a class."""
    words = {word for path in shared_files() for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return frozenset(words) | set(dir(nn.Module))


@cache
def read_of_modules() -> frozenset[str]:
    """Every attribute that transformers reads of what it calls a module, such as `is_causal` of an attention."""
    words = r"\bmodule\.(\w+)|attr\(module, \"(\w+)\""
    found = [each for path in shared_files() for each in re.findall(words, path.read_text(encoding="utf-8"))]
    return frozenset(name for names in found for name in names)


def with_map(text: str, auto_map: dict[str, str], owner: str) -> str:
    """The text in which references name the files there will be; a config inside another has none of its own."""
    for reference in auto_map.values():
        text = re.sub(rf'"\w+\.{reference.partition(".")[2]}"', f'"{reference}"', text)
    edits, tree = [], Text(text)
    for node in [node for node in tree.tree.body if isinstance(node, ast.ClassDef)]:
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "auto_classes" and field.value:
                if node.name == owner:
                    edits.append((tree.start(field.value), tree.end(field.value), repr(auto_map)))
                elif not isinstance(field.value, ast.Dict) or field.value.keys:
                    edits.append((*tree.whole(field), ""))
    return replace(text, edits)


def printed(name: str, joined: Joined, decisions: Decisions, notes: str = "") -> str:
    """A file: license, origin, what it is, imports, code."""
    code = PUBLIC.sub(rf"\g<0>{BY_HAND}", joined.finished())
    text = f'"""{joined.docstring(f"{joined.folder}.{name}")}"""\n\n{code}'
    fields = " ".join(decisions.differing)
    notes += f"# Its parts are not alike, therefore:\n# trf-ignore: TRF041 {fields}\n" if fields else ""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return HEADER.format(version=qkv.__version__, notes=notes, digest=digest) + text
