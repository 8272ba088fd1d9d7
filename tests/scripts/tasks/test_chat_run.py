"""A run on dialogues: what it predicts, the published folder without qkv, and a chat on the page."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gradio_client import Client
from transformers import AutoModelForCausalLM, AutoTokenizer

import own_runs
import qkv
from qkv.scripts.cli import main
from qkv.scripts.publishing.integrity.loading import clean_environment

Runs = Callable[[str], Path]
ASKED = [{"role": "user", "content": "warm?"}, {"role": "assistant", "content": "no"}, {"role": "user", "content": "ä"}]
PROGRAM = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer

assert "qkv" not in sys.modules
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
inputs = tokenizer.apply_chat_template(json.loads(sys.argv[2]), add_generation_prompt=True, return_tensors="pt",
                                       return_dict=True)
made = model.generate(**inputs, max_new_tokens=5, do_sample=False)
print(json.dumps(tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)))
assert "qkv" not in sys.modules
"""


def greedy(run: Path, messages: list[dict[str, str]], count: int = 5) -> str:
    """What transformers answers."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(run), AutoTokenizer.from_pretrained(run)
    options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    inputs = tokenizer.apply_chat_template(messages, **options)
    with torch.no_grad():
        made = model.generate(**inputs, max_new_tokens=count, do_sample=False)
    return str(tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def predicted(run: Path, given: Path, out: Path) -> list[dict[str, str]]:
    assert main(["predict", str(run), str(given), "max_new_tokens=5", "batch_size=1", "--out", str(out)]) == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_the_last_question_of_each_row_is_answered(
    run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, long = run_of("chats"), own_runs.chat("dull " * 3, "no")
    rows = [ASKED, [*ASKED, {"role": "assistant", "content": "so"}], long[1:3] * 9 + long[:4], long[2:3],
            [{"role": "user", "content": "warm " * 200}]]  # fmt: skip
    table = tmp_path / "asked.jsonl"
    table.write_text("\n".join(json.dumps({"messages": row}) for row in rows))
    found = predicted(run, table, tmp_path / "out.jsonl")
    assert found[0]["prediction"] == found[1]["prediction"] == greedy(run, ASKED)
    assert found[2]["prediction"] and "messages of dialogues" in capsys.readouterr().err
    assert ["error" in row and row["error"] is not None for row in found] == [False, False, False, True, True]
    capsys.readouterr()
    assert main(["generate", str(run), "ä", "max_new_tokens=5"]) == 0
    assert capsys.readouterr().out == greedy(run, ASKED[2:]) + "\n"


def without_qkv(program: str, place: Path, *words: str) -> str:
    """What a program prints in a process that cannot import qkv."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *words], cwd=place, text=True, capture_output=True,
        env=clean_environment(place), timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip("\n")


@pytest.mark.slow  # two processes that import transformers
def test_a_published_folder_chats_without_qkv(run_of: Runs, tmp_path: Path) -> None:
    run, folder = run_of("chats"), qkv.publish(run_of("chats"), tmp_path / "published").folder
    made = without_qkv(PROGRAM, tmp_path / "place", str(folder), json.dumps(ASKED))
    assert json.loads(made) == greedy(run, ASKED)
    card = (folder / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    question = re.search(r'"content": (".*?")}', card)[1]
    program = re.sub(r'model="[^"]+"', f"model={str(folder)!r}", card).replace("max_new_tokens=64", "max_new_tokens=5")
    assert without_qkv(program, tmp_path / "place") == greedy(run, [{"role": "user", "content": json.loads(question)}])


def test_a_page_chats_over_several_turns(run_of: Runs) -> None:
    """As the browser does: the typed text is kept, shown in the dialogue, and answered."""
    run, said, history = run_of("chats"), list[dict[str, str]](), list[Any]()
    page = qkv.demo(str(run))
    try:
        client = Client(page.local_url, verbose=False)
        steps = {step["api_name"]: step["id"] for step in page.config["dependencies"]}
        (shown,) = (part["id"] for part in page.config["components"] if part["type"] == "chatbot")
        kept = next(step["id"] for step in page.config["dependencies"] if step["inputs"] == [shown])
        for question in ("warm?", "so?", "dull"):
            client.predict(question, fn_index=steps["_clear_and_save_textbox"])
            client.predict(history, fn_index=steps["_append_message_to_history"])
            history = client.predict(5, 0, fn_index=steps["_submit_fn"])
            client.predict(history, fn_index=kept)
            said.append({"role": "user", "content": question})
            asked, answer = (turn["content"][0]["text"] for turn in history[-2:])
            assert asked == question and answer.strip() == greedy(run, said).strip()  # of which the page shows less
            said += [{"role": "assistant", "content": answer}] if answer.strip() else []
        assert len(history) == 6 and page.get_api_info()["named_endpoints"] == {}
    finally:
        page.close()
