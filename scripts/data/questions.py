"""Read questions about contexts with their answers, as SQuAD has them, and find each answer in its context.

Sources: Rajpurkar et al. 2016, SQuAD, https://arxiv.org/abs/1606.05250; Rajpurkar et al. 2018, Know What You Don't
    Know, https://arxiv.org/abs/1806.03822, whose questions may have no answer
"""

from dataclasses import replace
from typing import Any

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.own_tables import checked_tables, label_column, read_tables
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.splits.division import divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
from qkv.scripts.data.text_columns import as_object
from qkv.scripts.data.validation import check_number, check_text
from qkv.scripts.recipes.schema import Recipe

START = "answer_start"  # the column, or the field of SQuAD's objects, with the place of an answer


class AnsweredQuestions(Corpus):
    """A corpus whose texts are contexts, with questions as their pairs and lists of answers as labels, empty for none.

    An answer is its text and the place of its first letter in the context.
    """


def read_questions(recipe: Recipe) -> AnsweredQuestions:
    """Read contexts, questions and answers, the columns `text.column`, `text.pair` and `text.label`.

    Answers may have their places in a column `answer_start`. Questions about one context stay in one split, unless
    `group` names another column. ValueError where the recipe names no column of questions.
    """
    if recipe.text.pair is None:
        learns = f"architecture={recipe.model.architecture!r} learns questions about texts"
        raise ValueError(f"{learns}; name their column, as in text.pair=question")
    read, columns = ReadReport(), (recipe.text.column, recipe.text.pair, label_column(recipe, "answers"))
    checks: dict[Any, Any] = {columns[0]: check_text, columns[1]: check_text}
    checks[columns[0], columns[2], START] = answers_of
    tables, facts = checked_tables(read_tables(recipe, columns, read, [START]), recipe, checks, read)
    contexts, questions = ({name: table[each][:] for name, table in tables.items()} for each in columns[:2])
    answers = {}
    for name, table in tables.items():
        starts = table[START][:] if START in table.column_names else [None] * len(table)
        answers[name] = list(map(answers_of, contexts[name], table[columns[2]][:], starts))
    both = {name: list(map("\n".join, zip(contexts[name], questions[name], strict=True))) for name in tables}
    together = replace(recipe, data=replace(recipe.data, group=recipe.data.group or columns[0]))
    division = divide_rows(text_sketches(both), together, tables)
    texts, pairs, labels = (division.of_lists(lists) for lists in (contexts, questions, answers))
    report = division.report | {"unanswerable": {name: own.count([]) for name, own in labels.items() if [] in own}}
    return AnsweredQuestions(**facts, texts=texts, pairs=pairs, labels=labels, report=report)


def answers_of(context: str, value: Any, start: Any = None) -> list[tuple[str, int]]:
    """Return the answers to a question, each with its place in the context.

    InvalidRecord where the context has another text at that place; without one, where the answer does not occur in the
    context exactly once.
    """
    value, start = as_object(value), as_object(start)
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        value = {key: [each.get(key) for each in value] for key in ("text", START)}
    if isinstance(value, dict):
        if "text" not in value:
            raise InvalidRecord(f"an object with {', '.join(map(str, value))}, expected text and {START}")
        value, start = value["text"], value.get(START)
    texts = value if isinstance(value, list) else [] if value in (None, "") else [value]
    starts = start if isinstance(start, list) else [start] * len(texts)
    if starts and len(starts) != len(texts):
        raise InvalidRecord(f"{len(texts)} answers, but {len(starts)} places in {START}")
    starts = starts or [None] * len(texts)
    return [located(context, str(text), place) for text, place in zip(texts, starts, strict=True)]


def located(context: str, text: str, start: Any) -> tuple[str, int]:
    """Return an answer without spaces around it, and its place; InvalidRecord where it is not in the context."""
    answer, shown = text.strip(), repr(text)
    if not answer:
        raise InvalidRecord("an empty answer; leave out the text, too, where there is none")
    if start in (None, "") or start != start:
        place = context.find(answer)
        if place < 0:
            raise InvalidRecord(f"{shown} is no part of the context, as answers are; task=seq2seq writes any text")
        if context.find(answer, place + 1) >= 0:
            raise InvalidRecord(f"{shown} occurs more than once in the context; give its place in {START}")
        return answer, place
    place = int(check_number(start))
    if place < 0 or context[place : place + len(text)] != text:
        there = repr(context[max(place, 0) : max(place, 0) + len(text)])
        raise InvalidRecord(
            f"the context has {there} at {START}={place}, not {shown}; without it the answer is searched"
        )
    return answer, place + len(text) - len(text.lstrip())
