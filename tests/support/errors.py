"""Assertions about error messages that do not pin their prose."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LONGEST = 400  # characters; the longest lists every position encoding


@contextmanager
def raises_sentence(*mentions: str, error: type[Exception] = ValueError) -> Iterator[pytest.ExceptionInfo]:
    """Assert that the block raises exactly `error` with one sentence in which every mention stands as whole words.

    Mention the field with the value it got and what mends it, and leave the prose to the message:

        with raises_sentence("hidden_size=0", "1"):
            QkvEncoderConfig(hidden_size=0)
    """
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert type(caught.value) is error
    assert len(message) <= LONGEST and len(message.split()) > 3, message
    assert "\n" not in message and not re.search(r"[.!?]\s+[A-Z]|[.]$", message), f"more than one sentence: {message}"
    absent = [mention for mention in mentions if not re.search(rf"(?<!\w){re.escape(mention)}(?!\w)", message)]
    assert not absent, f"{absent} not in: {message}"
