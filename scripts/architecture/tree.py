"""Lay out the modules of a model as the lines of a tree, with the columns of their costs."""

from collections.abc import Iterator

from rich.table import Table

from qkv.scripts.architecture.costs import Node, Shape
from qkv.scripts.common.tables import scaled

LEGEND = "output: of one example; x N: N equal modules in a row, with the costs of all"


def table_of(title: str, root: Node, depth: int) -> Table:
    """Return the table of a tree; names are whole, as the tree would fall apart, and classes wrap where they must."""
    table = Table(title=title, caption=LEGEND, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("module", no_wrap=True)
    table.add_column("class and weights", overflow="fold")
    for name in ("output", "params", "FLOPs"):
        table.add_column(name, justify="right", no_wrap=True)
    for cells in lines(root, depth):
        table.add_row(*cells.values())
    return table


def lines(root: Node, depth: int) -> list[dict[str, str]]:
    """Return a line for each module, down to a depth, and first for all of them."""
    return [line("all", root), *branches(root, "", depth)]


def branches(node: Node, guide: str, depth: int) -> Iterator[dict[str, str]]:
    """Yield the lines of the modules below a node."""
    if not depth:
        return
    for number, child in enumerate(node.children, 1):
        last = number == len(node.children)
        yield line(f"{guide}{'└' if last else '├'} {name_of(child)}", child)
        yield from branches(child, guide + ("  " if last else "│ "), depth - 1)


def name_of(node: Node) -> str:
    """Return the name of a module, or of several in a row: `layers.0-11`."""
    head, dot, number = node.name.rpartition(".")
    if node.times == 1 or not number.isdecimal():
        return node.name if node.times == 1 else f"{node.name} x {node.times}"
    return f"{head}{dot}{number}-{int(number) + node.times - 1} x {node.times}"


def line(name: str, node: Node) -> dict[str, str]:
    """Return the cells of a module, with the costs of all that are equal in a row."""
    weights = f"{node.kind} {shape(node.weight)}" if node.weight else node.kind
    return {
        "module": name,
        "weights": weights if name != "all" else "",
        "output": shape(node.output),
        "params": "tied" if node.tied and not node.parameters else number(node.parameters * node.times),
        "FLOPs": number(node.flops * node.times),
    }


def shape(sizes: Shape | None) -> str:
    """Return a shape as `768x3072`."""
    return "x".join(map(str, sizes or ()))


def number(count: int) -> str:
    """Return a number with its thousands as a letter, nothing for none."""
    return scaled(count, "").strip() if count else ""
