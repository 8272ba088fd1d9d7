"""What does code say once a config is known? Branches that are never taken go, and a table becomes the row in use.

The copy of the code that goes with a model serves one architecture, so what its config decides is decided in the text.
Only pieces of the source are replaced by other pieces of it: names, comments and layout stay those of the original.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from qkv.scripts.publishing.export.constant_folding import UNKNOWN, Facts, Reader, attributes_known, names_known
from qkv.scripts.publishing.export.syntax import Edit, Text, assigned, is_docstring, outermost, replace

# Calls that only word an error better: without them wrong input fails as well, deeper down.
CHECK = re.compile(r"(\w+\.)?refuse_\w+\(")
CHECKING = ("refuse_", "validate_")
# But a backend that ignores part of the scores would not fail: that check goes along.
KEPT_CHECK = "refuse_lost_scores"
# The end of the first line of what serves the package alone.
PACKAGE_ONLY = "# package only"


def specialise(source: str, facts: Facts, gone: frozenset[str] = frozenset()) -> str:
    """The source with everything decided that the facts decide, and no row of a table for a word that is `gone`."""
    while edits := outermost(list(findings(Text(source), facts, gone))):
        source = replace(source, edits)
    return source


def findings(text: Text, facts: Facts, gone: frozenset[str]) -> Iterator[Edit]:
    """What is decided in a source, each finding as the replacement of a piece of it; some lie within others."""
    statements, expressions = Statements(text), Expressions(text, gone)
    stores = Counter(
        node.attr for node in ast.walk(text.tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    )

    def within(parent: ast.AST, known: Facts) -> Iterator[Edit]:
        if isinstance(parent, ast.ClassDef):
            known = {**known, **attributes_known(parent, known, stores)}
        elif isinstance(parent, ast.FunctionDef):
            known = {**known, **names_known(parent, known)}
        reader = Reader(known)
        yield from expressions.found(parent, reader)
        for name in ("body", "orelse"):
            if isinstance(block := getattr(parent, name, None), list):
                yield from statements.in_block(parent, block, reader)
        for node in ast.iter_child_nodes(parent):
            yield from within(node, known)

    yield from within(text.tree, facts)
    yield from expressions.in_tables()


class Statements:
    """Find statements that go, and branches that are always or never taken."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def in_block(self, parent: ast.AST, block: list[ast.stmt], reader: Reader) -> Iterator[Edit]:
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

    def is_gone(self, statement: ast.stmt, reader: Reader) -> bool:
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

    def in_branch(self, statement: ast.If, reader: Reader) -> Iterator[Edit]:
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


class Expressions:
    """Find parts of expressions that are decided, and rows of tables that nothing looks up."""

    def __init__(self, text: Text, gone: frozenset[str]) -> None:
        self.text, self.gone = text, gone
        self.tables = {name: node.value for name, node in assigned(text.tree) if isinstance(node.value, ast.Dict)}

    def found(self, node: ast.AST, reader: Reader) -> Iterator[Edit]:
        """What is decided about one node."""
        if isinstance(node, ast.IfExp) and (known := reader.value(node.test)) is not UNKNOWN:
            yield self.replaced(node, node.body if known else node.orelse)
        elif isinstance(node, ast.BoolOp):
            yield from self.in_condition(node, reader)
        elif isinstance(node, ast.Subscript):
            yield from self.in_lookup(node, reader)

    def in_condition(self, node: ast.BoolOp, reader: Reader) -> Iterator[Edit]:
        """`a and b` where one side is known to make no difference."""
        neutral = isinstance(node.op, ast.And)
        values = [reader.value(part) for part in node.values]
        # The last one is the result where the others say nothing: `x or 0` is not x.
        plain = isinstance(values[-1], bool) or values[-1] is UNKNOWN
        left = [part for part, value in zip(node.values, values, strict=True) if value is UNKNOWN]
        left += [] if plain else node.values[-1:]
        if any(value is not UNKNOWN and bool(value) is not neutral for value in values) or not left:
            return
        if len(left) == 1 < len(values):
            yield self.replaced(node, left[0])
        elif len(left) < len(values):
            word = " and " if neutral else " or "
            yield self.text.start(node), self.text.end(node), word.join(map(self.operand, left))

    def operand(self, node: ast.expr) -> str:
        """The text of a condition beside others, in parentheses if it is itself one of several."""
        return f"({self.text.of(node)})" if isinstance(node, ast.BoolOp) else self.text.of(node)

    def in_lookup(self, node: ast.Subscript, reader: Reader) -> Iterator[Edit]:
        """A row of a table, looked up by a known word."""
        table = self.tables.get(node.value.id) if isinstance(node.value, ast.Name) else None
        word = UNKNOWN if table is None else reader.value(node.slice)
        if table is None or word is UNKNOWN:
            return
        for key, row in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == word and isinstance(row, ast.Name):
                yield self.text.start(node), self.text.end(node), row.id

    def in_tables(self) -> Iterator[Edit]:
        """All tables of the vocabulary, those inside a call too."""
        for _, statement in assigned(self.text.tree):
            for node in ast.walk(statement):
                if isinstance(node, ast.Dict):
                    yield from self.in_table(node)

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
