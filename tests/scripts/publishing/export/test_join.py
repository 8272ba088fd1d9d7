"""Joining: modules after what they import, one list of imports, nothing that is not reached, and clear refusals."""

import sys
from pathlib import Path

import pytest

from qkv.scripts.publishing.export.join import Joined, reachable, without_rows


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
    assert found.text == 'B = math.e\n\n\n# why\nX = math.pi, A, B, "(B, D)"\n\n\n' and found.borrowed == {
        "A": "toy.settings.config"
    }
    assert found.code() == 'import math\n\nB = math.e\n\n\n# why\nX = math.pi, A, B, "(B, D)"\n'
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
    found.text = reachable(found.text, ["used"])
    assert [name for name in ("Alias", "used", "helper", "Named", "unused", "about") if found.mentions(name)] == [
        "Alias", "used", "helper", "Named",
    ]  # fmt: skip


def test_statements_at_the_top_level_reach_what_they_name(package) -> None:
    package({"models/model.py": "def called(): ...\n\n\ndef lost(): ...\n\n\ncalled()\n"})
    found = joined("toy.models.model")
    found.text = reachable(found.text, [])
    assert found.mentions("called") and not found.mentions("lost")


def test_a_name_defined_in_both_branches_of_an_if_is_one_definition(package) -> None:
    text = "if flag:\n    A = 1\nelse:\n    A = 2\n\nB = 3\n\n\ndef f():\n    return A\n"
    package({"models/model.py": text})
    found = joined("toy.models.model")
    found.text = reachable(found.text, ["f"])
    assert "A = 2" in found.text and not found.mentions("B")


def test_a_table_loses_the_rows_of_unused_words() -> None:
    text = """
T = {"layer": Layer, "rms": RMS}
U = f({"layer": 1})
V = {1: "layer", **T}
"""
    assert without_rows(text, {"layer"}).split("\n")[1:4] == ['T = {"rms": RMS}', "U = f({})", 'V = {1: "layer", **T}']


def test_folders_are_joined_with_the_folder_that_holds_them(package) -> None:
    package(
        {
            "models/model.py": "from .inner.part import B\n\nA = B\n",
            "models/inner/part.py": "from ...settings.config import S\nfrom ..base import C\nfrom . .other import D\n\nB = C, D, S\n".replace(
                ". .", "."
            ),
            "models/inner/other.py": "D = 2\n",
            "models/base.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from .model import A\n\nC: 'A' = 3\n",
            "settings/config.py": "S = 1\n",
        }
    )
    found = joined("toy.models.model")
    assert [line[0] for line in found.text.split("\n") if line] == ["C", "D", "B", "A"]
    assert found.borrowed == {"S": "toy.settings.config"}


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
        ({"a.py": "from .missing import B\n"}, "toy.models.missing is not a module with a source file"),
    ],
)
def test_what_cannot_be_joined_is_refused(package, files: dict[str, str], message: str) -> None:
    package({f"models/{name}": text for name, text in files.items()})
    with pytest.raises(ValueError) as error:
        joined("toy.models.a")
    assert message in str(error.value)
