"""What `help` says of a config: its own fields first, inherited ones after, none that a subclass has taken away."""

from typing import ClassVar, Literal

from qkv.configuration.configuration_base import QkvConfig, checked
from qkv.configuration.docstrings import spell_type


@checked
class Parent(QkvConfig):
    """Configure a parent.

    Args:
        depth: Number of layers, a text of so many words that it has to be broken
            into two lines.
        width: Width of a layer.
    """

    depth: int = 3
    width: int | None = None


@checked
class Child(Parent):
    """Configure a child.

    Args:
        kind: Which child.
        depth: Number of its layers.
    """

    width: ClassVar[int] = 2
    kind: Literal["one", "two"] = "one"
    depth: int = 4


def test_a_class_lists_its_fields_with_type_and_default() -> None:
    assert Parent.__doc__.splitlines() == [
        "Configure a parent.",
        "",
        "Args:",
        "    depth (int, defaults to 3): Number of layers, a text of so many words that it has to be broken into two lines.",
        "    width (int or None, defaults to None): Width of a layer.",
    ]


def test_a_subclass_lists_its_own_first_and_nothing_it_fixes() -> None:
    assert Child.__doc__.splitlines()[3:] == [
        "    kind (Literal['one', 'two'], defaults to 'one'): Which child.",
        "    depth (int, defaults to 4): Number of its layers.",
    ]


def test_types_are_spelt_as_one_says_them() -> None:
    assert spell_type(int | None) == "int or None"
    assert spell_type(int | list[int] | tuple[int, int]) == "int, list[int] or tuple[int, int]"
    assert spell_type(bool) == "bool"
