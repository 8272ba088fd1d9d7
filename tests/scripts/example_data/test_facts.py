"""Made questions: answers are where they are said to be, none where the text tells nothing, the test is held out."""

import re
from hashlib import sha256

import pytest

from qkv.scripts.data.questions import AnsweredQuestions
from qkv.scripts.example_data.facts import HELD, TOLD, facts
from recipes import recipe_of

# What a question asks about, by the words around the name; what a sentence tells, by the words around name and answer.
ASKS = [re.compile(re.escape(fact["asks"]).replace(r"\{who\}", "(.+)")) for fact in TOLD["facts"]]
SAYS = [
    (kind, re.compile(form.replace(".", r"\.").format(who="([A-Z][a-z]+ [A-Z][a-z]+)", what="(.+)")), form)
    for kind, fact in enumerate(TOLD["facts"])
    for form in fact["says"]
]


@pytest.fixture(scope="module")
def made() -> AnsweredQuestions:
    return facts(recipe_of(text=dict(made=400, symbols=3)))


def told(context: str) -> dict[tuple[str, int], str]:
    """The answers of a context by person and kind of fact, read from its sentences."""
    found, sentences = {}, re.findall(r"[^.]+\.", context)
    for each in map(str.strip, sentences):
        for kind, says, form in SAYS:
            if match := says.fullmatch(each):
                who, what = match.groups() if form.startswith("{who}") else match.groups()[::-1]
                found[who, kind] = what
    assert len(found) == len(sentences)
    return found


@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_are_what_the_context_tells(made: AnsweredQuestions, split: str) -> None:
    unanswered = 0
    for context, question, answers in zip(made.texts[split], made.pairs[split], made.labels[split], strict=True):
        [(kind, who)] = [(kind, match[1]) for kind, asks in enumerate(ASKS) if (match := asks.fullmatch(question))]
        expected = told(context).get((who, kind))
        assert [text for text, _ in answers] == ([expected] if expected else [])
        assert all(context[place : place + len(text)] == text for text, place in answers)
        unanswered += not answers
    assert 0.2 < unanswered / len(made.texts[split]) < 0.45


def test_people_and_numbers_of_the_test_are_its_own(made: AnsweredQuestions) -> None:
    people, numbers = (
        {split: {found for text in own for found in re.findall(pattern, text)} for split, own in made.texts.items()}
        for pattern in (r"[A-Z]\w+ [A-Z]\w+", r"\d+")
    )
    assert not people["train"] & people["test"] and not numbers["train"] & numbers["test"]
    assert all(int(number) % HELD == 0 for number in numbers["test"])
    # Each name by itself is known, and so is each digit.
    assert {*" ".join(people["test"]).split()} <= {*" ".join(people["train"]).split()}


def test_more_people_than_have_names_are_refused() -> None:
    with pytest.raises(ValueError, match="text.symbols=5"):
        facts(recipe_of(text=dict(symbols=5)))


def test_the_same_bytes_come_every_time(made: AnsweredQuestions) -> None:
    held = repr((made.texts, made.pairs, made.labels)).encode()
    assert sha256(held).hexdigest()[:16] == "8b112e957ae98a57"
