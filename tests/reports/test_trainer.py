"""Public reports about fine-tuning under Trainer and by `qkv train`, each on models of ours."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

import gradient_worker as worker
import tiny
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.tasks.seq2seq import Seq2Seq
from qkv.scripts.training.evaluation import evaluate
from qkv.scripts.training.loop import parameter_groups
from recipes import recipe_of

pytestmark = pytest.mark.upstream

BY_NAME = {case.name: case for case in tiny.CASES}
GPT2, LLAMA, BERT = "DecoderForCausalLM-gpt2", "DecoderForCausalLM-llama", "EncoderForMaskedLM-bert"
T5, BART = (f"EncoderDecoderForConditionalGeneration-{kind}" for kind in ("t5", "bart"))
DROPOUT = {"embedding_dropout": 0.1, "attention_dropout": 0.1, "residual_dropout": 0.1}
QUIET = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "save_strategy": "no"}


def rows(count: int = 12) -> list[dict[str, list[int]]]:
    """Texts of different lengths, which are their own labels."""
    made = [tiny.text(batch=1, length=5 + seed % 5, seed=seed)["input_ids"][0].tolist() for seed in range(count)]
    return [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": list(ids)} for ids in made]


def model_of(name: str, **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return BY_NAME[name].build(**fields)


def trainer_of(model: Any, folder: Path, data: Any = None, **options: Any) -> Trainer:
    options = {**QUIET, "learning_rate": 0.01, "per_device_train_batch_size": 4, **options}
    data = rows() if data is None else data
    return Trainer(model, TrainingArguments(str(folder), **options), train_dataset=data, eval_dataset=data,
                   data_collator=worker.pad)  # fmt: skip


def weights(model: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("name", [GPT2, T5])
def test_a_training_that_accumulates_goes_on_where_it_stopped(name: str, tmp_path: Path) -> None:
    steps = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 8}
    options = {**steps, "save_strategy": "steps", "save_steps": 5, "seed": 3}  # in the middle of the second epoch
    whole, resumed = model_of(name, **DROPOUT), model_of(name, **DROPOUT)
    trainer_of(whole, tmp_path, **options).train()
    trainer_of(resumed, tmp_path, **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert_same(weights(resumed), weights(whole))


@pytest.mark.costly(2)
@pytest.mark.parametrize("name", [GPT2, LLAMA, BERT, T5])
def test_adapters_learn_below_checkpointed_layers(name: str, tmp_path: Path) -> None:
    adapted = get_peft_model(model_of(name), LoraConfig(r=2, target_modules="all-linear"))
    trainer_of(adapted, tmp_path, gradient_checkpointing=True, max_steps=1).train()
    grown = {key: bool(value.any()) for key, value in adapted.state_dict().items() if "lora_B" in key}
    assert len(grown) > 10 and all(grown.values())


@pytest.mark.costly(2)
@pytest.mark.parametrize("name", [GPT2, BERT, T5, "DecoderForCausalLM-deltanet"])
def test_checkpointed_layers_learn_the_same(name: str, tmp_path: Path) -> None:
    options = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "max_steps": 2}
    learned = []
    for checkpointing in (False, True):
        model = model_of(name)
        trainer_of(model, tmp_path, gradient_checkpointing=checkpointing, **options).train()
        learned.append(weights(model))
    assert_same(*learned)


# The language model of ESMFold has no numbers for further tokens.
WITH_WORDS = [case.name for case in tiny.CASES if "input_ids" in case.inputs() and "esmfold" not in case.name]


@torch.no_grad()
@pytest.mark.costly(6)
@pytest.mark.parametrize("name", WITH_WORDS)
def test_added_tokens_change_no_score_and_come_back(name: str, tmp_path: Path) -> None:
    model, inputs = model_of(name).eval(), BY_NAME[name].inputs()
    before, ends = model(**inputs), [model.get_input_embeddings(), model.get_output_embeddings()]
    size, tied = ends[0].num_embeddings, ends[1] is not None and ends[0].weight is ends[1].weight
    model.resize_token_embeddings(size + 9)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    ends = [again.get_input_embeddings(), again.get_output_embeddings()]
    assert again.config.get_text_config().vocab_size == ends[0].num_embeddings == size + 9
    assert tied == (ends[1] is not None and ends[0].weight is ends[1].weight)
    after, reread = model(**inputs), again(**inputs)
    for key in {"logits", "last_hidden_state", "prediction_logits"} & {*before}:
        width = before[key].shape[-1]
        assert after[key].shape[-1] == (size + 9 if width == size else width)
        assert torch.equal(after[key][..., :width], before[key]) and torch.equal(reread[key], after[key])


def test_the_best_adapter_comes_back_with_its_head(tmp_path: Path) -> None:
    labelled = [{**row, "labels": number % 3} for number, row in enumerate(rows(10))]
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["classifier"], task_type="SEQ_CLS")
    adapted = get_peft_model(model_of("EncoderForSequenceClassification-bert"), config)
    every = {"save_strategy": "steps", "eval_strategy": "steps", "save_steps": 1, "eval_steps": 1, "max_steps": 4}
    diverging = {"learning_rate": 3.0, "load_best_model_at_end": True}  # the first step is the best one
    trainer = trainer_of(adapted, tmp_path, labelled, **every, **diverging)
    trainer.train()
    best = min((entry["eval_loss"], entry["step"]) for entry in trainer.state.log_history if "eval_loss" in entry)
    assert trainer.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best[1]}") and best[1] < 4
    assert trainer.evaluate()["eval_loss"] == pytest.approx(best[0], rel=1e-6)


@pytest.mark.parametrize("name", [T5, BART])
def test_every_returned_sequence_is_predicted_and_none_is_cut(name: str, tmp_path: Path) -> None:
    settings = Seq2SeqTrainingArguments(
        str(tmp_path), **QUIET, predict_with_generate=True, per_device_eval_batch_size=4
    )
    model = model_of(name)
    predict = partial(Seq2SeqTrainer(model, settings, data_collator=worker.pad).predict, rows(10), max_new_tokens=6)
    found = predict(num_beams=3, num_return_sequences=3).predictions
    assert len(found) == 30 and found.min() >= 0  # a tokenizer decodes no -100
    last = model.generate(**{key: value for key, value in worker.pad(rows(10)[8:]).items() if key != "labels"},
                          num_beams=3, num_return_sequences=3, max_new_tokens=6)  # fmt: skip
    assert found[-6:, : last.shape[1]].tolist() == last.tolist()


def test_a_loss_does_not_depend_on_the_batches_it_is_taken_over() -> None:
    sources = [" ".join("abcdefg"[: 1 + number % 7]) for number in range(7)]
    texts, targets = {"test": sources}, {"test": [text * (1 + len(text)) for text in sources]}
    recipe = recipe_of(text={"tokenizer": "bytes", "vocab_size": 300, "length": 64}, data={"test_size": 1.0})
    task = Seq2Seq(recipe, Corpus("t", "t", "s", texts=texts, targets=targets))
    ids = {name: task.config[name] for name in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}
    config = tiny.encoder_decoder("transformer", **ids, decoder_start_token_id=0, max_position_embeddings=128)
    model = tiny.jitter(BY_NAME[T5].model_class(config)).eval()
    task.generates = False
    found = [evaluate(Accelerator(cpu=True), model, task, task.splits["test"], size, [])["loss"] for size in (1, 2, 7)]
    assert found[1:] == pytest.approx([found[0]] * 2, rel=1e-5)


@pytest.mark.costly(9)
@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_nothing_but_matrices_decays(case: tiny.Case) -> None:
    model = case.build()
    groups = parameter_groups(model, 0.1)
    decaying = {id(each) for group in groups if group["weight_decay"] for each in group["params"]}
    trainable = {name: each for name, each in model.named_parameters() if each.requires_grad}
    assert sum(len(group["params"]) for group in groups) == len(trainable)
    for name, parameter in trainable.items():
        is_scale = name.rpartition(".")[2] in ("bias", "logit_scale", "layer_scale", "decay_log") or "norm" in name
        assert (id(parameter) in decaying) != (is_scale or parameter.squeeze().ndim < 2), name
