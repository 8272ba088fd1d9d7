"""Names and sentences are those of papers, PyTorch and transformers: words that only this project used do not return."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What was said, and what is said instead. Names are matched as a whole, what ends in _ as a beginning.
NAMES = {
    "see": "build_masks",
    "Visibility": "AttentionMasks",
    "Span": "MaskSizes",
    "marks": "token_positions",
    "paged": "masks_from_paged_cache",
    "refuse_": "check_ or validate_",
    "next_token": "causal_lm_loss",
    "connectionist": "ctc_loss",
    "masked_pixels": "masked_image_loss",
    "competitors": "gathered batch",
    "contested": "in_batch_negatives",
    "Writer": "Seq2SeqLMBase",
    "OneVocabulary": "SharedVocabularyMixin",
    "Keeper": "CheckpointManager",
    "Watch": "EarlyStopping",
    "Journal": "MetricLogger",
    "Average": "EMA",
    "slots": "num_queries, object queries",
    "place_vectors": "query_position_embeddings",
    "look": "encode_image",
    "remember": "cached_key_value",
    "remembered": "output_fields",
    "Reader": "attention decoder",
    "Pace": "step mode",
    "free_to_look": "can_read_values",
    "Order": "Sampler",
    "Fault": "InvalidRecord",
    "Complaints": "RecordValidation",
    "outside": "text columns",
    "hearing": "transcription",
    "found": "a name that says what was found",
}
MODULES = {
    "reader": "attention decoder",
    "specialise": "export by reachability",
    "known": "constants",
    "freeze": "export by reachability",
    "average": "ema",
    "journal": "logger",
    "watch": "early_stopping",
    "keeper": "checkpoint",
    "order": "sampler",
    "feed": "sampler",
    "outside": "text_columns",
    "complaint": "validation",
    "hearing": "transcription",
    "stranger": "clean_process",
    "ways": "load_paths",
    "blind": "fake_tensors",
    "ledger": "memory",
    "traffic": "collectives",
}
WORDS = {
    "waves|a wave": "sinusoids, sinusoidal position embeddings",
    "turned rows?": "left-padded, unpadded",
    "(?:un)?heard": "unmasked",
    "silenced": "zeroed",
    "competitors?": "gathered batch",
    "contest(?:s|ed)?": "in-batch negatives",
    "strangers?": "clean environment",
    "ledger": "memory",
    "traffic": "communication",
    "lessons?": "training lengths",
    "letters read": "tokens seen",
    "learned from nothing": "trained from scratch",
    "slots?": "object queries",
    "place vectors?": "query position embeddings",
    "translators?": "encoder-decoder",
    "hearers?": "speech encoder",
    "recognisers?": "speech recognition model",
    "in vain": "a plain sentence",
}
OPENERS = ("What", "Whether", "How", "Which", "Where", "Who", "Why", "When")

ROOMS = sorted(
    {path.parent for root in ("configuration", "modeling", "scripts") for path in (ROOT / root).rglob("*.py")}
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "scripts/recipes").glob("*.yaml"))]
PAGES += [*sorted((ROOT / "model_cards").glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
# What is still to be replaced, at most; `python tests/test_vocabulary.py` counts.
PENDING: dict[str, int] = {
    "modeling": 1,
    "README.md": 1,
    "CONTRIBUTING.md": 1,
}
WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})(?![\w-])", re.IGNORECASE)


def defined(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that a file gives: to classes, functions, parameters and what it assigns to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def is_retired(name: str) -> bool:
    name = name.removeprefix("_")
    return name in NAMES or any(word.endswith("_") and name.startswith(word) for word in NAMES)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments and strings, by line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(tokenize, "FSTRING_MIDDLE", None):
            yield token.start[0], token.string


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def in_room(room: Path) -> Iterator[str]:
    for path in sorted(room.glob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        if path.stem in MODULES:
            yield f"{path.name}: module {path.stem}"
        yield from (f"{path.name}:{line}: name {name}" for line, name in defined(tree) if is_retired(name))
        yield from (f"{path.name}:{line}: {word}" for line, said in prose(text) for word in WORD.findall(said))
        for line, said in docstrings(tree):
            first = said.splitlines()[0]
            if first.split()[0] in OPENERS or first.endswith("?"):
                yield f"{path.name}:{line}: {first}"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_code_is_in_the_words_of_the_field(room: Path) -> None:
    retired = list(in_room(room))
    assert len(retired) <= PENDING.get(room.relative_to(ROOT).as_posix(), 0), "\n".join(retired)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_in_the_words_of_the_field(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), start=1)
    retired = [f"{number}: {word}" for number, line in lines for word in WORD.findall(line)]
    assert len(retired) <= PENDING.get(page.name, 0), retired


if __name__ == "__main__":
    for room in ROOMS:
        print(f'    "{room.relative_to(ROOT).as_posix()}": {len(list(in_room(room)))},')
