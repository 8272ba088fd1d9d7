"""What does code say once a config is known? Branches that are never taken go, and a table becomes the row in use.

The copy of the code that goes with a model serves one architecture, so what its config decides is decided in the text.
Only pieces of the source are replaced by other pieces of it: names, comments and layout stay those of the original.
"""

import ast
import operator
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# {what is read, such as `config.norm`: every value it may have}; anything else may have any value.
Facts = Mapping[str, tuple[Any, ...]]
Edit = tuple[int, int, str]
# Calls that only word an error better: without them wrong input fails as well, deeper down.
CHECK = re.compile(r"(\w+\.)?refuse_\w+\(")
CHECKING = ("refuse_", "validate_")
# But a backend that ignores part of the scores would not fail: that check goes along.
KEPT_CHECK = "refuse_lost_scores"
# The end of the first line of what serves the package alone.
PACKAGE_ONLY = "# package only"
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
Function = ast.FunctionDef | ast.Lambda


def specialise(source: str, facts: Facts, gone: frozenset[str] = frozenset()) -> str:
    """The source with everything decided that the facts decide, and no row of a table for a word that is `gone`."""
    while edits := outermost(list(Specialiser(source, facts, gone).edits())):
        source = replace(source, edits)
    return source


def outermost(edits: list[Edit]) -> list[Edit]:
    """The edits that lie within no other, in order."""
    found: list[Edit] = []
    for edit in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if not found or edit[0] >= found[-1][1]:
            found.append(edit)
    return found


def replace(source: str, edits: list[Edit]) -> str:
    """The source after edits that do not overlap."""
    for start, end, text in reversed(edits):
        source = source[:start] + text + source[end:]
    return source


class Text:
    """A source, its syntax tree, and where the parts of the tree stand in it."""

    def __init__(self, source: str) -> None:
        self.source, self.tree = source, ast.parse(source)
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node: Any) -> int:
        """Where a node begins."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        """Where a node ends."""
        return self.offset(node.end_lineno, node.end_col_offset)

    def offset(self, line: int, column: int) -> int:
        """A place in the text; the columns of the parser count bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def of(self, node: ast.AST) -> str:
        """A node's own text."""
        return self.source[self.start(node) : self.end(node)]

    def first_line(self, statement: Any) -> str:
        """The line on which a statement begins, below its decorators."""
        return self.lines[statement.lineno - 1].rstrip()

    def whole(self, statement: Any) -> tuple[int, int]:
        """The lines of a statement, with its decorators and the comments above."""
        decorators = [decorator.lineno for decorator in getattr(statement, "decorator_list", [])]
        first = min([statement.lineno, *decorators]) - 1
        while first and self.lines[first - 1].lstrip().startswith("#"):
            first -= 1
        return self.starts[first], self.starts[statement.end_lineno]

    def block(self, statements: list[ast.stmt], indent: int) -> str:
        """The lines of statements that follow each other, moved to another depth."""
        text = self.source[self.whole(statements[0])[0] : self.whole(statements[-1])[1]]
        return textwrap.indent(textwrap.dedent(text), " " * indent)


class Specialiser:
    """Find what the facts decide in one source text, each finding as the replacement of a piece of text."""

    def __init__(self, source: str, facts: Facts, gone: frozenset[str] = frozenset()) -> None:
        self.text = Text(source)
        self.facts, self.gone = dict(facts), gone
        self.tables = {name: node.value for name, node in assigned(self.text.tree) if isinstance(node.value, ast.Dict)}
        self.stores = Counter(
            node.attr
            for node in ast.walk(self.text.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )

    def edits(self) -> Iterator[Edit]:
        """All findings; some lie within others."""
        yield from self.within(self.text.tree, {})
        for _, statement in assigned(self.text.tree):
            for node in ast.walk(statement):
                if isinstance(node, ast.Dict):
                    yield from self.in_table(node)

    def within(self, parent: ast.AST, known: Facts) -> Iterator[Edit]:
        """The findings below a node, where some names and attributes are known besides the facts."""
        if isinstance(parent, ast.ClassDef):
            known = {**known, **self.attributes(parent, known)}
        elif isinstance(parent, ast.FunctionDef):
            known = {**known, **self.locals(parent, known)}
        reader = Reader({**self.facts, **known})
        for node in ast.iter_child_nodes(parent):
            yield from self.found(node, reader)
            yield from self.within(node, known)
        for name in ("body", "orelse"):
            if isinstance(block := getattr(parent, name, None), list):
                yield from self.in_block(parent, block, reader)

    def found(self, node: ast.AST, reader: "Reader") -> Iterator[Edit]:
        """What is decided about one node."""
        if isinstance(node, ast.IfExp) and (known := reader.value(node.test)) is not UNKNOWN:
            yield self.replaced(node, node.body if known else node.orelse)
        elif isinstance(node, ast.BoolOp):
            yield from self.in_condition(node, reader)
        elif isinstance(node, ast.Subscript):
            yield from self.in_lookup(node, reader)

    def attributes(self, owner: ast.ClassDef, known: Facts) -> dict[str, tuple[Any, ...]]:
        """Attributes of a class that are assigned once anywhere, to something known; flags others may set are not."""
        found = {}
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                reader = Reader({**self.facts, **known, **self.locals(method, known)})
                for target, value in assignments(method):
                    values = reader.values(value)
                    if isinstance(target, ast.Attribute) and self.stores[target.attr] == 1 and values is not None:
                        if not (isinstance(value, ast.Constant) and isinstance(value.value, bool)):
                            found[f"self.{target.attr}"] = values
        return found

    def locals(self, function: ast.FunctionDef, known: Facts) -> dict[str, tuple[Any, ...]]:
        """Local names that are assigned once, to something known; names of arguments hide what is known outside."""
        names = Counter(
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        found: dict[str, tuple[Any, ...]] = {}
        for target, value in assignments(function):
            values = Reader({**self.facts, **known, **found}).values(value)
            if isinstance(target, ast.Name) and names[target.id] == 1 and values is not None:
                found[target.id] = values
        return found

    def in_block(self, parent: ast.AST, block: list[ast.stmt], reader: "Reader") -> Iterator[Edit]:
        """Statements that go, and branches that are always or never taken."""
        after = next(
            (index for index, node in enumerate(block) if isinstance(node, ast.Return | ast.Raise)), len(block)
        )
        gone = [node for index, node in enumerate(block) if index > after or self.is_gone(node, reader)]
        empty = len(gone) == len(block) and not isinstance(parent, ast.Module)
        for index, statement in enumerate(gone):
            text = " " * statement.col_offset + "pass\n" if empty and index == 0 else ""
            yield *self.text.whole(statement), text
        for statement in block:
            if isinstance(statement, ast.If) and statement not in gone:
                yield from self.in_branch(statement, reader)

    def is_gone(self, statement: ast.stmt, reader: "Reader") -> bool:
        """Whether nothing of a statement is left."""
        line = self.text.first_line(statement)
        if line.endswith(PACKAGE_ONLY):
            return True
        if isinstance(statement, ast.Expr) and CHECK.match(line.strip()):
            return KEPT_CHECK not in line or not self.raises(KEPT_CHECK)
        if isinstance(statement, ast.For | ast.If) and not statement.orelse:
            never = isinstance(statement, ast.If) and not reader.value(statement.test)
            return never or all(isinstance(inner, ast.Pass) or self.is_gone(inner, reader) for inner in statement.body)
        return isinstance(statement, ast.FunctionDef) and self.is_needless(statement)

    def is_needless(self, function: ast.FunctionDef) -> bool:
        """Whether a method only checks, or only calls the one it overrides; one without a body lifts a check."""
        method = function.col_offset > 0
        body = [ast.unparse(node) for node in function.body if not is_docstring(node)]
        if method and function.name.startswith(CHECKING):
            return bool(body)
        parameters = ast.unparse(function.args).removeprefix("self, ")
        names = re.sub(r": [^,]+", "", parameters)
        return method and body in ([f"super().{function.name}({names})"], [f"return super().{function.name}({names})"])

    def raises(self, name: str) -> bool:
        """Whether a function of this text can still raise."""
        return any(
            isinstance(inner, ast.Raise)
            for node in self.text.tree.body
            if isinstance(node, ast.FunctionDef) and node.name == name
            for inner in ast.walk(node)
        )

    def in_branch(self, statement: ast.If, reader: "Reader") -> Iterator[Edit]:
        """An `if` whose condition is known, replaced by what it then does."""
        known = reader.value(statement.test)
        if known is UNKNOWN:
            return
        indent, rest = statement.col_offset, statement.orelse
        if not self.text.of(statement).startswith("elif"):
            kept = statement.body if known else rest
            text = self.text.block(kept, indent) if kept else ""
            if kept is rest and rest and self.text.of(rest[0]).startswith("elif"):
                text = text.replace("elif", "if", 1)
        elif known or (rest and not self.text.of(rest[0]).startswith("elif")):
            text = " " * indent + "else:\n" + self.text.block(statement.body if known else rest, indent + 4)
        else:
            text = self.text.block(rest, indent) if rest else ""
        yield *self.text.whole(statement), text

    def in_condition(self, node: ast.BoolOp, reader: "Reader") -> Iterator[Edit]:
        """`a and b` where one side is known to make no difference."""
        neutral = isinstance(node.op, ast.And)
        values = [reader.value(part) for part in node.values]
        left = [part for part, value in zip(node.values, values, strict=True) if value is UNKNOWN]
        if any(value is not UNKNOWN and bool(value) is not neutral for value in values) or not left:
            return
        if len(left) == 1 < len(values):
            yield self.replaced(node, left[0])
        elif len(left) < len(values):
            word = " and " if neutral else " or "
            yield self.text.start(node), self.text.end(node), word.join(self.text.of(part) for part in left)

    def in_lookup(self, node: ast.Subscript, reader: "Reader") -> Iterator[Edit]:
        """A row of a table, looked up by a known word."""
        table = self.tables.get(node.value.id) if isinstance(node.value, ast.Name) else None
        word = UNKNOWN if table is None else reader.value(node.slice)
        if table is None or word is UNKNOWN:
            return
        for key, row in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == word and isinstance(row, ast.Name):
                yield self.text.start(node), self.text.end(node), row.id

    def in_table(self, table: ast.Dict) -> Iterator[Edit]:
        """A table of the vocabulary, without the rows that nothing looks up."""
        keys = [key.value if isinstance(key, ast.Constant) else None for key in table.keys]
        kept = [number for number, key in enumerate(keys) if key not in self.gone]
        if len(kept) < len(keys) and all(isinstance(key, str) for key in keys):
            rows = (f"{keys[number]!r}: {self.text.of(table.values[number])}" for number in kept)
            yield self.text.start(table), self.text.end(table), "{" + ", ".join(rows) + "}"

    def replaced(self, node: ast.expr, chosen: ast.expr) -> Edit:
        """A part of an expression in place of the whole, and of the parentheses around it if it needs none."""
        start, end = self.text.start(node), self.text.end(node)
        if isinstance(chosen, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant):
            before, after = self.text.source[:start].rstrip(), self.text.source[end:].lstrip()
            if before.endswith("(") and after.startswith(")") and not re.search(r"[\w\])]$", before[:-1]):
                start, end = len(before) - 1, len(self.text.source) - len(after) + 1
        return start, end, self.text.of(chosen)


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
            return self.read(ast.Attribute(node.args[0], ast.literal_eval(node.args[1])), node.args[2])
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


def assigned(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Every name assigned at the top of a module, with the statement."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))


def assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Every target of an assignment in a function with its own value; those under a condition are none."""
    for node in function.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=True)
                else:
                    yield target, node.value


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a bare text."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
