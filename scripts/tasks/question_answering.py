"""Question answering: find the answer to a question in a context, over windows that overlap, or that it has none.

Source: Devlin et al. 2019, BERT, §4.2 and §4.3, https://arxiv.org/abs/1810.04805
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from tokenizers.processors import TemplateProcessing

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.questions import AnsweredQuestions
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, END, config_fields, count_truncated, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.squad import question_counts
from qkv.scripts.tasks.task import Answer, Task

OVERLAP = 4  # two windows share this part of their length
TEMPLATE = f"{ENCODER_TEMPLATE} $B:1 {END}:1"  # the types of tokens, for models that have them


class QuestionAnswering(Task):
    """Learn the first and the last token of the answer to a question, both one special token where there is none.

    Contexts are read in windows of `text.length` tokens with the question. In training a window has no answer unless it
    holds all of it; of evaluated questions the best answer of all windows counts.
    """

    kind = "question-answering"

    def __init__(self, recipe: Recipe, data: AnsweredQuestions) -> None:
        self.length = recipe.text.length
        texts = [*data.texts.get("train", []), *data.pairs.get("train", [])]
        self.tokenizer: Any = tokenizer_for(recipe, texts, ENCODER_TEMPLATE, pair=TEMPLATE)
        if recipe.model.config.get("type_vocab_size", 0) > 1:
            names = dict.fromkeys((*self.tokenizer.model_input_names, "token_type_ids"))
            self.tokenizer.model_input_names = list(names)
        if recipe.model.architecture == "QkvDecoderForQuestionAnswering":
            end_with_null(self.tokenizer)
        self.rows: list[tuple[str, str, list[tuple[str, int]]]] = []  # a context, a question and its answers
        splits, lengths = {}, {}
        for name, contexts in data.texts.items():
            asked = self.tokenizer(data.pairs[name], add_special_tokens=False, verbose=False)
            lengths[name] = list(map(len, asked["input_ids"]))
            numbers = range(len(self.rows), len(self.rows) + len(contexts))
            self.rows += zip(contexts, data.pairs[name], data.labels[name], strict=True)
            lost = self.lost(numbers) if name == "train" else set()
            data.read.left_out.update(["questions whose answer no window holds"] * len(lost))
            kept = [number for number in numbers if number not in lost]
            hashes = [list(blake2b(repr(self.rows[number]).encode(), digest_size=8).digest()) for number in kept]
            columns = {"_row": torch.tensor(kept), "_hash": torch.tensor(hashes)}  # for the fingerprint
            splits[name] = Columns(columns, [len(self.rows[number][0]) for number in kept])
        cut = count_truncated(lengths, most_of_question(self.tokenizer, self.length), "")
        ids = {"decoder_start_token_id": self.tokenizer.pad_token_id, "max_position_embeddings": self.length}
        config = config_fields(self.tokenizer, **ids)
        super().__init__(data, splits, self.tokenizer, config, metrics=("squad",), truncated=cut)

    def lost(self, numbers: Sequence[int]) -> set[int]:
        """Return the questions whose answer no window holds, of those with more bytes than windows share tokens."""
        most = self.length // OVERLAP
        long = [number for number in numbers if any(len(text.encode()) > most for text, _ in self.rows[number][2])]
        return {number for number in long if self.count(self.collate([{"_row": number}], None)) == 0}

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        contexts, questions, answers = zip(*[self.rows[int(record["_row"])] for record in records], strict=True)
        batch = windows_of(self.tokenizer, questions, contexts, self.length)
        targets = places_of(batch, answers)
        batch["_row"] = torch.tensor([int(record["_row"]) for record in records])[batch["_question"]]
        return {**batch, "start_positions": targets[:, 0], "end_positions": targets[:, 1]}

    def count(self, batch: Batch) -> int:
        return int((batch["start_positions"] != IGNORED).sum())

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the answer to each question, empty for none, and all answers that are right."""
        rows = [self.rows[number] for number in batch["_row"].unique_consecutive().tolist()]
        found = best_spans(outputs, batch, [context for context, *_ in rows])
        return [(text, [right for right, _ in row[2]]) for row, (text, *_) in zip(rows, found, strict=True)]

    def shown(self, answer: Answer) -> Record:
        return super().shown(answer) | {"correct": bool(question_counts(*answer)[1])}


def end_with_null(tokenizer: Any) -> None:
    """Let two texts end with the token for no answer: of a decoder the last token alone has read all of them."""
    end = tokenizer.eos_token or tokenizer.sep_token
    special = [(end, tokenizer.convert_tokens_to_ids(end))]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("$A", f"$A {end} $B {end}", special_tokens=special)


def most_of_question(tokenizer: Any, length: int) -> int:
    """Return the tokens that are kept of a question, about half a window; ValueError for a length without room."""
    most = length // 2 - tokenizer.num_special_tokens_to_add(pair=True)
    if most < 1:
        raise ValueError(f"text.length={length} has no room for a question and its context; take 32 or more")
    return most


def windows_of(tokenizer: Any, questions: Sequence[str], contexts: Sequence[str], length: int) -> Batch:
    """Return windows of at most `length` tokens: a question, cut to half of it, and a part of its context.

    `_question` is the number of the question, `_null` the place of the token for no answer, that of the class or else
    the last; `_begins` and `_ends` are the letters that each token of the context stands for, -100 at others.
    """
    most = most_of_question(tokenizer, length)
    options: dict[str, Any] = {"return_offsets_mapping": True, "verbose": False}
    alone = tokenizer(list(questions), add_special_tokens=False, **options)["offset_mapping"]
    kept = [text[: own[most - 1][1]] if len(own) > most else text for text, own in zip(questions, alone, strict=True)]
    options |= {"truncation": "only_second", "max_length": length, "stride": length // OVERLAP}
    options |= {"padding": True, "padding_side": "right", "return_tensors": "pt"}
    made = tokenizer(kept, list(contexts), return_overflowing_tokens=True, **options)
    numbers, letters = made.pop("overflow_to_sample_mapping"), made.pop("offset_mapping")
    is_context = torch.tensor([[side == 1 for side in made.sequence_ids(row)] for row in range(len(numbers))])
    begins, ends = letters.masked_fill(~is_context[..., None], IGNORED).unbind(-1)
    is_class = made["input_ids"] == (-1 if tokenizer.cls_token_id is None else tokenizer.cls_token_id)
    nulls = torch.where(is_class.any(1), is_class.int().argmax(1), made["attention_mask"].sum(1) - 1)
    return {**made, "_question": numbers, "_null": nulls, "_begins": begins, "_ends": ends}


def places_of(windows: Batch, answers: Sequence[Sequence[tuple[str, int]]]) -> torch.Tensor:
    """Return the first and the last token of the first answer in each window: (W, 2).

    `_null` where a window does not hold all of it, -100 where none of the windows of its question does.
    """
    names, held = ("_question", "_null", "_begins", "_ends"), set[int]()
    numbers, nulls, begins, ends = (windows[name].numpy() for name in names)
    places = np.stack((nulls, nulls), 1)
    for window, number in enumerate(numbers.tolist()):
        text, first = answers[number][0] if answers[number] else ("", 0)
        read = np.flatnonzero(begins[window] != IGNORED)
        own = read[(ends[window][read] > first) & (begins[window][read] < first + len(text))]
        # At the ends of the context a tokenizer may drop letters of the answer: accents, marks without a width.
        starts = number not in numbers[:window] or begins[window][read[0]] <= first
        stops = number not in numbers[window + 1 :] or ends[window][read[-1]] >= first + len(text)
        if len(own) and starts and stops:
            places[window] = own[0], own[-1]
            held.add(number)
    lost = [number for number, own in enumerate(answers) if own and number not in held]
    places[np.isin(numbers, lost)] = IGNORED
    return torch.from_numpy(places)


def best_spans(outputs: Any, batch: Batch, contexts: Sequence[str]) -> list[tuple[str, int | None, float]]:
    """Return the answer to each question, empty for none, the place of its first letter, and its probability.

    A span scores the sum of its first and its last token; no answer the least sum of `_null` of the windows. The
    probability is among all spans of all windows and no answer.
    """
    scores = [each.float().cpu() for each in (outputs.start_logits, outputs.end_logits)]
    numbers, nulls, begins, ends = (batch[name].cpu() for name in ("_question", "_null", "_begins", "_ends"))
    rows, found = torch.arange(len(numbers)), []
    none = scores[0][rows, nulls] + scores[1][rows, nulls]
    firsts, lasts = (each.masked_fill(begins == IGNORED, -torch.inf) for each in scores)
    for number, context in enumerate(contexts):
        own = numbers == number
        spans = firsts[own][:, :, None] + lasts[own][:, None]
        spans = spans.masked_fill(torch.ones_like(spans[0], dtype=torch.bool).tril(-1), -torch.inf)
        every = torch.cat((spans.flatten(), none[own].min()[None]))
        best, begin, end = int(every.argmax()), 0, 0
        if best < spans.numel():
            window, first, last = map(int, np.unravel_index(best, spans.shape))
            begin, end = int(begins[own][window, first]), int(ends[own][window, last])
        text = context[begin:end]
        place = begin + len(text) - len(text.lstrip()) if text else None
        found.append((text.strip(), place, float(every.softmax(0)[best])))
    return found
