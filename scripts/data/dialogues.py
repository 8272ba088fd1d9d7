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
from qkv.scripts.data.text_columns import as_object
from qkv.scripts.recipes.schema import Recipe

SPEAKERS: dict[str, str] = KNOWN["speakers"]
TOOLS = "tools"  # the column of the functions that an assistant may call, as JSON schemas
ASSISTANT = "assistant"
SYSTEM = ("system", "developer")
ROLES = (*SYSTEM, "user", ASSISTANT, "tool")
Dialogue = dict[str, Any]


class Dialogues(Corpus):
    """A corpus whose texts are dialogues: `messages`, each with its role and content, and `tools`, None without any."""


def read_dialogues(recipe: Recipe) -> Dialogues:
    """Read the dialogues of the column `text.messages`, in splits, and leave out those in which no assistant speaks.

    ValueError where the column is missing, or no row is left.
    """
    column, read, found = str(recipe.text.messages), ReadReport(), dict[str, list[Dialogue]]()
    tables = read_tables(recipe, [column], read, optional=[TOOLS])
    tables, facts = checked_tables(tables, recipe, {(column, TOOLS): check_dialogue}, read)
    for name, rows in tables.items():
        dialogues = [check_dialogue(row[column], row.get(TOOLS)) for row in rows]
        speakers = [{message["role"] for message in own["messages"]} for own in dialogues]
        learned = [number for number, roles in enumerate(speakers) if ASSISTANT in roles]
        if not learned:
            raise ValueError(
                f"{recipe.data.source}: no {ASSISTANT} says what is learned in {column!r} of the {name} split"
            )
        tables[name], found[name] = rows.select(learned), [dialogues[number] for number in learned]
        read.left_out += {f"rows of the {name} split in which no {ASSISTANT} speaks:": len(dialogues) - len(learned)}
    whole = {name: list(map(text_of, own)) for name, own in found.items()}
    division = divide_rows(text_sketches(whole), recipe, tables)
    return Dialogues(**facts, texts=division.of_lists(found), report=division.report)


def check_dialogue(messages: Any, tools: Any = None) -> Dialogue:
    """Return a dialogue of messages and tools, each a list or its JSON; InvalidRecord names the wrong message."""
    said, tools = from_json(messages), from_json(tools) or None
    if not isinstance(said, list) or not said:
        raise InvalidRecord("missing" if not said else f"{type(said).__name__}, expected messages as a list or JSON")
    if not isinstance(tools, list | None) or not all(isinstance(tool, dict) for tool in tools or ()):
        raise InvalidRecord(f"{TOOLS} are {json.dumps(tools)[:60]}, expected a list of JSON schemas")
    return {"messages": [check_message(each, place) for place, each in enumerate(said, start=1)], TOOLS: tools}


def from_json(value: Any) -> Any:
    """Return a value or that of its JSON, without the empty fields that a table gives to objects that lack them."""
    text = json.dumps(as_object(value), default=str)
    return json.loads(text, object_hook=lambda own: {key: each for key, each in own.items() if each is not None})


def check_message(message: Any, place: int) -> Dialogue:
    """Return a message with its role, content and other fields, such as the tools that it calls."""
    if not isinstance(message, dict):
        raise InvalidRecord(f"message {place} is a {type(message).__name__}, expected role and content")
    named = message.pop("role", message.pop("from", None))
    role = SPEAKERS.get(str(named), named)
    if role not in ROLES:
        raise InvalidRecord(f"message {place} has the role {named!r}, expected one of {', '.join((*ROLES, *SPEAKERS))}")
    content = message.pop("content", message.pop("value", ""))
    if not isinstance(content, str):
        raise InvalidRecord(f"message {place} of the {role} is a {type(content).__name__}, expected a text")
    if not content.strip() and role in ("user", ASSISTANT) and not message.get("tool_calls"):
        raise InvalidRecord(f"message {place} of the {role} is empty")
    return {"role": role, "content": content, **message}


def text_of(dialogue: Dialogue) -> str:
    """Return the roles and contents of a dialogue."""
    return "\n".join(f"{each['role']}\n{each['content']}" for each in dialogue["messages"])
