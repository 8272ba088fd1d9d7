"""Specialising: what facts decide is decided in the text, what they leave open stays, and nothing else changes."""

import re
from textwrap import dedent

import pytest

from qkv.scripts.publishing.export.constant_folding import MISSING
from qkv.scripts.publishing.export.specialize import specialise

FACTS = {
    "config.norm": ("rms",),
    "config.bias": (False,),
    "config.words": ("full", "sliding"),
    "config.scale": (None,),
    "config.cross": (True, MISSING),
    "config.width": (8,),
    "config.size": (8,),
    "TYPE_CHECKING": (False,),
}


def check(before: str, after: str) -> None:
    found = specialise(dedent(before), FACTS, frozenset({"layer"}))
    assert re.sub(r"\n\n+", "\n\n", found) == dedent(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a if config.norm == 'rms' else b", "x = a"),
        ("x = a if config.norm == 'layer' else b", "x = b"),
        ("x = (a if self.config.bias else b) + c", "x = b + c"),
        ("x = (a + d if not config.bias else b) * c", "x = (a + d) * c"),
        ("x = f(a if config.bias else b)", "x = f(b)"),
        ("x = config.scale or y", "x = y"),
        ("x = y and not config.bias and z", "x = y and z"),
        ("x = (y or z) and not config.bias and a", "x = (y or z) and a"),
        ("x = config.bias and y", "x = config.bias and y"),
        ("x = y or 0", "x = y or 0"),
        ("x = a if getattr(config, name, 1) else b", "x = a if getattr(config, name, 1) else b"),
        ("x = config.scale or y or 0", "x = y or 0"),
        ("x = y and config.width", "x = y and config.width"),
        ("x = a if config.bias and y else b", "x = b"),
        ("x = a if config.words == 'dense' else b", "x = b"),
        ("x = a if config.words == 'full' else b", "x = a if config.words == 'full' else b"),
        ("x = a if config.norm in ('rms', 'layer') else b", "x = a"),
        ("x = a if config.width != config.size else b", "x = b"),
        ("x = a if config.other else b", "x = a if config.other else b"),
        ("x = a if other.bias else b", "x = a if other.bias else b"),
        # One config has the field and another does not.
        ("x = a if getattr(config, 'cross', False) else b", "x = a if getattr(config, 'cross', False) else b"),
        ("x = a if getattr(config, 'cross', True) else b", "x = a"),
        ("x = a if getattr(config, 'bias', True) else b", "x = b"),
        ("# née\nx = 'é', (a if config.bias else b)", "# née\nx = 'é', b"),
    ],
)
def test_expressions(before: str, after: str) -> None:
    check(before, after)


def test_a_looked_up_row_takes_the_place_of_its_table() -> None:
    check(
        "NORMS = {'layer': Layer, 'rms': RMS}\nx = NORMS[config.norm](4)\ny = NORMS[other]\n",
        "NORMS = {'rms': RMS}\nx = RMS(4)\ny = NORMS[other]\n",
    )


def test_a_table_of_other_things_keeps_its_rows() -> None:
    check("T = {'layer': 1, **more}\nU = {1: 'layer'}\n", "T = {'layer': 1, **more}\nU = {1: 'layer'}\n")


def test_branches() -> None:
    check(
        """
        def f(config):
            # first
            if config.bias:
                one()
            elif config.norm == "rms":
                # second
                two()
            else:
                three()
            if x:
                four()
            elif config.bias:
                five()
            elif y:
                six()
            if x:
                seven()
            elif not config.bias:
                eight()
            else:
                nine()
        """,
        """
        def f(config):
            # second
            two()
            if x:
                four()
            elif y:
                six()
            if x:
                seven()
            else:
                eight()
        """,
    )


def test_a_body_that_would_be_empty_passes() -> None:
    check("def f():\n    if config.bias:\n        one()\n", "def f():\n    pass\n")


def test_nothing_follows_a_return() -> None:
    check(
        "def f():\n    if not config.bias:\n        return 1\n    x = 2\n    return x\n",
        "def f():\n    return 1\n",
    )


def test_a_name_given_once_to_something_known_is_known() -> None:
    check(
        "def f(config):\n    wide = config.width != config.size\n    x = a if wide else b\n",
        "def f(config):\n    wide = config.width != config.size\n    x = b\n",
    )
    same = "def f(config):\n    wide = config.bias\n    for wide in y:\n        x = a if wide else b\n"
    check(same, same)


def test_an_attribute_set_once_to_something_known_is_known() -> None:
    before = dedent("""
        class A:
            def __init__(self, config):
                self.scale = None
                self.parallel = config.bias
                self.checkpointing = False

            def forward(self):
                return 1 if self.scale is None else 2, 3 if self.parallel else 4, 5 if self.checkpointing else 6
        """)
    check(before, before.replace("1 if self.scale is None else 2, 3 if self.parallel else 4", "1, 4"))
    set_elsewhere = before + "\ndef hook(module):\n    module.scale = 1\n    module.parallel = True\n"
    check(set_elsewhere, set_elsewhere)


def test_checks_go_but_for_the_one_that_nothing_else_would_notice() -> None:
    check(
        """
        def refuse_lost_scores(config):
            if config.norm == "rms":
                raise ValueError

        def f(self, x):
            refuse_wrong(x)
            self.refuse_wrong(
                x
            )
            for y in x:
                Owner.refuse_wrong(y)
            refuse_lost_scores(x)
            return x
        """,
        """
        def refuse_lost_scores(config):
            raise ValueError

        def f(self, x):
            refuse_lost_scores(x)
            return x
        """,
    )


def test_a_check_that_can_no_longer_fail_goes_too() -> None:
    check(
        "def refuse_lost_scores(config):\n    if config.bias:\n        raise ValueError\n\ndef f():\n    refuse_lost_scores(1)\n    g()\n",
        "def refuse_lost_scores(config):\n    pass\n\ndef f():\n    g()\n",
    )


def test_methods_that_only_check_go_and_those_that_lift_a_check_stay() -> None:
    check(
        '''
        class A:
            def validate_width(self):
                """Is it wide?"""
                if self.width < 1:
                    raise ValueError

            def validate_words(self):
                """Nothing to refuse."""

            def refuse_all(self):
                raise ValueError

            @keep
            def f(self, *args, **kwargs):
                """What it did before the check went."""
                refuse_wrong(args)
                return super().f(*args, **kwargs)

            def from_dict(self):  # package only
                return 1

            x = 1
        ''',
        '''
        class A:

            def validate_words(self):
                """Nothing to refuse."""

            x = 1
        ''',
    )
