"""Dialogues: read in both forms, and refused with the place and the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.dialogues import Dialogues, check_dialogue
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.tasks import registry

ASKED, TOLD = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
SHAREGPT = [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]
TOOL = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("value", [[ASKED, TOLD], json.dumps([ASKED, TOLD]), SHAREGPT, json.dumps(SHAREGPT)])
def test_both_forms_are_one_dialogue(value: Any) -> None:
    assert check_dialogue(value) == {"messages": [ASKED, TOLD], "tools": None}


def test_calls_and_empty_fields_of_tables() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
    read = check_dialogue([{**ASKED, "name": None}, calls], json.dumps([TOOL]))
    assert read["messages"] == [ASKED, {**calls, "content": ""}] and read["tools"] == [TOOL]


@pytest.mark.parametrize(
    ("messages", "tools", "reason"),
    [
        (None, None, "missing"),
        ("[", None, "str, expected messages"),
        ({"role": "user"}, None, "dict"),
        (["hello"], None, "message 1 is a str"),
        ([ASKED, {"role": "narrator", "content": "x"}], None, "message 2 .*'narrator'"),
        ([{"role": "user", "content": 3}], None, "message 1 of the user is a int"),
        ([{"role": "user", "content": [{"type": "image"}]}], None, "message 1 of the user"),
        ([ASKED, {"role": "assistant", "content": " "}], None, "message 2 of the assistant is empty"),
        ([ASKED, TOLD], "[3]", r"tools are \[3\]"),
    ],
)
def test_bad_dialogues_are_refused(messages: Any, tools: Any, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        check_dialogue(messages, tools)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_own_dialogues_are_inferred_and_read(suffix: str, tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"{n}?"}, TOLD], "prompt": str(n), "tools": [TOOL]} for n in range(40)
    ]
    rows[3]["messages"] = [{"role": "user", "content": "alone"}]  # left out, with a line
    rows[4]["messages"] = [{"role": "narrator", "content": "alone"}]  # a bad record
    where = tmp_path / f"chat.{suffix}"
    where.write_text("\n".join(map(json.dumps, rows))) if suffix == "jsonl" else Dataset.from_list(rows).to_parquet(
        where
    )
    recipe, table = infer(str(where), ["text.length=96", "bad_records=0.1"])
    assert table["task"] == "chat" and recipe.text.messages == "messages" and recipe.text.target is None
    task = registry.load(recipe)
    assert isinstance(task.data, Dialogues) and task.data.read.columns == ["messages", "tools"]
    assert task.data.read.unused == ["prompt"] and len(task.data.invalid_records.skipped) == 1
    assert sum(task.data.read.left_out.values()) == 1
    assert sum(len(own) for own in task.data.texts.values()) == 38
    assert task.data.texts["train"][0]["tools"] == [TOOL]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_cells_hold_json_under_the_usual_names_or_any_that_is_typed(suffix: str, tmp_path: Path) -> None:
    for name, words in (("conversations", []), ("talk", ["text.messages=talk"])):
        rows = [
            {"id": n, name: [{"from": "human", "value": f"{n}?"}, {"from": "gpt", "value": "4"}]} for n in range(40)
        ]
        recipe, table = infer(str(write_rows(tmp_path / f"{name}.{suffix}", rows)), words)
        assert table["task"] == "chat" and recipe.text.messages == name
        assert registry.load(recipe).data.texts["train"][0]["messages"][1] == TOLD


def test_a_table_in_which_no_assistant_speaks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text("\n".join([json.dumps({"messages": [ASKED]})] * 9))
    with raises_sentence("chat.jsonl", "'messages'", "assistant"):
        registry.load(infer(str(tmp_path / "chat.jsonl"))[0])


def test_dialogues_are_for_decoders(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text("\n".join([json.dumps({"messages": [ASKED, TOLD]})] * 9))
    recipe, _ = infer(str(tmp_path / "chat.jsonl"), ["architecture=QkvEncoderForMaskedLM"])
    with raises_sentence("'QkvEncoderForMaskedLM'", "ForCausalLM"):
        registry.load(recipe)


def test_prompts_and_responses_stay_texts_and_targets(tmp_path: Path) -> None:
    rows = [json.dumps({"prompt": f"What is {n} and {n}?", "response": f"It is {2 * n} of course"}) for n in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    recipe, _ = infer(str(tmp_path / "pairs.jsonl"))
    assert (recipe.text.column, recipe.text.target, recipe.text.messages) == ("prompt", "response", None)
