"""Read dialogues: lists of messages with role and content, or ShareGPT's with from and value, and their tools."""

import json
from typing import Any

from qkv.scripts.data.columns import KNOWN
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.own_tables import checked_tables, read_tables
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.splits.division import divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
from qkv.scripts.recipes.schema import Recipe

TOOLS = "tools"  # the column of the functions that an assistant may call, as JSON schemas
ASSISTANT = "assistant"
ROLES = ("system", "developer", "user", ASSISTANT, "tool")
SPEAKERS: dict[str, str] = KNOWN["speakers"]
Dialogue = dict[str, Any]


class Dialogues(Corpus):
    """A corpus whose texts are dialogues: `messages`, each with its role and content, and `tools`, None without any."""


def read_dialogues(recipe: Recipe) -> Dialogues:
    """Read the dialogues of the column `text.messages`, in splits; ValueError where the column is missing."""
    column, read = str(recipe.text.messages), ReadReport()
    tables = read_tables(recipe, [column], read, optional=[TOOLS])
    tables, facts = checked_tables(tables, recipe, {(column, TOOLS): learned_dialogue}, read)
    found = {name: [learned_dialogue(row[column], row.get(TOOLS)) for row in table] for name, table in tables.items()}
    sketches = text_sketches({name: list(map(text_of, own)) for name, own in found.items()})
    division = divide_rows(sketches, recipe, tables)
    return Dialogues(**facts, texts=division.of_lists(found), report=division.report)


def learned_dialogue(messages: Any, tools: Any = None) -> Dialogue:
    """Return a dialogue; InvalidRecord also where the assistant, whose turns are learned, says nothing."""
    dialogue = check_dialogue(messages, tools)
    if all(message["role"] != ASSISTANT for message in dialogue["messages"]):
        raise InvalidRecord(f"no message of the {ASSISTANT}, of which one or more are learned")
    return dialogue


def check_dialogue(messages: Any, tools: Any = None) -> Dialogue:
    """Return a dialogue of messages and tools, each a list or its JSON; InvalidRecord names the wrong message."""
    said, tools = from_json(messages), from_json(tools) or None
    if not isinstance(said, list) or not said:
        raise InvalidRecord("missing" if not said else f"{type(said).__name__}, expected a list of messages")
    if not isinstance(tools, list | None) or not all(isinstance(tool, dict) for tool in tools or ()):
        raise InvalidRecord(f"{TOOLS} are {json.dumps(tools)[:60]}, expected a list of JSON schemas")
    return {"messages": [check_message(each, place) for place, each in enumerate(said, start=1)], TOOLS: tools}


def from_json(value: Any) -> Any:
    """Return a value or that of its JSON, without the empty fields that a table gives to objects that lack them."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    try:
        return json.loads(text or "null", object_hook=lambda own: {k: v for k, v in own.items() if v is not None})
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {getattr(error, 'msg', error)}") from None


def check_message(message: Any, place: int) -> Dialogue:
    """Return a message with its role, content and other fields, such as the tools that it calls."""
    if not isinstance(message, dict):
        raise InvalidRecord(f"message {place} is a {type(message).__name__}, expected role and content")
    named = message.get("role", message.get("from"))
    role = SPEAKERS.get(str(named), named)
    if role not in ROLES:
        raise InvalidRecord(f"message {place} has the role {named!r}, expected one of {', '.join((*ROLES, *SPEAKERS))}")
    content = message.get("content", message.get("value", ""))
    if not isinstance(content, str):
        raise InvalidRecord(f"message {place} of the {role} is a {type(content).__name__}, expected a text")
    if not content.strip() and role in ("user", ASSISTANT) and not message.get("tool_calls"):
        raise InvalidRecord(f"message {place} of the {role} is empty")
    others = {key: value for key, value in message.items() if key not in ("role", "from", "content", "value")}
    return {"role": role, "content": content, **others}


def text_of(dialogue: Dialogue) -> str:
    """Return the roles and contents of a dialogue."""
    return "\n".join(f"{each['role']}\n{each['content']}" for each in dialogue["messages"])


def last_question(dialogue: Dialogue) -> Dialogue:
    """Return a dialogue up to the last message that is not the assistant's; InvalidRecord where there is none."""
    ends = [place for place, each in enumerate(dialogue["messages"], start=1) if each["role"] in ("user", "tool")]
    if not ends:
        raise InvalidRecord("no message of a user to answer")
    return {**dialogue, "messages": dialogue["messages"][: ends[-1]]}
