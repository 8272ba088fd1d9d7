"""Tokenizers: the same in every process, loaded by AutoTokenizer, and lossless where they should be."""

import hashlib
from pathlib import Path

import datasets
import numpy as np
import pytest
from transformers import AutoTokenizer

from qkv.scripts.data import tokenization
from qkv.scripts.data.tokenization import (
    ENCODER_TEMPLATE,
    MAKERS,
    SPECIAL,
    CachedTokenizer,
    byte_counts,
    config_fields,
    load_tokenizer,
    tokenize,
    tokenizer_for,
    tokenizer_hash,
)
from qkv.scripts.example_data.synthetic_text import english, french
from qkv.scripts.recipes.schema import Recipe
from recipes import recipe_of

TEXTS = [f"{english(number)}, {french(number)}.\n" for number in range(0, 9000, 37)]
SAME = {
    "bpe": "4dceddce17678080",
    "wordpiece": "2444a0e8b5f66ca6",
    "characters": "2a50a47f4ac81615",
    "words": "3a6fb87d17bf8357",
    "bytes": "c7b0ac1ec4d0a197",
}
OTHER = "Où est  la gare?\nthirty-three 東"


def recipe(kind: str, **options: object) -> Recipe:
    return recipe_of(text={"tokenizer": kind, "vocab_size": 400, **options})


def digest(kind: str) -> str:
    text = tokenizer_for(recipe(kind), TEXTS, ENCODER_TEMPLATE).backend_tokenizer.to_str()
    return hashlib.sha256(text.encode()).hexdigest()


def test_they_are_the_same_every_time() -> None:
    assert {kind: digest(kind)[:16] for kind in MAKERS} == SAME


@pytest.mark.parametrize("kind", MAKERS)
def test_it_is_loaded_as_it_was_saved(kind: str, tmp_path: Path) -> None:
    made = tokenizer_for(recipe(kind), TEXTS, ENCODER_TEMPLATE)
    made.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(OTHER)["input_ids"] == made(OTHER)["input_ids"] and list(loaded(OTHER)) == [
        "input_ids",
        "attention_mask",
    ]
    assert loaded.convert_tokens_to_ids(list(SPECIAL)) == list(range(5)) and loaded.model_max_length == 128
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.mask_token_id) == (0, 1, 4)
    (tmp_path / "config.json").write_text('{"model_type": "qkv_encoder"}')
    again = tokenizer_for(recipe_of(init=str(tmp_path), text=dict(length=7)), ["something else"])
    assert again.get_vocab() == made.get_vocab() and again.model_max_length == 7


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_any_text_is_spelt_without_loss(kind: str) -> None:
    tokenizer = tokenizer_for(recipe(kind), TEXTS, ENCODER_TEMPLATE)
    (row,) = tokenize(tokenizer, [OTHER])
    assert tokenizer.decode(row, skip_special_tokens=True) == OTHER and row[0] == 2 and row[-1] == 1
    assert tokenize(tokenizer, []) == []
    assert byte_counts(tokenizer)[row].sum() == len(OTHER.encode())
    assert kind == "bpe" or np.array_equal(byte_counts(tokenizer)[row[1:-1]], np.ones(len(OTHER.encode())))


def test_characters_are_those_of_the_texts() -> None:
    tokenizer = tokenizer_for(recipe("characters"), ["ab", "b\n c"])
    (row,) = tokenize(tokenizer, ["cab\n a?"])
    assert tokenizer.convert_ids_to_tokens(row) == ["c", "a", "b", "\n", " ", "a", "<unk>"]
    assert tokenizer.decode(row[:-1]) == "cab\n a" and byte_counts(tokenizer) is None
    with pytest.raises(ValueError, match="text.vocab_size=6 is less than the 10 that 5 characters need"):
        tokenizer_for(recipe("characters", vocab_size=6), ["ab", "b\n c"])


def test_word_pieces_are_those_of_bert() -> None:
    tokenizer = tokenizer_for(recipe("wordpiece"), TEXTS)
    words = tokenizer.convert_ids_to_tokens(tokenize(tokenizer, ["Thirty-three! xyz"])[0])
    assert words[:3] == ["thirty", "-", "three"] and any(word.startswith("##") or word == "<unk>" for word in words[3:])
    assert tokenizer.decode(tokenize(tokenizer, ["Thirty"])[0]) == "thirty"


def test_a_config_is_told_what_there_is() -> None:
    tokenizer = tokenizer_for(recipe("bytes"), TEXTS)
    assert config_fields(tokenizer) == {"vocab_size": 261, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}


def test_a_tokenizer_without_the_tokens_that_are_needed_is_refused(tmp_path: Path) -> None:
    tokenizer = tokenizer_for(recipe("bytes"), TEXTS, needs=["mask", "eos"])
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no mask token, which this architecture learns with; take another, or"):
        load_tokenizer(str(tmp_path), 8, ["eos", "mask"])


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no tokenizer; give a run or a model folder with one"):
        tokenizer_for(recipe_of(init=str(tmp_path)), TEXTS)


SHORT = ["a b c", "b", "a a a a a a a", "", "c c c c"]


def encoder(texts: list[str] = SHORT, processes: int = 1) -> CachedTokenizer:
    return CachedTokenizer(tokenizer_for(recipe_of(text=dict(tokenizer="characters")), texts), processes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path / tokenization.CACHE_FOLDER


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_several_processes_make_what_one_makes(processes: int, cache: Path) -> None:
    made, expected = encoder(processes=processes)(SHORT), tokenize(encoder().tokenizer, SHORT)
    assert [row.dtype for row in made] == [np.int64] * 5 and list(map(list, made)) == list(map(list, expected))
    assert len(list(cache.glob("*.arrow"))) == processes


def test_what_was_made_is_found_again_and_else_is_made_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = encoder()
    first = used(SHORT, truncation=True, max_length=3)
    with monkeypatch.context() as patch:
        patch.setattr(tokenization, "tokenize", None)
        again = encoder()(SHORT, truncation=True, max_length=3)
        assert list(map(list, again)) == list(map(list, first))
        for other, texts in ((used, SHORT[1:]), (encoder(["cab x"]), SHORT)):
            with pytest.raises(TypeError):
                other(texts, truncation=True, max_length=3)
    assert max(map(len, first)) == 3 and max(map(len, used(SHORT))) == 13


def test_a_tokenizer_is_known_by_what_it_does_not_by_what_it_did() -> None:
    one, two = encoder().tokenizer, encoder().tokenizer
    two(SHORT, padding=True, truncation=True, max_length=3)
    assert tokenizer_hash(one) == tokenizer_hash(two) != tokenizer_hash(encoder(["cab x"]).tokenizer)


@pytest.mark.parametrize("text", ["a", "é", "!", "7"])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_word_without_end_is_divided_before_merges_are_learned(kind: str, text: str) -> None:
    """Merging it takes the square of its length: 800 KB of one word took minutes."""
    tokens = MAKERS[kind]([*TEXTS, text * 2**14], 800).get_vocab()
    assert max(map(len, tokens)) <= 2 * 1000 + 1  # of two bytes each, after a space
