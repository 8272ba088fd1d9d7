"""Joining: modules after what they import, one list of imports, nothing that is not reached, and clear refusals."""

import sys
from pathlib import Path

import pytest

from qkv.scripts.publishing.export.join import Joined, without_attributes


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a package `toy` from {path: text}; every folder of it gets an empty `__init__.py`."""

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "toy" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in {path.parent, tmp_path / "toy"}:
                (folder / "__init__.py").touch()
            path.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
            monkeypatch.delitem(sys.modules, name)

    return write


def joined(*modules: str, folder: str = "toy.models") -> Joined:
    found = Joined(folder)
    for module in modules:
        found.add(module)
    return found


def test_modules_stand_after_what_they_import_with_one_list_of_imports(package) -> None:
    package(
        {
            "models/model.py": '"""The model.\n\nShapes: B batch, D width.\n"""\n\nimport math\n\nfrom ..settings.config import A\nfrom .part import B\n\n# why\nX = math.pi, A, B, "(B, D)"\n',
            "models/part.py": '"""A part.\n\nShapes: D size, Q unused.\n"""\n\nimport os\nimport math\n\nB = math.e\n',
            "settings/config.py": "A = 1\n",
        }
    )
    found = joined("toy.models.model", "toy.models.part")
    assert found.text == 'B = math.e\n\n\n# why\nX = math.pi, A, B, "(B, D)"\n\n\n' and found.borrowed == {"A"}
    assert found.finished() == 'import math\n\nB = math.e\n\n\n# why\nX = math.pi, A, B, "(B, D)"\n'
    assert found.docstring("toy.models.model") == "The model.\n\nShapes: B batch, D width.\n"


def test_only_what_is_reached_is_kept(package) -> None:
    package(
        {
            "models/model.py": (
                "Alias = int\n\n\ndef used(x: 'Named') -> Alias:\n    return helper(x)\n\n\ndef helper(x):\n    return x\n\n\n"
                "class Named:\n    pass\n\n\n# about nothing\n@decorated\ndef unused():\n    return helper(1)\n"
            )
        }
    )
    found = joined("toy.models.model")
    found.keep(["used"])
    assert [name for name in ("Alias", "used", "helper", "Named", "unused", "about") if found.mentions(name)] == [
        "Alias", "used", "helper", "Named",
    ]  # fmt: skip


def test_methods_that_nobody_calls_go(package) -> None:
    package(
        {
            "models/model.py": "class A:\n    def f(self):\n        self.g()\n\n    def g(self): ...\n\n    def h(self): ...\n"
        }
    )
    found = joined("toy.models.model")
    found.drop_methods({"f"})
    assert found.mentions("g") == 2 and not found.mentions("h")


def test_attributes_that_only_dropped_code_read_go(package) -> None:
    text = """
class A:
    def __init__(self):
        self.used = 1
        self.unused: int = 2
        self.theirs = 3
        self.never_read_here = 4
        self.made = print()

    def f(self):
        return self.used, self.unused, self.theirs, self.made
"""
    package({"models/model.py": text})
    found = joined("toy.models.model")
    text = found.text.replace(", self.unused, self.theirs, self.made", "")
    found.text = without_attributes(text, found.read - {"theirs"})
    left = ("used", "unused", "theirs", "never_read_here", "made")
    assert [found.mentions(name) for name in left] == [2, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.py": "from . import b\n", "b.py": ""}, "toy.models.a, line 1: joined modules share their names"),
        ({"a.py": "from .b import X as Y\n", "b.py": ""}, "toy.models.a, line 1: joined modules share their names"),
        ({"a.py": "from .b import *\n", "b.py": ""}, "toy.models.a, line 1: joined modules share their names"),
        ({"a.py": "from toy.models.b import B\n", "b.py": ""}, "toy.models.a, line 1: imports toy by name"),
        ({"a.py": "import toy.models.b\n", "b.py": ""}, "toy.models.a, line 1: imports toy by name"),
        ({"a.py": "def f():\n    import os\n"}, "toy.models.a, line 2: an import below the top"),
        ({"a.py": "from .b import B\nX = 1\n", "b.py": "B = X = 2\n"}, "toy.models.a: X is also a name in another"),
        ({"a.py": "from .missing import B\n"}, "toy.models.missing is not a module in a file of its own"),
    ],
)
def test_what_cannot_be_joined_is_refused(package, files: dict[str, str], message: str) -> None:
    package({f"models/{name}": text for name, text in files.items()})
    with pytest.raises(ValueError) as error:
        joined("toy.models.a")
    assert message in str(error.value)
