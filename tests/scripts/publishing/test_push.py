"""What goes along with a push; the pushes themselves are in `test_push_to_hub.py`."""

import ast
from pathlib import Path

import pytest
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

import qkv
from qkv.scripts.publishing.push import CodeCallback, code, write

CONFIG = qkv.QkvDecoderConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=20)


def test_the_code_has_every_module_that_the_config_names() -> None:
    files = code(CONFIG)
    for reference in CONFIG.auto_map.values():
        module, _, name = reference.partition(".")
        defined = [node.name for node in ast.parse(files[f"{module}.py"]).body if isinstance(node, ast.ClassDef)]
        assert name in defined


def test_the_license_comes_with_the_code() -> None:
    assert "Apache License" in code(CONFIG)["LICENSE"]


def test_a_config_that_names_no_code_gets_none() -> None:
    part = qkv.presets.t5_small(vocab_size=20, hidden_size=16, num_attention_heads=2, head_dim=8).encoder
    assert code(part) == {}


def trainer(folder: Path, config: qkv.QkvDecoderConfig) -> Trainer:
    arguments = TrainingArguments(str(folder), report_to="none", use_cpu=True)
    return Trainer(qkv.QkvDecoderForCausalLM(config), arguments, callbacks=[CodeCallback()])


def test_code_that_cannot_be_copied_stops_a_trainer_before_it_begins(tmp_path: Path) -> None:
    config = qkv.QkvDecoderConfig(**CONFIG.to_diff_dict())
    config.auto_map = {"AutoModel": "modeling_nowhere.Model"}
    with pytest.raises(ValueError, match="auto_map names modeling_nowhere"):
        trainer(tmp_path, config)


@pytest.mark.parametrize("is_zero", [True, False])
def test_one_process_writes_the_code(tmp_path: Path, is_zero: bool) -> None:
    running = trainer(tmp_path, CONFIG)
    state, control = TrainerState(is_world_process_zero=is_zero), TrainerControl()
    running.callback_handler.on_push_begin(running.args, state, control)
    assert {path.name for path in tmp_path.iterdir()} == (set(code(CONFIG)) if is_zero else set())


def test_written_code_is_the_code(tmp_path: Path) -> None:
    write(code(CONFIG), tmp_path)
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == code(CONFIG)
