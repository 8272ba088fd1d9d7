"""Tokens of tables: the same from several processes, made once, and anew for what is not the same."""

from pathlib import Path

import datasets
import numpy as np
import pytest

from qkv.scripts.data import tokens
from qkv.scripts.data.tokenization import ids, tokenizer_for
from qkv.scripts.data.tokens import Encoder, identity
from qkv.scripts.recipes.schema import Recipe, Text

TEXTS = ["a b c", "b", "a a a a a a a", "", "c c c c"]


def encoder(texts: list[str] = TEXTS, processes: int = 1) -> Encoder:
    return Encoder(tokenizer_for(Recipe("r", "", "", "", text=Text(tokenizer="characters")), texts), processes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path / tokens.FOLDER


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_several_processes_make_what_one_makes(processes: int, cache: Path) -> None:
    made, expected = encoder(processes=processes)(TEXTS), ids(encoder().tokenizer, TEXTS)
    assert [row.dtype for row in made] == [np.int64] * 5 and list(map(list, made)) == list(map(list, expected))
    assert len(list(cache.glob("*.arrow"))) == processes


def test_what_was_made_is_found_again_and_else_is_made_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = encoder()
    first = used(TEXTS, truncation=True, max_length=3)
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "ids", None)
        again = encoder()(TEXTS, truncation=True, max_length=3)
        assert list(map(list, again)) == list(map(list, first))
        for other, texts in ((used, TEXTS[1:]), (encoder(["cab x"]), TEXTS)):
            with pytest.raises(TypeError):
                other(texts, truncation=True, max_length=3)
    assert max(map(len, first)) == 3 and max(map(len, used(TEXTS))) == 13


def test_a_tokenizer_is_known_by_what_it_does_not_by_what_it_did() -> None:
    one, two = encoder().tokenizer, encoder().tokenizer
    two(TEXTS, padding=True, truncation=True, max_length=3)
    assert identity(one) == identity(two) != identity(encoder(["cab x"]).tokenizer)
