"""The fields of configs as help and hints need them, read from their source: importing the configs takes seconds."""

import ast
from dataclasses import dataclass
from functools import cache
from typing import Any

from qkv.scripts.common.source_code import assigned, definitions, rows
from qkv.scripts.common.words import either
from qkv.scripts.recipes.fields.recipe_fields import KINDS, explained

CONFIGURATION = "configuration/*.py"


@dataclass(frozen=True)
class ConfigField:
    """A field of a config: its type as one says it, its words, default and meaning.

    `in_list` says that its words stand in a list alone.
    """

    name: str
    takes: str
    words: tuple[str, ...]
    in_list: bool
    default: Any
    meaning: str


@cache
def config_classes() -> dict[str, ast.ClassDef]:
    """Return every class of the configs' source by name."""
    return {name: node for name, node in definitions(CONFIGURATION).items() if isinstance(node, ast.ClassDef)}


@cache
def families() -> list[str]:
    """Return the classes of configs that have a model."""
    return [name for name, node in config_classes().items() if "model_type" in set(constants(node))]


def constants(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Return what the body of a class assigns without a type."""
    return {ast.unparse(one.targets[0]): one.value for one in node.body if isinstance(one, ast.Assign)}


@cache
def parts(name: str) -> dict[str, str]:
    """Return the parts of a composite config, with the class of each."""
    node = config_classes().get(name)
    named = constants(node).get("sub_configs_defaults") if node else None
    return {part: ast.unparse(one) for part, one in rows(named).items()} if named else {}


def declared(node: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    """Return the fields that a class declares itself."""
    statements = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return {ast.unparse(one.target): one for one in statements if "ClassVar" not in ast.unparse(one.annotation)}


@cache
def config_fields() -> frozenset[str]:
    """Return the names of all fields of all configs."""
    return frozenset(name for node in config_classes().values() for name in declared(node))


def config_of(architecture: str) -> str | None:
    """Return the config class of an architecture, by its name."""
    names = [name for name in config_classes() if architecture.startswith(name.removesuffix("Config"))]
    return max(names, key=len, default=None)


def inherited(name: str) -> list[ast.ClassDef]:
    """Return a config class and those that it inherits from, the furthest first."""
    node = config_classes().get(name)
    return [*(base for one in node.bases for base in inherited(ast.unparse(one))), node] if node else []


@cache
def meanings(name: str) -> dict[str, str]:
    """Return what each field of a config class means, inherited ones among them."""
    entries = [explained(ast.get_docstring(node)) for node in inherited(name)]
    return {field: meaning for own in entries for field, (_, meaning) in own.items()}


@cache
def fields_of_config(name: str) -> dict[str, ConfigField]:
    """Return the fields of a config class that its docstrings explain, inherited ones among them."""
    statements: dict[str, ast.AnnAssign] = {}
    for node in inherited(name):
        statements = {field: one for field, one in statements.items() if field not in fixed(node)} | declared(node)
    told = {field: meaning for field, meaning in meanings(name).items() if field in statements}
    return {field: read_field(field, statements[field], meaning) for field, meaning in told.items()}


def fixed(node: ast.ClassDef) -> set[str]:
    """Return the names that a class computes or gives a constant."""
    constant = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)} - declared(node).keys()
    return constant | {one.name for one in node.body if isinstance(one, ast.FunctionDef)}


def read_field(name: str, statement: ast.AnnAssign, meaning: str) -> ConfigField:
    """Return a field by its declaration."""
    annotation = statement.annotation
    words = tuple(dict.fromkeys(words_of(annotation)))
    in_list = bool(words) and not any(words_of(one) for one in alternatives(annotation) if not is_list(one))
    return ConfigField(name, spelled_type(annotation), words, in_list, default_of(statement.value), meaning)


def is_list(annotation: ast.expr) -> bool:
    """Tell whether a type is that of a list."""
    return ast.unparse(annotation).startswith(("list", "tuple"))


def spelled_type(annotation: ast.expr) -> str:
    """Return a type as one says it."""
    plain = {kind.__name__: said for kind, said in KINDS.items()} | {"None": "null", "Derived": f"{KINDS[int]} or null"}
    said: dict[str, str] = {}
    for one in alternatives(annotation):
        name, words = ast.unparse(one), either(words_of(one))
        if is_list(one):
            said["list"] = "a list" + (f" of {'them' if words in said.values() else words}" if words else "")
        else:
            said[name] = words or plain.get(name, KINDS[dict])
    if "float" in said:
        said.pop("int", None)
    return " or ".join(dict.fromkeys(said.values()))


def alternatives(annotation: ast.expr) -> list[ast.expr]:
    """Return the types of a union."""
    if isinstance(annotation, ast.BinOp):
        return [*alternatives(annotation.left), *alternatives(annotation.right)]
    return [annotation]


def words_of(annotation: ast.expr) -> list[str]:
    """Return the words of a type: those of a Literal, or of a name for one."""
    if isinstance(annotation, ast.Constant):
        return [annotation.value] if isinstance(annotation.value, str) else []
    if isinstance(annotation, ast.Name):
        literal = assigned(f"{CONFIGURATION.removesuffix('*.py')}axes.py").get(annotation.id)
        return words_of(literal) if literal else []
    return [word for one in ast.iter_child_nodes(annotation) for word in words_of(one)]  # type: ignore[arg-type]


def default_of(value: ast.expr | None) -> Any:
    """Return the default that a field is declared with, by itself or by a function such as `at_least(1, 12)`."""
    if not isinstance(value, ast.Call):
        return ast.literal_eval(value) if value else None
    given = {one.arg: one.value for one in value.keywords}
    if factory := given.get("default_factory"):
        return ast.literal_eval(factory.body) if isinstance(factory, ast.Lambda) else None
    function = definitions(CONFIGURATION)[ast.unparse(value.func)]
    assert isinstance(function, ast.FunctionDef)
    names = [one.arg for one in function.args.args]
    usual = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    given |= dict(zip(names, value.args, strict=False))
    default = given.get("default", usual.get("default"))
    return ast.literal_eval(default) if default else None
