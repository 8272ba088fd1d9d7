"""Causal language modeling: every token in a row once, bytes counted, targets alone learned where there are some."""

import math

import pytest
import torch

import qkv
from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.tasks.causal_lm import IGNORED
from qkv.scripts.tasks.infilling import causal_lm
from qkv.scripts.tasks.task import Task
from recipes import recipe_of

TEXTS = {"train": ["one two three, ééé", "four\nfive"], "test": ["six seven eight nine ten", "eleven"]}
CORPUS = Corpus("c", "t", "s", TEXTS)
ECHO = paired("e", "t", "s", [("ab", "ba"), ("abc", "cba"), ("b", "b")])


def task(corpus: Corpus = CORPUS, kind: str = "bytes") -> Task:
    return causal_lm(recipe_of(text=dict(tokenizer=kind, length=8)), corpus)


def model(made: Task) -> torch.nn.Module:
    config = qkv.QkvDecoderConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, **made.config)
    return qkv.QkvDecoderForCausalLM(config).eval()


def test_rows_hold_every_token_once_and_documents_do_not_see_each_other() -> None:
    made = task()
    batch = made.collate(made.train.__getitems__(range(len(made.train))), [0, 1, 2, 3])
    assert batch["input_ids"].shape == (4, 8)
    assert made.processor.decode(batch["input_ids"].flatten()) == "one two three, ééé</s>four\nfive</s>"
    begins = (batch["position_ids"] == 0).flatten().nonzero().flatten()
    assert begins.tolist() == [0, 8, 16, 22, 24]
    assert (batch["labels"].flatten() == IGNORED).nonzero().flatten().tolist() == begins.tolist()
    assert made.count(batch) == 32 - 5
    net = model(made)
    with torch.no_grad():
        packed = net(batch["input_ids"], position_ids=batch["position_ids"]).logits[2, 6:]
        alone = net(batch["input_ids"][2:3, 6:]).logits[0]
    assert (packed - alone).abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_bytes_are_those_of_predicted_tokens(kind: str) -> None:
    made = task(kind=kind)
    split = made.splits["test"]
    batch = made.collate(split.__getitems__(range(len(split))), None)
    predicted = [row[row != IGNORED] for row in batch["labels"]]
    texts = [made.processor.decode(row, skip_special_tokens=True) for row in predicted]
    assert batch["_bytes"].tolist() == [len(text.encode()) for text in texts]


def test_bits_per_byte_and_perplexity_are_of_the_loss() -> None:
    made = task()
    split = made.splits["test"]
    batch = made.collate(split.__getitems__(range(len(split))), None)
    inputs = {name: value for name, value in batch.items() if not name.startswith("_")}
    outputs = model(made)(**inputs, num_items_in_batch=1)
    sums = {"loss": float(outputs.loss), "targets": made.count(batch), **made.score(outputs, batch)}
    found = made.measure({name: float(value) for name, value in sums.items()}, [])
    logits, labels = outputs.logits[:, :-1].log_softmax(-1), batch["labels"][:, 1:]
    nats = -logits.gather(2, labels.clamp(min=0)[..., None])[..., 0][labels != IGNORED].sum().item()
    assert found["perplexity"] == pytest.approx(math.exp(nats / made.count(batch)), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / batch["_bytes"].sum().item(), rel=1e-5)
    assert found["loss"] == pytest.approx(nats / made.count(batch), rel=1e-5)
    assert set(task(kind="characters").measure({"loss": 3.0, "targets": 2.0}, [])) == {"loss", "perplexity"}


def test_only_targets_are_learned() -> None:
    made = task(ECHO, "characters")
    batch = made.collate(made.train.__getitems__([0, 1]), [0, 1])
    decode = made.processor.decode
    assert decode(batch["input_ids"][0]) == "abc<s>cba</s>"
    assert decode(batch["labels"][0][batch["labels"][0] != IGNORED]) == "cba</s>"
    assert made.count(batch) == 4 + 2 and batch["input_ids"].shape == (2, 8)


def test_a_text_is_right_when_all_of_it_is() -> None:
    made = task(ECHO, "characters")
    batch = made.collate(made.train.__getitems__([0, 1]), None)
    logits = torch.nn.functional.one_hot(batch["input_ids"].roll(-1, 1), made.config["vocab_size"]).float()
    outputs = type("Outputs", (), {"logits": logits})
    found = {name: int(value) for name, value in made.score(outputs, batch).items()}
    assert found == {"accuracy": 6, "_exact": 2, "_texts": 2} and made.sample() == {"prompt": "ab<s>"}
    logits[0, 4] = 0  # the second letter of the first target
    sums = {name: float(value) for name, value in made.score(outputs, batch).items()}
    found = made.measure({**sums, "loss": 6.0, "targets": 6.0}, [])
    assert found == {"loss": 1.0, "accuracy": pytest.approx(5 / 6), "exact_match": 0.5}
