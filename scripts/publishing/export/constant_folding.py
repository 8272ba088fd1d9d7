"""What is an expression, as far as facts about a config tell? One value, one of several, or unknown."""

import ast
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from qkv.scripts.publishing.export.syntax import assignments

# {what is read, such as `config.norm`: every value it may have}; anything else may have any value.
Facts = Mapping[str, tuple[Any, ...]]
UNKNOWN = object()
# Among the values of a field: some config has no such field, and `getattr` gives its default.
MISSING = object()
COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}


class Reader:
    """Say what an expression is, as far as facts tell."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def value(self, node: ast.expr) -> Any:
        """What an expression is, or whether it is true, for every value that the facts allow; else UNKNOWN."""
        found = self.values(node)
        if not found:
            return UNKNOWN
        if all(type(value) is type(found[0]) and value == found[0] for value in found):
            return found[0]
        return UNKNOWN

    def values(self, node: ast.expr) -> tuple[Any, ...] | None:
        """Every value an expression may have, or None when that is not known."""
        if isinstance(node, ast.Constant):
            return (node.value,)
        if isinstance(node, ast.Name | ast.Attribute):
            return self.read(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) == 3:
            owner, name, default = node.args
            return self.read(ast.Attribute(owner, str(name.value)), default) if isinstance(name, ast.Constant) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.values(node.operand)
            return None if inner is None else tuple(not value for value in inner)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.compared(node)
        if isinstance(node, ast.BoolOp):
            return self.combined(node)
        return None

    def read(self, node: ast.expr, default: ast.expr | None = None) -> tuple[Any, ...] | None:
        """Every value of what is read, facts naming the fields of any config `config.field`."""
        name = ast.unparse(node)
        known = self.facts.get(name.removeprefix("self.") if name.startswith("self.config.") else name)
        if known is None or default is None:
            return None if known is None else tuple(value for value in known if value is not MISSING)
        instead = self.values(default)
        return None if instead is None else tuple(instead[0] if value is MISSING else value for value in known)

    def compared(self, node: ast.Compare) -> tuple[Any, ...] | None:
        """All results of a comparison."""
        left, other = self.values(node.left), node.comparators[0]
        if isinstance(other, ast.Tuple) and all(isinstance(part, ast.Constant) for part in other.elts):
            right: Any = (tuple(part.value for part in other.elts if isinstance(part, ast.Constant)),)
        else:
            right = self.values(other)
        compare = COMPARISONS.get(type(node.ops[0]))
        if left is None or right is None or compare is None:
            return None
        return tuple(compare(one, another) for one in left for another in right)

    def combined(self, node: ast.BoolOp) -> tuple[Any, ...] | None:
        """`and` and `or`, which one side can decide alone."""
        deciding = isinstance(node.op, ast.Or)
        values = [self.value(part) for part in node.values]
        if any(value is not UNKNOWN and bool(value) is deciding for value in values):
            return (deciding,)
        return None if UNKNOWN in values else (not deciding,)


def attributes_known(owner: ast.ClassDef, facts: Facts, stores: Counter[str]) -> dict[str, tuple[Any, ...]]:
    """Attributes of a class that are assigned once anywhere (`stores`), to something known.

    Bare flags are left out: others set them from outside.
    """
    found = {}
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            reader = Reader({**facts, **names_known(method, facts)})
            for target, value in assignments(method):
                values = reader.values(value)
                is_flag = isinstance(value, ast.Constant) and isinstance(value.value, bool)
                if isinstance(target, ast.Attribute) and stores[target.attr] == 1 and values and not is_flag:
                    found[f"self.{target.attr}"] = values
    return found


def names_known(function: ast.FunctionDef, facts: Facts) -> dict[str, tuple[Any, ...]]:
    """Local names that are assigned once, to something known."""
    names = Counter(
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    found: dict[str, tuple[Any, ...]] = {}
    for target, value in assignments(function):
        values = Reader({**facts, **found}).values(value)
        if isinstance(target, ast.Name) and names[target.id] == 1 and values is not None:
            found[target.id] = values
    return found
