"""The pages made from the package are complete and true; the site builds without a warning and asks no network."""

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import qkv
from checkout import ROOT
from qkv.scripts.arguments import COMMANDS
from qkv.scripts.recipes.loading import CARDS

SPEC = importlib.util.spec_from_file_location("made_pages", ROOT / "docs" / "made_pages.py")
made_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(made_pages)


@cache
def made() -> dict[str, str]:
    return dict(made_pages.made())


def test_every_public_name_preset_and_command_has_a_page_that_is_listed() -> None:
    names = {"api": set(qkv.__all__) - {"presets"}, "presets": set(qkv.presets.names()), "commands": set(COMMANDS)}
    for folder, wanted in names.items():
        assert {path.split("/")[1] for path in made() if path.startswith(folder)} == {
            "index.md", *(f"{name}.md" for name in wanted)
        }  # fmt: skip
        assert wanted <= set(made()[f"{folder}/index.md"].splitlines())


@pytest.mark.parametrize("name", qkv.presets.names())
def test_the_config_of_a_preset_is_the_preset(name: str) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", made()[f"presets/{name}.md"], re.DOTALL)
    preset = getattr(qkv.presets, name)()
    assert eval(code, {type(preset).__name__: type(preset)}).to_dict() == preset.to_dict()


def test_a_config_lists_its_fields() -> None:
    page = made()["api/QkvDecoderConfig.md"]
    assert "`position` = `'learned'`\n: Position encoding" in page and "`sliding_window` = `None`" in page


def test_the_gallery_has_every_picture_of_every_recipe() -> None:
    pictures = {
        path.relative_to(CARDS).as_posix() for path in CARDS.glob("*/*.png") if (path.parent / "card.md").exists()
    }
    shown = re.findall(r"\]\(../../model_cards/([\w/-]+\.png)\)", made()["gallery.md"])
    assert set(shown) == pictures and len(shown) == len(pictures)
    assert all(f"qkv quickstart {name.split('/')[0]}" in made()["gallery.md"] for name in pictures)


def test_pages_that_are_no_more_are_removed(tmp_path: Path) -> None:
    made_pages.write(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.md")}
    (tmp_path / "api" / "Gone.md").write_text("# Gone")
    made_pages.write(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.md")} == times


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="pip install 'qkv[docs]' builds the site")
    pytest.importorskip("myst_nb", reason="pip install 'qkv[docs]' builds the site")
    site = tmp_path / "html"
    words = ["-W", "-q", "-E", "-d", tmp_path / "doctrees", "-c", "docs", "-D", "nb_execution_mode=off", ".", site]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]*rel=\"(?:stylesheet|preload)\"[^>]*\"https?:"
    )
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    assert len(pages) > 200 and {name for name, text in pages.items() if loaded.search(text)} == set()
    assert not any(re.search(r"@import|url\(['\"]?https?:", path.read_text()) for path in site.rglob("*.css"))
    assert "docs/index.html" in pages["index.html"] and "sliding_window" in (site / "searchindex.js").read_text()
