"""The pages of the last answers are kept, each made once, and nobody guesses where they are."""

from pathlib import Path
from unittest import mock

import pytest

import stock_folders
from qkv.scripts.prediction.source import open_source
from qkv.scripts.web_demo import attention_pages
from qkv.scripts.web_demo.answers import answer
from qkv.scripts.web_demo.attention_pages import KEPT, AttentionPages
from qkv.scripts.web_demo.requests import RefusedError


def test_the_last_pages_are_kept_and_made_once(tmp_path: Path) -> None:
    source = open_source(str(stock_folders.bert(tmp_path / "bert")))
    pages = AttentionPages(source)
    addresses = [pages.keep(answer(source, {"text": "warm dull"})[1]) for _ in range(KEPT + 1)]
    assert len(set(addresses)) == KEPT + 1 and all(len(each) >= len("attention/") + 22 for each in addresses)
    for gone in (addresses[0], "attention/1"):
        with pytest.raises(RefusedError, match="no longer kept; predict again"):
            pages.make({"page": gone})
    with mock.patch.object(attention_pages, "view_of", wraps=attention_pages.view_of) as made:
        for _ in range(2):
            assert pages.make({"page": addresses[1]}) == {"page": addresses[1]}
    assert made.call_count == 1
    assert b"bert: BertForSequenceClassification" in pages.page(addresses[1])
    assert pages.page(addresses[2]) is None and pages.page(addresses[0]) is None and len(pages.kept) == KEPT
