"""Question answering: targets in windows, the best span of all windows, and SQuAD's metric, against slow formulas."""

import itertools
import math
import re
import string
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from errors import raises_sentence
from qkv.scripts.data.examples import model_inputs
from qkv.scripts.data.questions import AnsweredQuestions
from qkv.scripts.tasks.metrics import load, measure
from qkv.scripts.tasks.question_answering import QuestionAnswering, best_spans, windows_of
from qkv.scripts.training.run import build
from recipes import recipe_of

LONG = " ".join(f"word{number}" for number in range(40))
TEXTS = {"train": ["Ada met Bo in Köln.", LONG, LONG, "Bo slept."], "test": [LONG, "Bo met Ada.", LONG]}
ASKED = {"train": ["Where?", "Last?", "All?", "Why?"], "test": ["What is last?", "Who?", "Why?"]}
ANSWERS = {
    "train": [[("Köln", 14)], [("word39", LONG.index("word39"))], [(LONG, 0)], []],
    "test": [[("word39", LONG.index("word39")), ("39", LONG.index("39"))], [("Bo", 0)], []],
}
SMALL = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
MODELS = [f"Qkv{family}ForQuestionAnswering" for family in ("Encoder", "Decoder", "EncoderDecoder")]
COLUMNS = ("input_ids", "attention_mask", "start_positions", "end_positions")
each_model = pytest.mark.parametrize("architecture", MODELS)


def task_of(
    architecture: str = "QkvEncoderForQuestionAnswering", length: int = 64, asked: Any = ASKED, **text: Any
) -> QuestionAnswering:
    """A task of few questions, some about a text of several windows."""
    text = {"tokenizer": "bpe", "vocab_size": 300, "length": length, **text}
    data = AnsweredQuestions("c", "t", "s", TEXTS, pairs=asked, labels=ANSWERS)
    return QuestionAnswering(recipe_of(architecture=architecture, text=text, model=SMALL), data)


@each_model
@pytest.mark.parametrize(("tokenizer", "length"), [("bpe", 64), ("characters", 64), ("wordpiece", 32)])
def test_targets_are_the_tokens_of_the_answer(architecture: str, tokenizer: str, length: int) -> None:
    task = task_of(architecture, length, tokenizer=tokenizer)
    batch = task.collate(task.train.__getitems__(range(len(task.train))), None)
    assert model_inputs(batch).keys() == {*COLUMNS}
    assert batch["input_ids"].shape[1] <= length and task.count(batch) == len(batch["_row"])
    said = []
    for ids, real, start, end in zip(*(batch[name] for name in COLUMNS), strict=True):
        words = ids[start : end + 1]
        alone = len(words) == 1 and int(words[0]) in (task.processor.bos_token_id, task.processor.eos_token_id)
        assert not alone or int(start) == (int(real.sum()) - 1 if "QkvDecoder" in architecture else 0)
        said.append("" if alone else task.processor.decode(words).strip().replace(" ##", "").replace("##", ""))
    said = [word.lower().replace("ö", "o") for word in said]  # WordPiece drops accents
    assert {*said} == {"koln", "word39", ""} and said[0] == "koln" and said[-1] == ""
    # No window holds all of the long answer, so none of them is learned from.
    assert sum(task.data.read.left_out.values()) == 1


def test_windows_overlap_and_cover_the_context() -> None:
    task = task_of()
    columns = windows_of(task.tokenizer, ["Why?", "w " * 40], [LONG, LONG], 64)
    assert task.truncated["texts"] == {"train": 0, "test": 0}
    for number in (0, 1):
        own = [row for row, of in enumerate(columns["_question"].tolist()) if of == number]
        spans = [(columns["_begins"][row], columns["_ends"][row]) for row in own]
        places = [[(int(b), int(e)) for b, e in zip(*span, strict=True) if b >= 0] for span in spans]
        assert len(own) > 1 and all(len(one) <= 64 for one in columns["input_ids"])
        for one, other in itertools.pairwise(places):
            assert len({*one} & {*other}) == 64 // 4
        seen = {place for window in places for begin, end in window for place in range(begin, end)}
        assert seen == set(range(len(LONG)))


@pytest.mark.parametrize(("words", "cut"), [(28, 0), (29, 0), (30, 1)])
def test_questions_that_are_cut_are_counted(words: int, cut: int) -> None:
    asked = {"train": ["w " * words, *ASKED["train"][1:]], "test": ["w " * 30, "Who?", "Why?"]}
    task = task_of(asked=asked, tokenizer="words")
    assert task.truncated["texts"] == {"train": cut, "test": 1}
    question = task.collate([{"_row": 0}], None)["_begins"][0].eq(-100).sum() - 3
    assert int(question) == min(words, 29) == task.truncated["length"] - (words < 29)


@pytest.mark.parametrize("tokenizer", ["bpe", "wordpiece"])
@pytest.mark.parametrize("answer", ["Rene\u0301", "\u200bBo\u200b", "one\r\ntwo", "½ °C ﬁne", "東京は日本"])
def test_answers_are_learned_in_any_letters(answer: str, tokenizer: str) -> None:
    for context in (f"{answer} is it", f"It is {answer}", f"{LONG} is {answer} and {LONG}"):
        texts, own = {"train": [context]}, {"train": [[(answer, context.index(answer))]]}
        data = AnsweredQuestions("c", "t", "s", texts, pairs={"train": ["What?"]}, labels=own)
        text = {"tokenizer": tokenizer, "vocab_size": 400, "length": 128}
        task = QuestionAnswering(recipe_of(architecture=MODELS[0], text=text, model=SMALL), data)
        batch = task.collate([{"_row": 0}], None)
        held = [row for row, place in enumerate(batch["start_positions"]) if place != batch["_null"][row]]
        assert held and all(
            context[
                batch["_begins"][row][batch["start_positions"][row]] : batch["_ends"][row][batch["end_positions"][row]]
            ]
            .strip("\u0301\u200b ")
            .startswith(answer.strip("\u0301\u200b"))
            for row in held
        )


def test_answers_longer_than_windows_share_are_told() -> None:
    context = "前" * 13 + "東京は日本の首都です" + "後" * 200  # three tokens a letter
    labels = {"train": [[("東京は日本の首都です", 13)], []]}
    data = AnsweredQuestions("c", "t", "s", {"train": [context, "a"]}, pairs={"train": ["?", "?"]}, labels=labels)
    text = {"tokenizer": "bytes", "length": 64}
    task = QuestionAnswering(recipe_of(architecture=MODELS[0], text=text, model=SMALL), data)
    assert data.read.left_out == {"questions whose answer no window holds": 1} and len(task.train) == 1


def test_types_tell_the_question_from_its_context() -> None:
    data, recipe = (
        AnsweredQuestions("c", "t", "s", TEXTS, pairs=ASKED, labels=ANSWERS),
        recipe_of(
            architecture=MODELS[0], text={"tokenizer": "words", "length": 64}, model=SMALL | {"type_vocab_size": 2}
        ),
    )
    task = QuestionAnswering(recipe, data)
    batch = task.collate(task.train.__getitems__([0]), None)
    kinds, begins = batch["token_type_ids"][0], batch["_begins"][0]
    assert (
        kinds[begins >= 0].all() and kinds.tolist() == sorted(kinds.tolist()) and kinds.sum() == (begins >= 0).sum() + 1
    )
    assert build(recipe, task)(**model_inputs(batch)).loss.isfinite()
    assert "token_type_ids" not in task_of().collate([{"_row": 0}], None)


def slow_best(starts: list, ends: list, begins: list, none: list) -> tuple[int, int, int, float]:
    """The window and the tokens of the span with the greatest sum of scores, and its share; window -1 for no answer."""
    spans = {(-1, 0, 0): min(s[place] + e[place] for s, e, place in zip(starts, ends, none, strict=True))}
    for window, inside in enumerate(begins):
        for first, last in itertools.combinations_with_replacement(range(len(inside)), 2):
            if inside[first] >= 0 and inside[last] >= 0:
                spans[window, first, last] = starts[window][first] + ends[window][last]
    best = max(spans, key=spans.__getitem__)
    return *best, math.exp(spans[best]) / sum(map(math.exp, spans.values()))


@pytest.mark.parametrize("seed", range(6))
def test_the_best_span_is_that_of_all_windows(seed: int) -> None:
    task = task_of()
    batch = task.collate(task.splits["test"].__getitems__([0, 1, 2]), None)
    generator = torch.Generator().manual_seed(seed)
    shape = batch["input_ids"].shape
    scores = [
        torch.randn(shape, generator=generator) * 2 + 2 * (seed > 3) * (torch.arange(shape[1]) == 0) for _ in "se"
    ]
    outputs = SimpleNamespace(start_logits=scores[0], end_logits=scores[1])
    contexts = [LONG, "Bo met Ada.", LONG]
    found = best_spans(outputs, batch, contexts)
    for number, (text, begin, share) in enumerate(found):
        own = batch["_question"] == number
        columns = [each[own].tolist() for each in (*scores, batch["_begins"], batch["_null"])]
        window, first, last, expected = slow_best(*columns)
        places = (columns[2][window][first], batch["_ends"][own].tolist()[window][last]) if window >= 0 else (0, 0)
        own_text = contexts[number][slice(*places)]
        start = places[0] + len(own_text) - len(own_text.lstrip()) if own_text else None
        assert (text, begin) == (own_text.strip(), start) and share == pytest.approx(expected, rel=1e-4)
    answers = task.answer(None, outputs, batch)
    assert [said for said, _ in answers] == [text for text, *_ in found]
    assert [right for _, right in answers] == [["word39", "39"], ["Bo"], []]


@each_model
def test_perfect_scores_are_perfect(architecture: str) -> None:
    task = task_of(architecture)
    batch = task.collate(task.splits["test"].__getitems__([0, 1, 2]), None)
    exact = [
        torch.nn.functional.one_hot(batch[f"{side}_positions"], batch["input_ids"].shape[1]) * 20.0
        for side in ("start", "end")
    ]
    answers = task.answer(None, SimpleNamespace(start_logits=exact[0], end_logits=exact[1]), batch)
    metrics = task.measure({"loss": 0.0, "targets": 1.0}, answers)
    assert metrics["exact_match"] == metrics["f1"] == 1
    assert [task.shown(answer)["correct"] for answer in answers] == [True] * 3


@each_model
def test_models_learn_them(architecture: str) -> None:
    task = task_of(architecture)
    model = build(recipe_of(architecture=architecture, model=SMALL), task).eval()
    batch = task.collate(task.train.__getitems__([0, 1]), None)
    with torch.no_grad():
        outputs = model(**model_inputs(batch))
    rows, sides = torch.arange(len(batch["_row"])), ("start", "end")
    losses = []
    for side in sides:
        scores = outputs[f"{side}_logits"].masked_fill(batch["attention_mask"] == 0, -torch.inf).log_softmax(-1)
        losses.append(-scores[rows, batch[f"{side}_positions"]].mean())
    assert outputs.loss.item() == pytest.approx(float(sum(losses)) / 2, rel=1e-5)
    assert task.sample() == {
        "prompt": LONG[: LONG.rindex(" ", 0, 300)] if len(LONG) > 300 else LONG,
        "pair": "What is last?",
    }


def test_lengths_without_room_are_refused() -> None:
    with raises_sentence("text.length=6", "32"):
        task_of(length=6)


def test_a_decoder_says_no_answer_where_it_has_read_all() -> None:
    task = task_of("QkvDecoderForQuestionAnswering")
    batch = task.collate(task.splits["test"].__getitems__([0, 1, 2]), None)
    assert batch["_null"].tolist() == (batch["attention_mask"].sum(1) - 1).tolist()
    assert (batch["input_ids"].gather(1, batch["_null"][:, None]) == task.processor.eos_token_id).all()


# SQuAD's metric --------------------------------------------------------------------------------------------------------


def official(prediction: str, references: list[str]) -> tuple[float, float]:
    """Exact match and F1 as the script of SQuAD 2.0 writes them."""

    def normalize(text: str) -> str:
        text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    def f1(one: str, other: str) -> float:
        gold, said = normalize(one).split(), normalize(other).split()
        if not gold or not said:
            return float(gold == said)
        same = sum((Counter(gold) & Counter(said)).values())
        precision, recall = same / len(said), same / len(gold)
        return 2 * precision * recall / (precision + recall) if same else 0.0

    known = [text for text in references if normalize(text)] or [""]
    return max(float(normalize(one) == normalize(prediction)) for one in known), max(
        f1(one, prediction) for one in known
    )


SAID = ["The Köln, of 1999!", "", "", "a dog", "x y", "the"]
KNOWN = [["köln of 1999"], [], ["Bo"], ["the red dog", "cats"], [], ["an"]]


def test_scores_are_those_of_the_official_script() -> None:
    both = [official(*pair) for pair in zip(SAID, KNOWN, strict=True)]
    expected = {"exact_match": sum(exact for exact, _ in both) / 6, "f1": sum(f1 for _, f1 in both) / 6}
    assert measure(["squad"], SAID, KNOWN) == pytest.approx(expected)
    assert load("squad").compute(predictions=SAID, references=KNOWN) == pytest.approx(expected)
    assert measure(["squad"], SAID[:1], KNOWN[:1]) == {"exact_match": 1, "f1": 1}
