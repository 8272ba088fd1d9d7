"""Chat: the assistant's tokens alone are learned, whole dialogues lie in a row, and control words in them are data."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import qkv
from errors import raises_sentence
from qkv.scripts.data.dialogues import Dialogues, check_dialogue
from qkv.scripts.tasks.causal_lm import IGNORED
from qkv.scripts.tasks.chat import Chat, chat_tokens, fitted_tokens
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
    assert (
        made.tokenizer.decode(chat_tokens(made.tokenizer, dialogue("hi"), asks=True)[0])
        == "<s>user\nhi</s>\n<s>assistant\n"
    )


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


def test_long_dialogues_lose_their_first_exchanges_and_are_counted() -> None:
    made = task(length=48)
    assert [learned(made, row) for row in made.splits["test"].__getitems__([0, 1])] == ["yes</s>", "maybe</s>"]
    beyond = "beyond text.length=48 in the"
    assert dict(made.data.read.left_out) == {
        f"dialogues whose last exchange is {beyond} train split:": 1,
        f"first exchanges of dialogues {beyond} train split:": 1,
        f"first exchanges of dialogues {beyond} test split:": 1,
    }
    with raises_sentence("text.length=8", "train", "text.length=67"):
        task(length=8)


@pytest.mark.parametrize("template", [None, PLAIN])
def test_what_the_system_says_stays(template: str | None) -> None:
    tokenizer = task().tokenizer
    tokenizer.chat_template = template or tokenizer.chat_template
    said = [{"role": "system", "content": "be"}, {"role": "assistant", "content": "hi"}]
    said += [{"role": role, "content": f"{number}"} for number in range(9) for role in ("user", "assistant")]
    whole = check_dialogue(said)
    sizes = [len(chat_tokens(tokenizer, {**whole, "messages": [said[0], *said[start:]]})[0]) for start in range(1, 19)]
    for length in (1, 50, 100, sizes[1], sizes[1] - 1, sizes[0], 10_000):
        (ids, _), left = fitted_tokens(tokenizer, whole, length)
        fitting = [start for start, size in enumerate(sizes) if size <= length and (start == 0 or start % 2 == 1)]
        assert left == (fitting[0] if fitting else 17) and len(ids) == sizes[left]


def test_metrics_are_of_the_assistant() -> None:
    made = task()
    batch = made.collate(made.splits["test"].__getitems__([0, 1]), None)
    logits = torch.nn.functional.one_hot(batch["input_ids"].roll(-1, 1), made.config["vocab_size"]).float()
    assert made.count(batch) == 4 + 9
    logits[1, (batch["labels"][1] != IGNORED).nonzero()[0] - 1] = 0  # one token is wrong
    sums = {name: float(own) for name, own in made.score(type("Outputs", (), {"logits": logits}), batch).items()}
    assert sums == {"accuracy": 12, "_exact": 1, "_texts": 2}
    found = made.measure({"loss": 13.0, "targets": 13.0, **sums}, [])
    assert found == {"loss": 1.0, "accuracy": pytest.approx(12 / 13), "exact_match": 0.5}


def test_the_template_is_saved_and_loaded(tmp_path: Any) -> None:
    made = task()
    made.tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    said = [{"role": "user", "content": "hi"}]
    ids = loaded.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert ids == chat_tokens(made.tokenizer, dialogue("hi"), asks=True)[0].tolist()
    assert '"hi"' in made.usage
    assert task(tokenizer=str(tmp_path)).tokenizer.chat_template == made.tokenizer.chat_template
