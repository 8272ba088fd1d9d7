"""Write dialogues by the chat template of a tokenizer, and tell which of their tokens an assistant says.

Control words in contents are data: they are tokenized letter by letter, where `apply_chat_template` would take them for
the end of a turn.
"""

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.columns import KNOWN
from qkv.scripts.data.dialogues import ASSISTANT, TOOLS, Dialogue

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
# The template of tokenizers without one. As ChatML, it has a line of the role before each content, between tokens that
# every tokenizer trained here has.
TEMPLATE: str = KNOWN["chat_template"].strip()


def written(tokenizer: Any, dialogue: Dialogue, **options: Any) -> str:
    """Return a dialogue as the template writes it; ValueError where the template refuses it."""
    try:
        text: str = tokenizer.apply_chat_template(dialogue["messages"], dialogue[TOOLS], tokenize=False, **options)
    except Exception as error:  # of Jinja, or any that the template raises
        said = json.dumps(dialogue["messages"])[:80]
        raise ValueError(f"the chat template of the tokenizer refuses the dialogue {said}: {error}") from error
    return text


def chat_tokens(tokenizer: Any, dialogue: Dialogue) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the tokens of a dialogue, and which are learned: the assistant's turns, the token that ends them too."""
    plain = blanked(tokenizer, dialogue)
    ids, starts = tokens_of(tokenizer, written(tokenizer, dialogue), written(tokenizer, plain))
    return np.asarray(ids, dtype=np.int64), learned_letters(tokenizer, plain)[starts]


def prompt_tokens(tokenizer: Any, dialogue: Dialogue) -> list[int]:
    """Return the tokens of a dialogue that the assistant is to answer."""
    both = [written(tokenizer, each, add_generation_prompt=True) for each in (dialogue, blanked(tokenizer, dialogue))]
    return tokens_of(tokenizer, *both)[0]


def control_words(tokenizer: Any) -> re.Pattern[str]:
    """Return the pattern of the special tokens of a tokenizer, the longest first."""
    words = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))


def blanked(tokenizer: Any, dialogue: Dialogue) -> Dialogue:
    """Return a dialogue with other letters, as many, in place of the control words in it."""
    text = json.dumps(dialogue, ensure_ascii=False)
    blank = control_words(tokenizer).sub(lambda word: "x" * len(word[0]), text)
    return dialogue if blank == text else dict(json.loads(blank))


def tokens_of(tokenizer: Any, text: str, plain: str) -> tuple[list[int], list[int]]:
    """Return the tokens of a text, and the letter that each begins at; control words that `plain` lacks are data."""
    if len(text) != len(plain):
        raise ValueError(
            "the chat template of the tokenizer changes its control words in contents, so they cannot be told from its "
            "own; leave out the dialogues that hold some"
        )
    ids, starts, at = list[int](), list[int](), 0
    found = (match.span() for match in control_words(tokenizer).finditer(text))
    for first, last in [*(span for span in found if text[slice(*span)] != plain[slice(*span)]), (len(text),) * 2]:
        for start, end, is_data in ((at, first, False), (first, last, True)):
            made = tokenizer(text[start:end], add_special_tokens=False, split_special_tokens=is_data,
                             return_offsets_mapping=True, verbose=False)  # fmt: skip
            ids += made["input_ids"]
            starts += [start + letter for letter, _ in made["offset_mapping"]]
        at = last
    return ids, starts


def learned_letters(tokenizer: Any, dialogue: Dialogue) -> NDArray[np.bool_]:
    """Return which letters of a written dialogue the assistant says.

    Templates mark them by `{% generation %}`; of others a turn is what the template writes more with it than without.
    """
    text, messages = written(tokenizer, dialogue), dialogue["messages"]
    learned = np.zeros(len(text) + 1, dtype=bool)
    if GENERATION.search(tokenizer.get_chat_template(tools=dialogue[TOOLS])):
        made = tokenizer.apply_chat_template(
            messages, dialogue[TOOLS], return_dict=True, return_assistant_tokens_mask=True,
            tokenizer_kwargs={"return_offsets_mapping": True, "split_special_tokens": False, "verbose": False},
        )  # fmt: skip
        for (start, end), is_said in zip(made["offset_mapping"], made["assistant_masks"], strict=True):
            learned[start : max(end, start + 1)] |= bool(is_said)
        return learned
    for place in (place for place, message in enumerate(messages) if message["role"] == ASSISTANT):
        earlier, turn = ({**dialogue, "messages": messages[:end]} for end in (place, place + 1))
        before = written(tokenizer, earlier, add_generation_prompt=True) if place else ""
        after = written(tokenizer, turn).rstrip()
        if not after.startswith(before) or not text.startswith(after):
            raise ValueError(
                "the chat template of the tokenizer writes a turn in another way when others follow, and does not mark "
                "the assistant's; put {% generation %} and {% endgeneration %} around them in the template"
            )
        learned[len(before) : len(after)] = True
    return learned
