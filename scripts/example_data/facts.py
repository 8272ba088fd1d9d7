"""Questions about facts of several people, as SQuAD 2.0 has them: some ask for one that the text does not tell.

People and numbers of the test are not in the training.
"""

from typing import Any

import numpy as np

from qkv.scripts.common.files import table
from qkv.scripts.data.questions import AnsweredQuestions
from qkv.scripts.recipes.schema import Recipe

HOME = "https://rajpurkar.github.io/SQuAD-explorer"
TOLD = table(__file__)
MOST = 4  # people of a context
KINDS, ASKED, KNOWN, UNANSWERABLE = 2, 4, 0.8, 1 / 3  # of a context: kinds of facts and questions at most, their shares
TESTS = 1000
HELD = 7  # every so-many-th person and number is in the test alone
Row = tuple[str, str, list[tuple[str, int]]]


def facts(recipe: Recipe) -> AnsweredQuestions:
    """Write `text.made` questions about contexts of one to `text.symbols` people, of the test all of so many.

    What answers a question is learned where a context has few sentences. ValueError for more people than four.
    """
    columns: Any = {"texts": {}, "pairs": {}, "labels": {}}
    most = recipe.text.symbols
    if most > MOST:
        raise ValueError(f"text.symbols={most}: a context is about {MOST} people at most; set text.symbols={MOST}")
    for seed, (split, count) in enumerate({"train": recipe.text.made, "test": TESTS}.items()):
        random, rows, is_test = np.random.default_rng(seed), list[Row](), split == "test"
        while len(rows) < count:
            rows += questions(random, most if is_test else int(random.integers(1, most + 1)), is_test=is_test)
        for name, own in zip(columns, zip(*rows[:count], strict=True), strict=True):
            columns[name][split] = list(own)
    return AnsweredQuestions("facts", "made questions about facts of several people", HOME, **columns)


def questions(random: np.random.Generator, people: int, *, is_test: bool) -> list[Row]:
    """Write a context about some people; return it with questions, different ones, and their answers."""
    kinds = random.permutation(len(TOLD["facts"]))[: random.integers(1, KINDS + 1)].tolist()
    *known, stranger = names(random, people + 1, is_test=is_test)
    pairs = [(who, kind) for who in known for kind in kinds if random.random() < KNOWN] or [(known[0], kinds[0])]
    context, answers = "", dict[tuple[str, int], list[tuple[str, int]]]()
    for place in random.permutation(len(pairs)).tolist():
        fact = TOLD["facts"][pairs[place][1]]
        before, _, after = random.choice(fact["says"]).format(who=pairs[place][0], what="|").partition("|")
        what = answer(random, fact, is_test=is_test)
        answers[pairs[place]] = [(what, len(context) + len(before))]
        context += f"{before}{what}{after} "
    untold = [(who, kind) for who in (*known, stranger) for kind in kinds if (who, kind) not in answers]
    sides = [untold if random.random() < UNANSWERABLE else list(answers) for _ in range(ASKED)]
    asked = dict.fromkeys(side[random.integers(len(side))] for side in sides)
    said = {(who, kind): TOLD["facts"][kind]["asks"].format(who=who) for who, kind in asked}
    return [(context.rstrip(), question, answers.get(pair, [])) for pair, question in said.items()]


def names(random: np.random.Generator, count: int, *, is_test: bool) -> list[str]:
    """Draw people of a split, whose first and family names all differ."""
    people = dict[str, str]()
    while len(people) < count:
        places = [int(random.integers(len(TOLD[side]))) for side in ("first", "family")]
        first, family = (TOLD[side][place] for side, place in zip(("first", "family"), places, strict=True))
        if (sum(places) % HELD == 0) == is_test and first not in people and family not in people.values():
            people[first] = family
    return list(map(" ".join, people.items()))


def answer(random: np.random.Generator, fact: dict[str, Any], *, is_test: bool) -> str:
    """Draw an answer: words, or a number that the other split does not have."""
    if "words" in fact:
        return str(random.choice(fact["words"]))
    number = 0
    while (number % HELD == 0) != is_test or not number:
        number = int(random.integers(*fact["numbers"]))
    return str(number)
