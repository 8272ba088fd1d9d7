"""Where in a source do the parts of its syntax tree stand? So that they can be moved as they are written."""

import ast
import textwrap
from collections.abc import Iterator
from typing import Any

# (start, end, what stands there instead)
Edit = tuple[int, int, str]


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
