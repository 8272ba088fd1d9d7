"""The code of a published model: two self-contained files that hold what the model reaches."""

import ast
import hashlib
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from transformers import GPT2Config

import qkv
from checkout import ROOT
from qkv.scripts.publishing.export.flatten import FlatCode, flatten, vocabulary
from qkv.scripts.publishing.export.join import Joined

CONFIGS = {
    "gpt2": qkv.presets.gpt2(),
    "llama": qkv.presets.llama_3_2_1b(),
    "mixed": qkv.QkvDecoderConfig(
        num_hidden_layers=3,
        pattern=["sliding", "block_sparse", "full"],
        sliding_window=4,
        position="t5",
        norm="rms",
        feed_forward="glu",
        query_key_norm=True,
        embedding_size=64,
    ),
    "bert": qkv.presets.bert_base(),
    "longformer": qkv.presets.longformer_base(),
    "deberta": qkv.presets.deberta_v3_base(),
    "vit": qkv.presets.vit_base_16(),
    "bart": qkv.presets.bart_base(encoder={"norm_first": True}),
    "rnnsearch": qkv.presets.rnnsearch_50(),
    "sutskever": qkv.QkvRecurrentConfig(cell="lstm", attention="none", readout="none", bidirectional=False),
    "clip": qkv.presets.clip_vit_b32(),
    "siglip": qkv.presets.siglip_base(),
    "whisper": qkv.presets.whisper_tiny(),
    "speech": qkv.presets.speech_transformer_s(),
    "detr": qkv.presets.detr_r50(),
    "detr on patches": qkv.presets.detr_r50(backbone_config=None, encoder={"position": "none"}),
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "open", "__import__", "globals", "input", "breakpoint"}
FORBIDDEN_NAMES = {
    "pickle", "marshal", "shelve", "subprocess", "socket", "requests", "urllib", "http", "ctypes", "importlib", "os",
    "sys", "shutil", "pathlib", "builtins", "hub", "load", "save", "system", "popen", "write_text", "write_bytes",
}  # fmt: skip
# Rules of transformers' linter for models inside transformers: notes which checkpoint takes a branch, generated
# docstrings, and `@strict` by that name, where ours wraps it for its error messages.
NOT_FOR_COPIES = {"TRF041", "TRF057", "TRF010"}


@cache
def flat(name: str) -> FlatCode:
    return flatten(CONFIGS[name])


# The others of their families, which `test_hub.py` publishes as well.
SECOND = ("sutskever", "speech", "detr on patches")
FIRST = tuple(name for name in CONFIGS if name not in SECOND)
each = pytest.mark.parametrize("name", [*FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in SECOND)])


def lines_of_code(text: str) -> int:
    """Lines that are neither empty nor comment nor docstring."""
    documented = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            documented |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in documented
        for number, line in enumerate(text.splitlines(), 1)
    )


@pytest.mark.parametrize("name", [name for name in CONFIGS if isinstance(CONFIGS[name], qkv.QkvDecoderConfig)])
def test_a_decoder_is_short_enough_to_read(name: str) -> None:
    assert sum(lines_of_code(text) for text in flat(name).files.values()) <= 4020


@pytest.mark.costly(6)
@each
def test_code_can_neither_run_text_nor_reach_files_nor_the_network(name: str) -> None:
    """It imports transformers, the libraries that transformers needs, and the standard library."""
    libraries = {"torch", "transformers", "huggingface_hub"} | (sys.stdlib_module_names - FORBIDDEN_NAMES)
    for node in (node for text in flat(name).files.values() for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS
        if isinstance(node, ast.Attribute | ast.Name):
            assert getattr(node, "attr", getattr(node, "id", None)) not in FORBIDDEN_NAMES
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= libraries
        if isinstance(node, ast.ImportFrom):
            is_own = node.level == 1 and f"{node.module}.py" in flat(name).files
            assert is_own or (not node.level and str(node.module).partition(".")[0] in libraries)


def test_tables_are_read_by_words_of_a_config() -> None:
    """Of a word that no field has, published code has no row: a row that code names by itself would be missing."""
    for path in (ROOT / "modeling").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if "conversion" not in path.parts else ():
            is_table = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id.isupper()
            if is_table and isinstance(node.slice, ast.Constant):
                assert node.slice.value not in vocabulary(), f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("names", [FIRST[::4], pytest.param(tuple(CONFIGS), marks=pytest.mark.slow)], ids=len)
def test_linters_find_nothing(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        for file, text in flat(name).files.items():
            (tmp_path / name / file).write_text(text)
    for command in (
        ["ruff", "check", "--isolated", "--line-length=120", "--select=E,F,I,UP,B,W", "."],
        ["ruff", "format", "--isolated", "--line-length=120", "--check", "."],
    ):
        result = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "mlinter", "--no-progress", "--no-cache", f"--output-json={report}", "."]
    subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert {finding["rule"] for finding in json.loads(report.read_text())["findings"]} <= NOT_FOR_COPIES


@each
def test_every_head_is_there_and_a_saved_config_points_to_its_file(name: str) -> None:
    code, named = flat(name), CONFIGS[name].auto_map
    assert len(code.files) == 2 and code.auto_map.items() <= named.items() and "AutoModel" in code.auto_map
    assert {f"{reference.split('.')[0]}.py" for reference in named.values()} == set(code.files)
    for reference in code.auto_map.values():
        stem, _, owner = reference.partition(".")
        assert f"class {owner}(" in code.files[f"{stem}.py"]
    family = getattr(qkv, code.auto_map["AutoConfig"].partition(".")[2])
    assert {*code.auto_map.values()} <= {*family.auto_classes.values()}
    assert ("AutoModelForImageClassification" in code.auto_map) == (name == "vit")


def test_a_config_that_came_from_a_published_folder_flattens_again() -> None:
    assert flatten(qkv.presets.bert_base(auto_map=flat("bert").auto_map)) == flat("bert")
    config = qkv.presets.bert_base(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    code = flatten(qkv.QkvEncoderForReplacedTokenDetection(config).config)
    assert code.auto_map["AutoModelForPreTraining"] == "modeling_encoder.QkvEncoderForReplacedTokenDetection"


def test_other_configs_are_refused() -> None:
    for config, word in (
        (qkv.presets.bert_base(auto_map={"AutoModel": "modeling_x.Nothing"}), "auto_map"),
        (GPT2Config(), "GPT2Config"),
    ):
        with pytest.raises(ValueError, match=word):
            flatten(config)


@each
def test_unused_classes_are_left_out(name: str) -> None:
    text = "".join(flat(name).files.values())
    config = CONFIGS[name]
    used = {
        "RMSNorm": "rms", "GLU": "glu", "MixtureOfExperts": "moe", "Experts": "moe", "RotaryPosition": "rope", "AlibiPosition": "alibi", "T5Position": "t5",
        "ImagePosition": "sinusoidal_2d", "QueryPosition": "object_queries", "FeatureMapFrontend": "feature_map",
        "GRU": "gru", "LSTM": "lstm", "AdditiveAlignment": "additive", "MaxoutReadout": "maxout",
    }  # fmt: skip
    said = {
        str(value)
        for part in (config, *(getattr(config, sub) for sub in config.sub_configs))
        for value in (*vars(part).values(), getattr(part, "frontend", None))
    }
    for owner, word in used.items():
        assert (f"class {owner}(" in text) == (word in said), owner
    assert ("class PatchFrontend(" in text) == ("patches" in said)
    assert ("class SpectrogramFrontend(" in text) == ("spectrogram" in said)


@each
def test_the_header_names_license_origin_and_content(name: str) -> None:
    for text in flat(name).files.values():
        digest = re.search(r"^# SHA-256 of the lines below: ([0-9a-f]{64})\n", text, re.MULTILINE)
        assert hashlib.sha256(text[digest.end() :].encode()).hexdigest() == digest[1]
        assert "Apache License, Version 2.0" in text[: digest.start()]
        assert f"Made from qkv {qkv.__version__}" in text[: digest.start()]


def test_the_config_of_a_copy_checks_its_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configuration_decoder.py").write_text(flat("llama").files["configuration_decoder.py"])
    monkeypatch.syspath_prepend(tmp_path)
    copy, fields = importlib.import_module("configuration_decoder").QkvDecoderConfig, CONFIGS["llama"].to_dict()
    monkeypatch.delitem(sys.modules, "configuration_decoder")
    assert copy(**fields).to_dict() == fields
    for change in ({"position": "ropes"}, {"hiden_size": 4}, {"hidden_size": -1}):
        with pytest.raises(ValueError, match=next(iter(change))):
            copy(**{**fields, **change})


def test_no_two_models_share_the_text_of_their_config() -> None:
    """Or transformers would load both with the code of the first, from folders of one name."""
    one, other = (flatten(qkv.QkvEncoderConfig(position=word)).files for word in ("learned", "rope"))
    assert one["modeling_encoder.py"] != other["modeling_encoder.py"]
    assert one["configuration_encoder.py"] != other["configuration_encoder.py"]


def test_a_name_of_two_modules_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else of joining shows in the code above, in which linters find no undefined name."""
    (tmp_path / "toy" / "models").mkdir(parents=True)
    for name, text in {"a": "from .b import B\n\nX = B\n", "b": "B = X = 2\n", "__init__": ""}.items():
        (tmp_path / "toy" / "models" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"toy\.models\.a: X "):
        Joined("toy.models").add("toy.models.a")
