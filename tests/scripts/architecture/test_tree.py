"""The tree is laid out with guides and numbers."""

from rich.console import Console

from qkv.scripts.architecture.costs import Node
from qkv.scripts.architecture.tree import lines, table_of

LEAF = Node("norm", "LayerNorm", (8,), (4, 8), 16, 0)
LAYER = Node("layers.3", "Layer", None, (4, 8), 1000, 3_000_000, times=5, children=(LEAF,))
TIED = Node("lm_head", "Linear", (50, 8), (4, 50), 0, 3200, tied=True)
ROOT = Node("", "Model", None, (4, 50), 5000, 15_003_200, children=(LAYER, TIED))


def test_each_module_is_a_line_with_the_costs_of_all_in_its_row() -> None:
    assert [tuple(line.values()) for line in lines(ROOT, 5)] == [
        ("all", "", "4x50", "5 k", "15 M"),
        ("├ layers.3-7 x 5", "Layer", "4x8", "5 k", "15 M"),
        ("│ └ norm", "LayerNorm 8", "4x8", "16", ""),
        ("└ lm_head", "Linear 50x8", "4x50", "tied", "3.2 k"),
    ]
    assert len(lines(ROOT, 1)) == 3


def test_names_are_whole_in_a_narrow_terminal() -> None:
    console = Console(width=40, record=True)
    console.print(table_of("a title", ROOT, 5))
    assert "├ layers.3-7 x 5 " in console.export_text()
