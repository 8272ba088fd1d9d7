"""How are days written? In six languages and several forms each, and once for all in ISO 8601."""

from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np

from qkv.scripts.data.corpus import Corpus, pairs
from qkv.scripts.recipes.schema import Recipe

FIRST, DAYS = date(1900, 1, 1), 73049  # up to the end of 2099
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
}
WEEKDAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "pt": "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
}
# English numbers alone would not say which is the month.
FORMS = {
    "en": ("{weekday}, {month} {day}, {year}", "{month} {day}, {year}", "{day} {month} {year}"),
    "de": ("{weekday}, {day}. {month} {year}", "{day}. {month} {year}", "{day:02}.{number:02}.{year}"),
    "fr": ("{weekday} {day} {month} {year}", "{day} {month} {year}", "{day:02}/{number:02}/{year}"),
    "es": ("{weekday}, {day} de {month} de {year}", "{day} de {month} de {year}", "{day}/{number}/{year}"),
    "it": ("{weekday} {day} {month} {year}", "{day} {month} {year}", "{day:02}/{number:02}/{year}"),
    "pt": ("{weekday}, {day} de {month} de {year}", "{day} de {month} de {year}", "{day:02}/{number:02}/{year}"),
}


def dates(recipe: Recipe) -> Corpus:
    """Days of two centuries, each written in one of the forms of a language, and their ISO dates."""
    if recipe.text.made > DAYS:
        raise ValueError(f"text.made={recipe.text.made} is more than the {DAYS} days that there are; make fewer")
    return pairs(
        "dates", "dates in six languages and ISO 8601", "https://cldr.unicode.org", list(drawn(recipe.text.made))
    )


def drawn(count: int) -> Iterator[tuple[str, str]]:
    """That many different days, each in a form drawn for it, and its ISO date; the same ones every time."""
    random = np.random.default_rng(0)
    languages = list(FORMS)
    for offset in random.permutation(DAYS)[:count]:
        day = FIRST + timedelta(days=int(offset))
        language = languages[random.integers(len(languages))]
        yield written(day, language, int(random.integers(len(FORMS[language])))), day.isoformat()


def written(day: date, language: str, form: int) -> str:
    """A day in one of the forms of a language."""
    month, weekday = MONTHS[language].split()[day.month - 1], WEEKDAYS[language].split()[day.weekday()]
    pattern = FORMS[language][form]
    return pattern.format(day=day.day, number=day.month, year=day.year, month=month, weekday=weekday)
