"""Names and sentences are those of papers, PyTorch and transformers; docstrings begin with a verb or a noun."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkout import ROOT, python_files

# Names and words that only this project used, and nouns that hide what a sentence is about.
NAMES = frozenset(
    "see Visibility Span marks next_token connectionist masked_pixels competitors Writer OneVocabulary Keeper "
    "Watch Journal slots place_vectors look Reader Pace free_to_look Order Fault Complaints hearing".split()
)
WORDS = (
    "waves|a wave|turned rows?|(?:un)?heard|silenced|competitors?|strangers?|ledger|lessons?|"
    "letters read|learned from nothing|slots?|place vectors?|translators?|hearers?|recognisers?|in vain"
)
WORD = re.compile(rf"(?<![\w-])(?:{WORDS})(?![\w-])", re.IGNORECASE)
OPENERS = re.compile(r"(What|Whether|How|Which|Where|Who|Why|When)\b|.*\?$")

SOURCES = python_files("configuration", "modeling", "scripts")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "scripts/recipes").glob("*.yaml"))]
PAGES += [*sorted((ROOT / "model_cards").glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [*(ROOT / "docs" / "notebooks").glob("*.ipynb"), *(ROOT / "scripts").rglob("arguments.yaml")]


def defined(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names of classes, functions, parameters and variables, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments and strings, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(tokenize, "FSTRING_MIDDLE", None):
            yield token.start[0], token.string


def test_code_is_in_the_words_of_the_field() -> None:
    found = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        named = [(line, name) for line, name in defined(ast.parse(text)) if name.removeprefix("_") in NAMES]
        said = [(line, word) for line, sentence in prose(text) for word in WORD.findall(sentence)]
        found += [f"{path.relative_to(ROOT)}:{line}: {word}" for line, word in named + said]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_no_question() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
                first = said.splitlines()[0]
                found += [f"{path.relative_to(ROOT)}: {first}"] * bool(OPENERS.match(first))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_in_the_words_of_the_field(page: Path) -> None:
    assert WORD.findall(page.read_text(encoding="utf-8")) == []
