"""The site of `make docs`: Markdown pages where they lie, notebooks, and pages made from the package."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.parsers import Parser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).parent))

import made_pages  # noqa: E402

import qkv  # noqa: E402

project = "qkv"
copyright = "The qkv authors"
version = release = qkv.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]

# Sources are documents of their own, so that a link to a file shows it.
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".py": "source", ".yaml": "source"}
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "docs/notebooks/*.ipynb",
    "configuration/*.md",
    "configuration/*.py",  # presets.yaml beside presets.py would be two pages of one name
    "modeling/**",
    "scripts/*.md",
    "scripts/attention/capture.py",
    "scripts/attention_view/view.py",
    "scripts/conformance/report.py",
    "scripts/context/extension.py",
    "scripts/data/README.md",
    "scripts/probes/in*.py",
    "scripts/publishing/hub/*.py",
    "scripts/publishing/integrity/*.py",
    "scripts/recipes/*.md",
    "scripts/recipes/*.yaml",
    "scripts/recipes/full_size/*.yaml",
    "scripts/recipes/schema.py",
    "scripts/web_demo/server.py",
    "model_cards/**",
    "tests/support/reference.py",
    "tests/ecosystem/test_serving_engines.py",
]
# Beside a page or a module of the same name.
exclude_patterns = ["model_cards/CONFORM.yaml", "modeling/conversion/*.yaml"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_execution_in_temp = True
nb_output_stderr = "remove"
nb_merge_streams = True

default_role = "literal"  # docstrings are Markdown where they name something
autodoc_typehints_format = "short"

templates_path = ["templates"]
html_additional_pages = {"index": "to_index.html"}
smartquotes = False  # --help
html_theme = "furo"
# Cells of notebooks have borders for light pages alone.
html_theme_options = {"dark_css_variables": {"mystnb-source-border-color": "#303335"}}
html_title = f"qkv {release}"
html_copy_source = False
html_show_sphinx = False


class SourceParser(Parser):
    """Show a file of Python or YAML as it is."""

    supported = ("source",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Make one section of the file, named by its path."""
        path = Path(document["source"])
        document.settings.env.metadata[document.settings.env.docname] |= {"orphan": True, "nosearch": True}
        name = path.relative_to(ROOT).as_posix()
        section = nodes.section("", nodes.title(name, name), ids=["file"], names=["file"])
        section += nodes.literal_block(inputstring, inputstring, language={".py": "python"}.get(path.suffix, "yaml"))
        document += section


def hide_signature(app: Sphinx, what: str, name: str, obj: object, *rest: Any) -> tuple[str, None] | None:
    """Leave out the signature of a class: the fields of a config are listed below it, a model takes its config."""
    return ("", None) if what in ("class", "exception") else None


def part_labels(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make a paragraph of each label of a docstring, such as `Source:`, and leave out the fields of a config.

    What is indented after an empty line is code.
    """
    if "Args:" in lines:
        del lines[lines.index("Args:") :]
    parts: list[str] = []
    for line in lines:
        begins = line.startswith("    ") and parts[-1:] == [""] and not parts[-2].startswith("    ")
        parts += ["::", ""] * begins + [""] * line.startswith(made_pages.LABELS) + [line]
    lines[:] = parts


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages that are made, before any is read."""
    app.add_source_parser(SourceParser)
    for table in ("csv", "tsv"):  # which Pygments has no words for
        app.add_lexer(table, TextLexer)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-process-docstring", part_labels)
    made_pages.write(ROOT / "docs" / "made")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
