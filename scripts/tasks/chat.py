"""Dialogue: a decoder learns the turns of the assistant, as the chat template of its tokenizer writes them.

Control words in contents are data, read letter by letter, where `apply_chat_template` would take them to end a turn.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers.utils.chat_template_utils import mark_control_tokens, render_jinja_template

from qkv.scripts.common.files import table
from qkv.scripts.data.collate import pack_whole
from qkv.scripts.data.dialogues import ASSISTANT, SYSTEM, TOOLS, Dialogue, Dialogues, text_of
from qkv.scripts.data.examples import Columns, stack
from qkv.scripts.data.tokenization import tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.causal_lm import ResponseLM, Tokens
from qkv.scripts.tasks.task import first

TEMPLATE, USAGE = map(str.strip, table(__file__).values())
# The marks that transformers puts around control words in contents, and a control word between them.
OPEN, CLOSE = mark_control_tokens("x", re.compile("x")).split("x")
MARKED = re.compile(f"({OPEN}[^{OPEN}{CLOSE}]*{CLOSE}|[{OPEN}{CLOSE}])")
Learned = tuple[Tokens, NDArray[np.bool_]]  # tokens, and which of them are learned


class Chat(ResponseLM):
    """Predict the assistant's turns in dialogues, with the token that ends each; metrics are of these.

    Rows of the training hold whole dialogues, which do not attend to each other, and evaluated rows one each. A
    dialogue longer than `text.length` loses its first exchanges.
    """

    def __init__(self, recipe: Recipe, corpus: Dialogues) -> None:
        super().__init__(recipe, corpus)
        self.usage = USAGE.format(question=json.dumps(recipe.prompt or self.prompt(), ensure_ascii=False))

    def make_tokenizer(self, recipe: Recipe) -> Any:
        """Return the tokenizer, with a chat template where it has none."""
        tokenizer: Any = tokenizer_for(recipe, list(map(text_of, self.corpus.texts.get("train", []))), needs=self.needs)
        tokenizer.chat_template = tokenizer.chat_template or TEMPLATE
        tokenizer.split_special_tokens = False  # by whose tokens the template separates turns
        return tokenizer

    def rows(self, split: str) -> Columns:
        """Return dialogues as rows: of the training packed, of evaluated splits one by one."""
        fitted = [fitted_tokens(self.tokenizer, dialogue, self.length) for dialogue in self.corpus.texts[split]]
        kept = [(row, left) for row, left in fitted if len(row[0]) <= self.length and row[1][1:].any()]
        beyond, read = f"beyond text.length={self.length} in the {split} split:", self.corpus.read
        read.left_out += {f"dialogues whose last exchange is {beyond}": len(fitted) - len(kept)}
        read.left_out += {f"first exchanges of dialogues {beyond}": sum(left > 0 for _, left in kept)}
        if not kept:
            longest = max((len(ids) for (ids, _), _ in fitted), default=self.length)
            raise ValueError(f"the last exchange of all dialogues is {beyond} set text.length={longest}")
        rows = [row for row, _ in kept]
        return Columns(stack(pack_whole(rows, self.length))) if split == "train" else self.respond(rows)

    def prompt(self) -> str:
        dialogue = first(self.corpus.texts) or {"messages": []}
        return next((each["content"] for each in dialogue["messages"] if each["role"] == "user"), "")


def fitted_tokens(tokenizer: Any, dialogue: Dialogue, length: int, *, asks: bool = False) -> tuple[Learned, int]:
    """Return the tokens of a dialogue as `chat_tokens` does, and the number of its first messages that are left out.

    As few exchanges are left out as make at most `length` tokens of it. The last one stays, however long it is, and so
    does what the system says before the first.
    """
    messages = dialogue["messages"]
    head = [*takewhile(lambda message: message["role"] in SYSTEM, messages)]
    starts = [place for place, own in enumerate(messages) if place == len(head) or own["role"] == "user"]
    parts = [{**dialogue, "messages": head + messages[start:]} for start in starts]
    first = bisect_left(parts, -length, key=lambda part: -len(chat_tokens(tokenizer, part, asks=asks)[0]))
    part = parts[min(first, len(parts) - 1)]
    return chat_tokens(tokenizer, part, asks=asks), len(messages) - len(part["messages"])


def chat_tokens(tokenizer: Any, dialogue: Dialogue, *, asks: bool = False) -> Learned:
    """Return the tokens of a dialogue, and which are learned: the assistant's turns, the token that ends them too.

    With `asks` they end where the assistant is to answer.
    """
    words = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    control = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)")
    dialogue = mark_control_tokens(dialogue, control)
    text, places = written(tokenizer, dialogue, asks=asks)
    is_said = np.zeros(len(text) + 1, dtype=bool)
    if places is None:
        places = [] if asks else list(answers_in(tokenizer, dialogue, text))
    for start, end in places:
        is_said[start:end] = True
    ids, learned, at = list[int](), list[bool](), 0
    for piece in MARKED.split(text):
        options = {"add_special_tokens": False, "split_special_tokens": piece.startswith(OPEN), "verbose": False}
        made = tokenizer(piece.strip(OPEN + CLOSE), return_offsets_mapping=True, **options)
        ids += made["input_ids"]
        learned += [is_said[at + first] for first, _ in made["offset_mapping"]]
        at += len(piece)
    return np.asarray(ids, dtype=np.int64), np.asarray(learned, dtype=bool)


def written(tokenizer: Any, dialogue: Dialogue, *, asks: bool) -> tuple[str, list[tuple[int, int]] | None]:
    """Return a dialogue as the template writes it, and the places of the assistant's turns, None where it marks none.

    ValueError where the template refuses it.
    """
    template = tokenizer.get_chat_template(tools=dialogue[TOOLS])
    is_marked = re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
    try:
        made: Any = render_jinja_template(
            [dialogue["messages"]], dialogue[TOOLS], chat_template=template, add_generation_prompt=asks,
            return_assistant_tokens_mask=is_marked, **tokenizer.special_tokens_map,
        )  # fmt: skip
    except Exception as error:  # of Jinja, or any that the template raises
        said = json.dumps(dialogue["messages"])[:80]
        raise ValueError(f"the chat template of the tokenizer refuses the dialogue {said}: {error}") from error
    return made[0][0], next(iter(made[1]), None)


def answers_in(tokenizer: Any, dialogue: Dialogue, text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the assistant's turns: what the template writes more with each of them than without."""
    messages = dialogue["messages"]
    for place in (place for place, message in enumerate(messages) if message["role"] == ASSISTANT):
        earlier, turn = ({**dialogue, "messages": messages[:end]} for end in (place, place + 1))
        before = written(tokenizer, earlier, asks=True)[0] if place else ""
        after = written(tokenizer, turn, asks=False)[0].rstrip()
        if not after.startswith(before) or not text.startswith(after):
            raise ValueError(
                "the chat template of the tokenizer writes a turn in another way when others follow, and does not mark "
                "the assistant's; put {% generation %} and {% endgeneration %} around them in the template"
            )
        yield len(before), len(after)
