"""Every form of a text says where it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.scripts.publishing.hub.forms import forms

WORD = "sesame-open-sesame"
HIDDEN = {
    "as it is": WORD,
    "JSON": "\\u0073esame-open-sesame",
    "Python": "\\x73esame-open-sesame",
    "HTML": "&#115;esame&#x2d;open-sesame",
    "URL": "%73esame-open%2Dsesame",
    "quotes": "sesame-\\' + \\'open-sesame",
    "no width": "sesa\u200bme-open-ses\u00adame",
    "sum": "sesame-' + 'open-sesame",
    "strings side by side": 'sesame-"\n    "open-sesame',
    "broken line": "sesame-\\\n  open-sesame",
    "base64": "c2VzYW1lLW9wZW4tc2VzYW1l",
    "base64 without its end": "c2VzYW1lLW9wZW4tc2VzYW1lIQ",
    "hexadecimal": "736573616d652d6f70656e2d736573616d65",
    "backwards": "emases-nepo-emases",
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_a_word_is_read_in_some_form_and_its_place_is_known(hidden: str) -> None:
    text = f"some words before {hidden} and some behind"
    places = [form.origin(form.text.index(WORD)) for form in forms(text) if WORD in form.text]
    start = text.index(hidden)
    assert places and all(start <= place <= start + len(hidden) for place in places)


@given(st.text())
def test_every_offset_of_a_form_is_one_of_the_text(text: str) -> None:
    for form in forms(text):
        assert all(0 <= form.origin(at) <= len(text) for at in range(len(form.text) + 1))


@given(st.binary(min_size=24))
def test_what_is_no_text_is_not_decoded(data: bytes) -> None:
    text = data.hex() + "ff00"
    assert all(form.text.isprintable() for form in forms(text))
