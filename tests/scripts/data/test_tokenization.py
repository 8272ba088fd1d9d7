"""Tokenizers: the same in every process, loaded by AutoTokenizer, lossless where they should be, cut where texts are."""

import hashlib
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from errors import raises_sentence
from qkv.scripts.data import tokenization
from qkv.scripts.data.tokenization import (
    ENCODER_TEMPLATE,
    MAKERS,
    SPECIAL,
    byte_counts,
    config_fields,
    count_truncated,
    is_much,
    load_tokenizer,
    tokenize,
    tokenizer_for,
    truncate,
    truncated_sentence,
)
from qkv.scripts.example_data.synthetic_text import english, french
from qkv.scripts.recipes.schema import Recipe
from recipes import recipe_of

TEXTS = [f"{english(number)}, {french(number)}.\n" for number in range(0, 9000, 37)]
SAME = {
    "bpe": "4dceddce17678080",
    "wordpiece": "2444a0e8b5f66ca6",
    "characters": "2a50a47f4ac81615",
    "words": "530dbbe20ecde79a",
    "bytes": "c7b0ac1ec4d0a197",
    "residues": "7ea31fcbf96bb6b0",
}
OTHER = "Où est  la gare?\nthirty-three 東"


def recipe(kind: str, **options: object) -> Recipe:
    return recipe_of(text={"tokenizer": kind, "vocab_size": 400, **options})


@pytest.mark.parametrize("kind", MAKERS)
def test_a_tokenizer_is_the_same_every_time_and_loaded_as_it_was_saved(kind: str, tmp_path: Path) -> None:
    made = tokenizer_for(recipe(kind), TEXTS, ENCODER_TEMPLATE)
    assert hashlib.sha256(made.backend_tokenizer.to_str().encode()).hexdigest()[:16] == SAME[kind]
    made.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert dict(loaded(OTHER)) == dict(made(OTHER)) and list(loaded(OTHER)) == ["input_ids", "attention_mask"]
    first = 21 if kind == "residues" else 0  # behind the amino acids, which models that fold count from 0
    assert loaded.convert_tokens_to_ids(list(SPECIAL)) == list(range(first, first + 5))
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.mask_token_id) == (first, first + 1, first + 4)
    assert loaded.model_max_length == 128
    (tmp_path / "config.json").write_text('{"model_type": "qkv_encoder"}')
    again = tokenizer_for(recipe_of(init=str(tmp_path), text=dict(length=7)), ["something else"])
    assert again.get_vocab() == made.get_vocab() and again.model_max_length == 7


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_any_text_is_spelt_without_loss(kind: str) -> None:
    tokenizer = tokenizer_for(recipe(kind), TEXTS, ENCODER_TEMPLATE)
    (row,) = tokenize(tokenizer, [OTHER])
    assert tokenizer.decode(row, skip_special_tokens=True) == OTHER and row[0] == 2 and row[-1] == 1
    assert tokenize(tokenizer, []) == [] and byte_counts(tokenizer)[row].sum() == len(OTHER.encode())
    fields = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    assert config_fields(tokenizer) == fields


def test_characters_and_word_pieces_are_those_of_the_texts() -> None:
    tokenizer = tokenizer_for(recipe("characters"), ["ab", "b\n c"])
    (row,) = tokenize(tokenizer, ["cab\n a?"])
    assert tokenizer.convert_ids_to_tokens(row) == ["c", "a", "b", "\n", " ", "a", "<unk>"]
    assert tokenizer.decode(row[:-1]) == "cab\n a" and byte_counts(tokenizer) is None
    with raises_sentence("text.vocab_size=6", "10", "5 characters"):
        tokenizer_for(recipe("characters", vocab_size=6), ["ab", "b\n c"])
    tokenizer = tokenizer_for(recipe("wordpiece"), TEXTS)
    words = tokenizer.convert_ids_to_tokens(tokenize(tokenizer, ["Thirty-three! xyz"])[0])
    assert words[:3] == ["thirty", "-", "three"] and tokenizer.decode(tokenize(tokenizer, ["Thirty"])[0]) == "thirty"


def test_tokenizers_that_are_missing_or_lack_a_token_are_refused(tmp_path: Path) -> None:
    tokenizer = tokenizer_for(recipe("bytes"), TEXTS, needs=["mask", "eos"])
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path / "bytes")
    with raises_sentence("mask"):
        load_tokenizer(str(tmp_path / "bytes"), 8, ["eos", "mask"])
    (tmp_path / "config.json").write_text("{}")
    with raises_sentence("init=", "tokenizer"):
        tokenizer_for(recipe_of(init=str(tmp_path)), TEXTS)


@pytest.mark.parametrize("text", ["a", "é", "!", "7"])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_word_without_end_is_divided_before_merges_are_learned(kind: str, text: str) -> None:
    """Merging it takes the square of its length: 800 KB of one word took minutes."""
    tokens = MAKERS[kind]([*TEXTS, text * 2**14], 800).get_vocab()
    assert max(map(len, tokens)) <= 2 * 1000 + 1  # of two bytes each, after a space


@pytest.mark.parametrize("length", [4, 12, 500])
def test_texts_are_cut_as_the_tokenizer_cuts_them(length: int) -> None:
    texts = [" ".join(["pea", "soup", "salt"][: 1 + number % 3] * (1 + number % 7)) for number in range(40)]
    tokenizer = tokenizer_for(recipe("words"), texts, ENCODER_TEMPLATE)
    rows, lengths = truncate(tokenizer, texts, length)
    expected = tokenize(tokenizer, texts, truncation=True, max_length=length)
    assert [row.tolist() for row in rows] == [row.tolist() for row in expected]
    assert lengths == [len(row) for row in tokenize(tokenizer, texts)]


def test_many_texts_are_tokenized_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_for(recipe("words"), TEXTS)
    whole = tokenize(tokenizer, TEXTS)
    monkeypatch.setattr(tokenization, "PART", 7)
    assert [row.tolist() for row in tokenize(tokenizer, TEXTS)] == [row.tolist() for row in whole]
    assert tokenize(tokenizer, []) == []


def test_cut_texts_are_counted_by_split() -> None:
    lengths = {"train": list(range(1, 101)), "test": [3, 90], "validation": []}
    counts = count_truncated(lengths, 80)
    assert counts["texts"] == {"train": 20, "test": 1, "validation": 0}
    assert counts["share"] == {"train": 0.2, "test": 0.5, "validation": 0.0}
    assert sum(own <= counts["enough"] for own in lengths["train"]) == 96
    assert is_much(counts) and not is_much(count_truncated({"train": lengths["train"]}, 95))
    said = truncated_sentence(counts)
    assert all(word in said for word in ("text.length=80", "20 of the train", "50.00 %", "text.length=96"))
    assert truncated_sentence(count_truncated({"train": [3, 4]}, 4)) == "" == truncated_sentence({})
