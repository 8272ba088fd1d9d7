"""Flattening: what is reached is copied, imports point beside, and what transformers cannot load is refused."""

import ast
import sys
from pathlib import Path

import pytest

from qkv.scripts.publishing.flatten import flatten


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


def body(text: str) -> str:
    """Without the header."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def test_imports_are_made_flat_and_nothing_else_changes(package) -> None:
    package(
        {
            "models/model.py": "from ..settings.config import (\n    A,\n)\nfrom .part import B\n\nX = 'from ..settings.x'\n",
            "models/part.py": "import math\n\nB = math.pi\n",
            "settings/config.py": "A = 1\n",
            "settings/unused.py": "C = 1\n",
        }
    )
    files = flatten(["toy.models.model"])
    assert set(files) == {"model.py", "part.py", "config.py"}
    assert (
        body(files["model.py"]) == "from .config import (\n    A,\n)\nfrom .part import B\n\nX = 'from ..settings.x'\n"
    )
    assert body(files["part.py"]) == "import math\n\nB = math.pi\n"


def test_the_header_says_what_the_file_is_and_from_which_text(package) -> None:
    package({"a.py": "A = 1\n"})
    first = flatten(["toy.a"])["a.py"]
    assert "Apache-2.0" in first and "toy.a" in first
    package({"a.py": "A = 2\n"})
    assert flatten(["toy.a"])["a.py"].splitlines()[:3] != first.splitlines()[:3]


def test_cycles_end(package) -> None:
    package({"a.py": "from .b import B\n", "b.py": "def B():\n    from .a import A\n"})
    assert set(flatten(["toy.a"])) == {"a.py", "b.py"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.py": "from . import b\n", "b.py": ""}, "toy.a, line 1: transformers does not see `from . import x`"),
        ({"a.py": "from toy.b import B\n", "b.py": ""}, "toy.a, line 1: imports toy by name; import relatively"),
        ({"a.py": "import toy.b\n", "b.py": ""}, "toy.a, line 1: imports toy by name; import relatively"),
        ({"a.py": "from .c.x import X\nfrom .d.x import Y\n", "c/x.py": "", "d/x.py": ""}, "would both become x.py"),
        ({"a.py": "from .b import B\n", "b/b.py": ""}, "toy.b is not a module in a file of its own"),
        ({"a.py": "from .missing import B\n"}, "toy.missing is not a module in a file of its own"),
        (
            {"a.py": '"""See\n\n    from .b import B\n"""\n', "b.py": ""},
            "transformers reads the imports ['b'], Python []",
        ),
        ({"a.py": "import math; from .b import B\n", "b.py": ""}, "transformers reads the imports [], Python ['b']"),
        ({"a.py": "from  ..toy.b import B\n", "b.py": ""}, "transformers reads the imports ['.toy.b'], Python ['b']"),
    ],
)
def test_what_would_not_load_is_refused(package, files: dict[str, str], message: str) -> None:
    package(files)
    with pytest.raises(ValueError) as error:
        flatten(["toy.a"])
    assert message in str(error.value)


def test_our_own_code_flattens_to_valid_python() -> None:
    files = flatten(["qkv.modeling.modeling_encoder", "qkv.modeling.modeling_decoder"])
    assert {"stack.py", "configuration_encoder.py", "configuration_decoder.py"} <= set(files)
    assert not {"presets.py", "conversion.py", "modeling_encoder_decoder.py", "__init__.py"} & set(files)
    for text in files.values():
        for node in ast.walk(ast.parse(text)):
            assert not isinstance(node, ast.ImportFrom) or node.level <= 1
