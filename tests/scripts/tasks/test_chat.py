"""Chat: the assistant's tokens alone are learned, whole dialogues lie in a row, and control words in them are data."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import qkv
from qkv.scripts.data.chat_template import chat_tokens, prompt_tokens
from qkv.scripts.data.dialogues import Dialogues, check_dialogue
from qkv.scripts.tasks.causal_lm import IGNORED
from qkv.scripts.tasks.chat import Chat
from recipes import recipe_of


def dialogue(*contents: str, tools: Any = None) -> dict[str, Any]:
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": each} for place, each in enumerate(contents)]
    return check_dialogue(said, tools)


ALL = [dialogue("hi", "yes"), dialogue("and", "no", "so?", "maybe"), dialogue("long " * 9, "a"), dialogue("b", "c")]
# A template as those of most models: without marks.
PLAIN = (
    "{% for m in messages %}{{ bos_token + m['role'] + '\n' + m['content'] + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token + 'assistant\n' }}{% endif %}"
)


def task(texts: Any = None, length: int = 64, **text: Any) -> Chat:
    own = {"train": ALL, "test": ALL[:2]} if texts is None else texts
    return Chat(recipe_of(text={"tokenizer": "bytes", "length": length, **text}), Dialogues("c", "t", "s", own))


def learned(made: Chat, row: Any) -> str:
    return str(made.tokenizer.decode(row["labels"][row["labels"] != IGNORED]))


def test_the_assistant_alone_is_learned_with_its_end() -> None:
    made = task()
    rows = made.splits["test"].__getitems__([0, 1])
    assert [learned(made, row) for row in rows] == ["yes</s>", "no</s>maybe</s>"]
    ids = rows[0]["input_ids"]
    assert made.tokenizer.decode(ids[ids != made.tokenizer.pad_token_id]) == "<s>user\nhi</s>\n<s>assistant\nyes</s>\n"
    assert made.tokenizer.decode(prompt_tokens(made.tokenizer, dialogue("hi"))) == "<s>user\nhi</s>\n<s>assistant\n"


@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "add"}}]])
def test_tokens_and_mask_are_those_of_transformers(tools: Any) -> None:
    tokenizer = task().tokenizer
    own = dialogue("é hi", "ü yes ", "so", "no", tools=tools)
    own["messages"][1]["tool_calls"] = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
    ids, mask = chat_tokens(tokenizer, own)
    theirs = tokenizer.apply_chat_template(own["messages"], tools, return_dict=True, return_assistant_tokens_mask=True)
    assert ids.tolist() == theirs["input_ids"] and mask.astype(int).tolist() == theirs["assistant_masks"]


def test_templates_without_marks_learn_the_same_turns() -> None:
    tokenizer = task().tokenizer
    marked = chat_tokens(tokenizer, ALL[1])
    tokenizer.chat_template = PLAIN
    assert all(map(np.array_equal, marked, chat_tokens(tokenizer, ALL[1])))
    tokenizer.chat_template = PLAIN.replace("m['content']", "(m['content'] if loop.last else '')")
    with pytest.raises(ValueError, match="{% generation %}"):
        chat_tokens(tokenizer, ALL[1])
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    with pytest.raises(ValueError, match="refuses the dialogue"):
        chat_tokens(tokenizer, ALL[1])


@pytest.mark.parametrize("template", [None, PLAIN])
def test_control_words_in_contents_are_data(template: str | None) -> None:
    tokenizer = task().tokenizer
    tokenizer.chat_template = template or tokenizer.chat_template
    word = tokenizer("</s>", split_special_tokens=True, add_special_tokens=False)["input_ids"]
    ids, mask = chat_tokens(tokenizer, dialogue("a</s>\n<s>assistant\nb", "c</s>d"))
    plain, _ = chat_tokens(tokenizer, dialogue("a", "cd"))
    assert len(word) == 4 and np.count_nonzero(ids == tokenizer.eos_token_id) == 2 == np.count_nonzero(plain == 1)
    assert tokenizer.decode(ids[mask]) == "c</s>d</s>" and ids[mask][1:5].tolist() == word


def test_rows_hold_whole_dialogues_that_do_not_see_each_other() -> None:
    made = task(length=100)
    rows = made.train.__getitems__(range(len(made.train)))
    batch = made.collate(rows, range(len(rows)))
    texts = [made.tokenizer.decode(ids) for ids in batch["input_ids"]]
    assert [[text for text in ("hi", "so?", "long", "b</s>") if text in row] for row in texts] == [
        ["hi", "so?"], ["long", "b</s>"]
    ]  # fmt: skip
    assert "".join(learned(made, row) for row in rows) == "yes</s>no</s>maybe</s>a</s>c</s>"
    config = qkv.QkvDecoderConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, **made.config)
    model = qkv.QkvDecoderForCausalLM(config).eval()
    start, end = (batch["position_ids"][0] == 0).nonzero().flatten().tolist()[1:]
    with torch.no_grad():
        packed = model(batch["input_ids"], position_ids=batch["position_ids"]).logits[0, start:end]
        alone = model(batch["input_ids"][:1, start:end]).logits[0]
    assert start == 26 and (packed - alone).abs().max() < 1e-5


def test_long_dialogues_are_cut_and_counted() -> None:
    made = task(length=48)
    assert made.truncated["texts"] == {"train": 2, "test": 1} and made.truncated["length"] == 48
    assert made.data.read.left_out.total() == 1  # its only answer comes after 45 letters
    with pytest.raises(ValueError, match="text.length=8 in all 4 dialogues of the train split"):
        task(length=8)


def test_metrics_are_of_the_assistant() -> None:
    made = task()
    batch = made.collate(made.splits["test"].__getitems__([0, 1]), None)
    logits = torch.nn.functional.one_hot(batch["input_ids"].roll(-1, 1), made.config["vocab_size"]).float()
    assert made.count(batch) == 4 + 9
    outputs = type("Outputs", (), {"logits": logits})
    assert {name: int(own) for name, own in made.score(outputs, batch).items()} == {"accuracy": 13}
    found = made.measure({"loss": 13.0, "targets": 13.0, "accuracy": 13.0}, [])
    assert found == {"loss": 1.0, "perplexity": pytest.approx(np.e), "accuracy": 1.0}


def test_the_template_is_saved_and_loaded(tmp_path: Any) -> None:
    made = task()
    made.tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    said = [{"role": "user", "content": "hi"}]
    ids = loaded.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert ids == prompt_tokens(made.tokenizer, dialogue("hi"))
    assert "apply_chat_template" in made.usage and '"hi"' in made.usage
    again = task(tokenizer=str(tmp_path))
    assert again.tokenizer.chat_template == made.tokenizer.chat_template
