"""Infilling: parts that join to the document, drawn by seed and place, never longer, and left out of evaluation."""

import re

import numpy as np
import pytest

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.tasks.causal_lm import IGNORED
from qkv.scripts.tasks.infilling import MIDDLE, PREFIX, SUFFIX, InfillingLM, causal_lm, infilling_tokens
from qkv.scripts.tasks.registry import load
from recipes import recipe_of

TEXTS = [f"def f{n}(x):\n    return  x + {n}  # é\n" for n in range(30)]
PSM = re.compile(re.escape(PREFIX) + "(.*)" + re.escape(SUFFIX) + "(.*)" + re.escape(MIDDLE) + "(.*)</s>", re.DOTALL)
SPM = re.compile(re.escape(PREFIX + SUFFIX) + "(.*)" + re.escape(MIDDLE) + "(.*)</s>", re.DOTALL)


def task(rate: float = 0.999, length: int = 64, seed: int = 0, kind: str = "bytes", **splits: list[str]) -> InfillingLM:
    recipe = recipe_of(text=dict(tokenizer=kind, length=length, fim_rate=rate), seed=seed)
    made = causal_lm(recipe, Corpus("c", "t", "s", {"train": TEXTS, "test": TEXTS, **splits}))
    assert isinstance(made, InfillingLM)
    return made


def test_documents_are_split_in_both_ways() -> None:
    made = task(0.5)
    ids = np.asarray([*made.tokenizer("abcdefgh")["input_ids"], *made.tokenizer("ijkl")["input_ids"], 1])
    decoded = [
        made.tokenizer.decode(made.document(ids, np.array(draws)))
        for draws in [(0.6, 0, 0, 0), (0.4, 0, 0.5, 0.2), (0.4, 0.9, 0.2, 0.5), (0.4, 0, 0, 0.999)]
    ]
    # 12 letters and an end: of 13 tokens 4 are control tokens, so that 3 letters of the suffix go.
    assert decoded[0] == "abcdefghijkl</s>"
    assert decoded[1] == f"{PREFIX}ab{SUFFIX}ghi{MIDDLE}cdef</s>"
    assert decoded[2] == f"{PREFIX}{SUFFIX}ghi{MIDDLE}abcdef</s>"
    assert decoded[3] == "abcdefghijkl</s>", "the middle alone has no room"


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_rows_keep_their_length_and_the_middle_is_whole(kind: str) -> None:
    made = task(kind=kind)
    records = made.train.__getitems__(range(len(made.train)))
    batch = made.collate(records, range(len(records)))
    assert {*batch} == {"input_ids", "position_ids", "labels"} and batch["input_ids"].shape == (len(records), 64)
    ways = set()
    for ids, places, labels in zip(batch["input_ids"], batch["position_ids"], batch["labels"], strict=True):
        starts = [*(places == 0).nonzero().flatten().tolist(), 64]
        assert (labels == IGNORED)[starts[:-1]].all()
        for first, last in zip(starts[:-1], starts[1:], strict=True):
            document = made.tokenizer.decode(ids[first:last])
            if (labels[first:last] == IGNORED).all() or PREFIX not in document:
                continue
            if spm := SPM.fullmatch(document):
                ways.add("spm")
                assert any(spm[2] in text for text in TEXTS)
            else:
                prefix, suffix, middle = PSM.fullmatch(document).groups()
                ways.add("psm")
                assert any(prefix + middle + suffix in text for text in TEXTS)
    assert ways == {"psm", "spm"}


def test_draws_follow_from_seed_and_place() -> None:
    made, other = task(), task(seed=1)
    records = made.train.__getitems__(range(4))
    first = made.collate(records, [7, 8, 9, 10])["input_ids"]
    assert first.equal(made.collate(records, [7, 8, 9, 10])["input_ids"])
    assert first[1:].equal(made.collate(records[1:], [8, 9, 10])["input_ids"]), "a row does not depend on its batch"
    assert not first.equal(made.collate(records, [8, 9, 10, 11])["input_ids"])
    assert not first.equal(other.collate(records, [7, 8, 9, 10])["input_ids"])
    plain = made.collate(records, None)
    assert plain["input_ids"].tolist() == [record["input_ids"].tolist() for record in records] and "_bytes" in plain


def test_the_rate_is_the_share_of_documents() -> None:
    made = task(0.25, train=[f"{n:04d} and more of it, {n}\n" for n in range(2000)])
    records = made.train.__getitems__(range(len(made.train)))
    batch = made.collate(records, range(len(records)))
    documents = int(sum((row["position_ids"] == 0).sum() for row in records))
    split = int((batch["input_ids"] == made.tokenizer.convert_tokens_to_ids(MIDDLE)).sum())
    assert 0.19 < split / documents < 0.27  # the shortest have no room


def test_prompts_hold_control_tokens_and_texts_do_not() -> None:
    made = task(0.5)
    ids = infilling_tokens(made.tokenizer, f"{PREFIX}a</s>{SUFFIX}b{MIDDLE}")
    assert made.tokenizer.convert_ids_to_tokens(ids) == [PREFIX, "a", "<", "/", "s", ">", SUFFIX, "b", MIDDLE]
    row = made.documents([f"a{MIDDLE}"])[0]
    assert made.tokenizer.convert_tokens_to_ids(MIDDLE) not in row


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ValueError, match="text.fim_rate .* text.tokenizer=bpe"):
        task(kind="words")
    recipe = recipe_of(
        text=dict(tokenizer="bytes", length=8, fim_rate=0.5, made=20), data="copy", architecture="QkvDecoderForCausalLM"
    )
    with pytest.raises(ValueError, match="text.fim_rate=0.5 .* not for TargetLM"):
        load(recipe)
