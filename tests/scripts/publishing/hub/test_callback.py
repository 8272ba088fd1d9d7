"""What goes along with a push; pushes are in `test_push_to_hub.py`, saved folders without qkv in `test_run_folder.py`."""

import copy
from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2Model, Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.testing_utils import CaptureLogger

import qkv
from qkv.scripts.publishing.export.flatten import flatten
from qkv.scripts.publishing.hub.callback import CodeCallback, logger

CONFIG = qkv.QkvDecoderConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=20)


def trainer(folder: Path, config: qkv.QkvDecoderConfig) -> Trainer:
    arguments = TrainingArguments(str(folder), report_to="none", use_cpu=True)
    return Trainer(qkv.QkvDecoderForCausalLM(config), arguments, callbacks=[CodeCallback()])


def test_code_that_cannot_be_copied_stops_a_trainer_before_it_begins(tmp_path: Path) -> None:
    config = qkv.QkvDecoderConfig(**CONFIG.to_diff_dict())
    config.auto_map = {"AutoModel": "modeling_nowhere.Model"}
    with pytest.raises(ValueError, match="auto_map names modeling_nowhere.Model, but qkv has no class Model"):
        trainer(tmp_path, config)


def test_a_model_whose_code_cannot_be_copied_is_saved_without(tmp_path: Path) -> None:
    model = qkv.QkvDecoderForCausalLM(copy.deepcopy(CONFIG))
    model.config.auto_map = {"AutoModel": "modeling_nowhere.Model"}
    model.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py")) and (tmp_path / "model.safetensors").is_file()


def test_files_of_somebody_else_stay(tmp_path: Path) -> None:
    own = {"LICENSE": "mine", "modeling_decoder.py": "print('mine')"}
    for name, text in own.items():
        (tmp_path / name).write_text(text)
    model = qkv.QkvDecoderForCausalLM(copy.deepcopy(CONFIG))
    with CaptureLogger(logger) as warnings:
        model.save_pretrained(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in own} == own
    assert f"{tmp_path / 'modeling_decoder.py'} is not a file that qkv wrote; save into another folder" in warnings.out
    (tmp_path / "modeling_decoder.py").unlink()
    for _ in range(2):
        model.save_pretrained(tmp_path)
    assert (tmp_path / "configuration_decoder.py").is_file() and (tmp_path / "LICENSE").read_text() == "mine"


@pytest.mark.parametrize("is_zero", [True, False])
def test_one_process_writes_the_code(tmp_path: Path, is_zero: bool) -> None:
    running = trainer(tmp_path, CONFIG)
    state, control = TrainerState(is_world_process_zero=is_zero), TrainerControl()
    running.callback_handler.on_push_begin(running.args, state, control)
    code = flatten(CONFIG)
    assert {path.name for path in tmp_path.glob("*.py")} == (set(code.files) if is_zero else set())
    assert (tmp_path / "LICENSE").is_file() == is_zero


def test_a_model_of_somebody_else_needs_no_code(tmp_path: Path) -> None:
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    model = GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=10))
    running = Trainer(model, arguments, callbacks=[CodeCallback()])
    running.callback_handler.on_push_begin(arguments, TrainerState(), TrainerControl())
    assert not list(tmp_path.glob("*.py"))
