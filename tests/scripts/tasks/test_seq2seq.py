"""Texts and targets: padded on both sides, judged by what the model writes by itself."""

import pytest

import qkv
from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.tasks.seq2seq import Seq2Seq
from qkv.scripts.tasks.task import Task
from recipes import recipe_of

RECIPE = recipe_of(text=dict(tokenizer="characters", length=8))
CORPUS = paired("c", "t", "s", [("ab", "x"), ("abc", "xyz"), ("b", "zz"), ("aaaaaaaaaaaa", "y")])


@pytest.fixture
def task() -> Task:
    return Seq2Seq(RECIPE, CORPUS)


def test_sources_and_targets_end_and_are_cut(task: Task) -> None:
    batch = task.collate(task.train.__getitems__([0, 1]), [0, 1])
    decode = task.processor.decode
    assert [decode(row) for row in batch["input_ids"]] == ["abc</s>", "b</s><pad><pad>"]
    assert batch["labels"][1, 3:].tolist() == [-100] and decode(batch["labels"][1, :3]) == "zz</s>"
    assert batch["attention_mask"].sum(1).tolist() == [4, 2] and task.count(batch) == 7
    assert task.train.lengths == [8, 5, 10] and task.config["decoder_start_token_id"] == 0
    assert task.config["max_position_embeddings"] == 12  # four more are generated


def test_answers_are_what_is_generated_beside_the_whole_target(task: Task) -> None:
    config = qkv.QkvEncoderDecoderConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, **task.config)
    model = qkv.QkvEncoderDecoderForConditionalGeneration(config).eval()
    batch = task.collate(task.train.__getitems__([0, 2]), None)
    answers = task.answer(model, None, batch)
    assert [wanted for _, wanted in answers] == ["xyz", "y"]
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert [said for said, _ in answers] == task.processor.batch_decode(expected, skip_special_tokens=True)


def test_metrics_are_of_texts() -> None:
    task = Seq2Seq(RECIPE, paired("c", "t", "s", [("b", "z"), ("a", "x y")]))
    found = task.measure({"loss": 4.0, "targets": 2.0}, [("un deux", "un deux"), ("trois", "quatre")])
    assert found["exact_match"] == 0.5 and found["loss"] == 2.0 and 0 < found["chrf"] < 100
    assert task.metrics == ("exact_match", "bleu", "chrf")


def test_what_has_no_words_is_judged_by_its_characters(task: Task) -> None:
    found = task.measure({"loss": 4.0, "targets": 2.0}, [("abcd", "abcd"), ("abcd", "dcba")])
    assert found == {"loss": 2.0, "exact_match": 0.5, "cer": 0.5}


def test_texts_without_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="data='c'"):
        Seq2Seq(RECIPE, Corpus("c", "t", "s", {"train": ["a"], "test": ["b"]}))
