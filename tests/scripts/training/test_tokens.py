"""Tokens: as the tokenizer makes them, nothing lost in silence, made once."""

from pathlib import Path

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from qkv.scripts.training.tokens import counts, documents, identity, tokenised

TEXTS = ["a b c", "b", "a a a a a a a", "c c c c"]


def tokenizer(words: str = "abc") -> PreTrainedTokenizerFast:
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "[END]": 2} | {word: 3 + place for place, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="$A [END]", special_tokens=[("[END]", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", eos_token="[END]")


def texts() -> Dataset:
    return Dataset.from_dict({"text": TEXTS, "other": [1, 2, 3, 4]})


def test_texts_become_what_the_tokenizer_makes_of_them() -> None:
    tokens = tokenised(texts(), tokenizer())
    assert tokens["input_ids"][:] == tokenizer()(TEXTS)["input_ids"]
    assert tokens["length"][:] == [4, 2, 8, 5] and "other" not in tokens.column_names
    assert counts(tokens) == {"documents": 4, "tokens": 19, "split": 0, "truncated": 0, "lost tokens": 0}


def test_long_documents_are_split_with_nothing_lost() -> None:
    tokens = tokenised(texts(), tokenizer(), length=4)
    assert tokens["input_ids"][:] == [
        [3, 4, 5, 2], [4, 2], [3, 3, 3, 2], [3, 3, 3, 2], [3, 2], [5, 5, 5, 2], [5, 2],
    ]  # fmt: skip
    assert tokens["part"][:] == [0, 0, 0, 1, 2, 0, 1]
    assert counts(tokens) == {"documents": 4, "tokens": 22, "split": 2, "truncated": 0, "lost tokens": 0}


def test_what_is_cut_off_is_counted() -> None:
    tokens = tokenised(texts(), tokenizer(), length=4, long="truncate")
    assert tokens["input_ids"][:] == [[3, 4, 5, 2], [4, 2], [3, 3, 3, 2], [5, 5, 5, 2]]
    assert tokens["lost"][:] == [0, 0, 4, 1]
    assert counts(tokens) == {"documents": 4, "tokens": 14, "split": 0, "truncated": 2, "lost tokens": 5}


def test_several_processes_make_the_same(tmp_path: Path) -> None:
    # Two tables, for else the second would come from the cache.
    one, two = (Dataset.from_dict({"text": TEXTS * 5, name: list(range(20))}) for name in ("a", "b"))
    assert tokenised(one, tokenizer(), length=4)[:] == tokenised(two, tokenizer(), length=4, processes=2)[:]


def test_what_was_made_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "x")
    data, used = Dataset.load_from_disk(tmp_path / "x"), tokenizer()
    first = tokenised(data, used, length=4)
    used(TEXTS, padding=True, truncation=True, max_length=3)
    again = tokenised(data, used, length=4)
    assert [file["filename"] for file in first.cache_files] == [file["filename"] for file in again.cache_files]
    others = [
        tokenised(data, used, length=5),
        tokenised(data, used, length=4, long="truncate"),
        tokenised(data, tokenizer("cab"), length=4),
    ]
    assert len({other.cache_files[0]["filename"] for other in (first, *others)}) == 4
    assert others[2]["input_ids"][0] == [4, 5, 3, 2]


def test_a_tokenizer_is_known_by_what_it_does_not_by_what_it_did() -> None:
    one, two = tokenizer(), tokenizer()
    two(TEXTS, padding=True, truncation=True, max_length=3)
    assert identity(one) == identity(two) != identity(tokenizer("cab"))


def test_a_stream_gets_the_same_tokens() -> None:
    found = documents([{"text": text} for text in TEXTS], tokenizer())
    assert [[example["input_ids"] for example in one] for one in found] == [
        [ids] for ids in tokenizer()(TEXTS)["input_ids"]
    ]


@pytest.mark.parametrize("long", ["split", "truncate"])
def test_tokenizers_in_python_lose_nothing_in_silence_either(long: str) -> None:
    tokens = tokenised(texts(), ByT5Tokenizer(), length=5, long=long)
    rows = tokens["input_ids"][:]
    assert all(len(row) <= 5 and row[-1] == 1 for row in rows)
    kept = [ByT5Tokenizer().decode(row, skip_special_tokens=True) for row in rows]
    if long == "split":
        assert "".join(kept) == "".join(TEXTS) and counts(tokens)["split"] == 3
    else:
        assert kept == [text[:4] for text in TEXTS] and counts(tokens)["lost tokens"] == sum(len(t[4:]) for t in TEXTS)


def test_rows_that_special_tokens_fill_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 1 tokens have no room beside 1 special ones; make them longer"):
        tokenised(texts(), tokenizer(), length=1)
