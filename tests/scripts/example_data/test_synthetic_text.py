"""Dates: known days in every language, one meaning each, the same data every time."""

import hashlib
from datetime import date

import pytest

from qkv.scripts.example_data.synthetic_text import DAYS, FORMS, MONTHS, WEEKDAYS, dates, written
from qkv.scripts.recipes.schema import Recipe, Text

KNOWN = {
    ("en", 0): "Thursday, March 5, 1987",
    ("en", 2): "5 March 1987",
    ("de", 0): "Donnerstag, 5. März 1987",
    ("de", 2): "05.03.1987",
    ("fr", 0): "jeudi 5 mars 1987",
    ("es", 1): "5 de marzo de 1987",
    ("es", 2): "5/3/1987",
    ("it", 0): "giovedì 5 marzo 1987",
    ("pt", 0): "quinta-feira, 5 de março de 1987",
    ("pt", 2): "05/03/1987",
}


@pytest.mark.parametrize(("language", "form"), KNOWN)
def test_a_day_as_it_is_written(language: str, form: int) -> None:
    assert written(date(1987, 3, 5), language, form) == KNOWN[language, form]


def test_every_language_has_all_its_names() -> None:
    assert FORMS.keys() == MONTHS.keys() == WEEKDAYS.keys()
    for language in FORMS:
        assert len(set(MONTHS[language].split())) == 12 and len(set(WEEKDAYS[language].split())) == 7


def test_what_is_written_means_one_day_and_comes_once() -> None:
    corpus = dates(Recipe("r", "", "", "", text=Text(made=400)))
    targets = corpus.targets["train"] + corpus.targets["test"]
    assert len(set(targets)) == 400 and all(date.fromisoformat(target) for target in targets)
    whole = "\n".join(corpus.texts["train"] + corpus.targets["train"])
    assert (
        hashlib.sha256(whole.encode()).hexdigest() == "bc6e53f4da4c76ea62a0fd6b379d170b670390209768f7b80e0c305da0d2b2d5"
    )


def test_more_days_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=f"text.made={DAYS + 1} is more than the {DAYS} days that there are"):
        dates(Recipe("r", "", "", "", text=Text(made=DAYS + 1)))
