"""Reading checkpoints from files: whole or not at all, in little memory, and with one sentence for what is wrong."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_parity import assert_identical
from transformers.testing_utils import CaptureLogger

import qkv
from errors import raises_sentence
from families import variant
from qkv.modeling.conversion.files import located

BERT, GPT2, BART = (
    variant(*names, "")
    for names in (("bert", "ForMaskedLM"), ("gpt2", "LMHeadModel"), ("bart", "ForConditionalGeneration"))
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A GPT-2 in several files."""
    GPT2.build().save_pretrained(tmp_path / "gpt2", max_shard_size="20kB")
    assert len(list((tmp_path / "gpt2").glob("*.safetensors"))) > 2
    return tmp_path / "gpt2"


def change_json(path: Path, **fields: object) -> None:
    values = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Edit the tensors of a checkpoint that is made one file."""
    weights: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        weights |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    change(weights)
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def test_files_and_old_configs_say_how_to_generate(tmp_path: Path) -> None:
    official = BART.build().to(torch.bfloat16)
    official.generation_config.update(num_beams=3, length_penalty=0.7)
    official.config.problem_type = "multi_label_classification"
    official.save_pretrained(tmp_path)
    for beams in (3, 4):
        ours, stock = qkv.from_transformers(tmp_path), transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
        assert ours.generation_config.to_dict() == stock.generation_config.to_dict()
        assert stock.generation_config.num_beams == beams
        assert (ours.dtype, ours.config.problem_type) == (torch.bfloat16, "multi_label_classification")
        (tmp_path / "generation_config.json").unlink(missing_ok=True)
        change_json(tmp_path / "config.json", num_beams=4, no_repeat_ngram_size=3)


def rename(weights: dict[str, torch.Tensor], changed: Callable[[str], str]) -> None:
    for name in list(weights):
        weights[changed(name)] = weights.pop(name)


@pytest.mark.parametrize(
    "changed",
    [
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
        lambda name: name.removeprefix("bert.") if "embeddings" in name else name,
    ],
    ids=["gamma and beta", "no prefix"],
)
def test_names_of_older_releases_are_never_misread(tmp_path: Path, changed: Callable[[str], str]) -> None:
    """Whatever transformers understands gives its numbers; what it does not is an error, never a random weight."""
    BERT.build().save_pretrained(tmp_path)
    change_weights(tmp_path, lambda weights: rename(weights, changed))
    _, report = transformers.BertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    if report["missing_keys"]:
        with raises_sentence("bert.embeddings"):
            qkv.from_transformers(tmp_path)
    else:
        assert_identical(qkv.to_transformers(qkv.from_transformers(tmp_path)), BERT.build())


def test_tensors_of_other_heads_and_old_masks_are_left_out(tmp_path: Path) -> None:
    """Published masked language models hold a pooler and a next-sentence head; old GPT-2 its causal mask."""
    variant("bert", "ForPreTraining", "").build().save_pretrained(tmp_path / "bert")
    change_json(tmp_path / "bert" / "config.json", architectures=["BertForMaskedLM"])
    change_weights(tmp_path / "bert", lambda weights: weights.update({"bert.embeddings.position_ids": torch.arange(9)}))
    expected = transformers.BertForMaskedLM.from_pretrained(tmp_path / "bert")
    qkv_logger, stock_logger = logging.getLogger("qkv"), logging.getLogger("transformers")
    with CaptureLogger(qkv_logger) as ours, CaptureLogger(stock_logger) as others:
        assert_identical(qkv.to_transformers(qkv.from_transformers(tmp_path / "bert")), expected)
    assert "bert.pooler.dense.bias, bert.pooler.dense.weight, cls.seq_relationship.bias" in ours.out
    assert ours.out.count("\n") == 1 and others.out == ""
    GPT2.build().save_pretrained(tmp_path / "gpt2")
    mask = torch.ones(24, 24).tril().view(1, 1, 24, 24).bool()
    change_weights(tmp_path / "gpt2", lambda weights: weights.update({"transformer.h.0.attn.bias": mask}))
    assert_identical(qkv.to_transformers(qkv.from_transformers(tmp_path / "gpt2")), GPT2.build())


def shard(folder: Path) -> Path:
    return sorted(folder.glob("model-00002-*"))[0]


def config(**fields: object) -> Callable[[Path], None]:
    return lambda folder: change_json(folder / "config.json", **fields)


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    return lambda folder: change_weights(folder, change)


def truncate(folder: Path) -> None:
    with shard(folder).open("r+b") as file:
        file.truncate(shard(folder).stat().st_size // 2)


def in_two_shards(folder: Path) -> None:
    """With other numbers in the second, of which a reader would take either."""
    path = shard(folder)
    save_file({**load_file(path), "transformer.wpe.weight": torch.ones(32, 12)}, path, {"format": "pt"})


# What is done to a folder, and the names that the sentence mentions.
BROKEN: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no config": (lambda at: (at / "config.json").unlink(), ("config.json",)),
    "bad config": (lambda at: (at / "config.json").write_text("{"), ("config.json",)),
    "no type": (config(model_type=None), ("config.json", "model_type=None")),
    "another kind of type": (config(model_type=5), ("config.json", "model_type=5")),
    "no class": (config(architectures=None), ("config.json", "architectures=None")),
    "other type": (config(model_type="xlnet"), ("model_type 'xlnet'", "longt5")),
    "other class": (config(architectures=["GPT2DoubleHeadsModel"]), ("GPT2DoubleHeadsModel", "GPT2Model")),
    "wrong value": (config(vocab_size="61"), ("config.json", "'vocab_size'", "int")),
    "wrong word": (config(activation_function="nope"), ("config.json", "'nope'")),
    "unknown field": (config(mine=3), ("mine=3",)),
    "wrong class": (
        config(architectures=["GPT2ForTokenClassification"]),
        ("classifier.bias", "GPT2ForTokenClassification"),
    ),
    "missing": (weights(lambda held: held.pop("transformer.h.1.ln_2.bias")), ("transformer.h.1.ln_2.bias",)),
    "extra": (weights(lambda held: held.update({"transformer.mine": torch.ones(2)})), ("transformer.mine",)),
    "many layers": (config(n_layer=1000), ("config.json", "num_hidden_layers=1000")),
    "terabytes": (config(n_inner=10**12), ("config.json", "parameters", "bytes")),
    "extra layer": (config(n_layer=1), ("transformer.h.1.attn.c_attn.weight", "GPT2LMHeadModel")),
    "other shape": (config(n_inner=40), ("transformer.h.0.mlp.c_fc.bias", "(48,)", "(40,)")),
    "short shard": (truncate, ("model-00002",)),
    "twice": (in_two_shards, ("transformer.wpe.weight", "model-00001", "model-00002")),
    "two": (lambda at: copyfile(shard(at), at / "model.safetensors"), ("model.safetensors", "delete")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_folder_is_refused_in_a_sentence(folder: Path, name: str) -> None:
    damage, mentions = BROKEN[name]
    damage(folder)
    with raises_sentence(*mentions):
        qkv.from_transformers(folder)


def test_pickles_are_never_read(folder: Path) -> None:
    change_weights(folder, dict.clear)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with raises_sentence("model.safetensors"):
        qkv.from_transformers(folder)


def test_code_of_a_folder_is_never_run(folder: Path) -> None:
    change_json(folder / "config.json", auto_map={"AutoConfig": "mine.Mine"})
    (folder / "mine.py").write_text(f"open({str(folder / 'was_run')!r}, 'w')\n")
    assert_identical(qkv.to_transformers(qkv.from_transformers(folder)), GPT2.build())
    assert not (folder / "was_run").exists()


def cached(folder: Path, home: Path, name: str) -> None:
    """Put a folder where a download would."""
    place = home / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("a" * 40)
    (place / "snapshots").mkdir()
    folder.rename(place / "snapshots" / ("a" * 40))


def test_a_hub_id_is_read_from_the_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    cached(folder, tmp_path / "hub", "me/gpt2")
    ours = qkv.from_transformers("me/gpt2", revision="main")
    assert_identical(qkv.to_transformers(ours), GPT2.build())
    assert ours.config.name_or_path == "me/gpt2"
    assert located("me/gpt2@main") == located("me/gpt2") == tmp_path / "hub/models--me--gpt2/snapshots" / ("a" * 40)
    for name in ("me/gpt2@v2", "me/other", "a b"):
        with raises_sentence(name.partition("@")[0]):
            located(name)


MEASURE = """
import sys, torch, transformers, qkv
torch.set_num_threads(1)
def peak(): return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
qkv.from_transformers(sys.argv[1])  # whatever is imported late
before = peak()
model = qkv.from_transformers(sys.argv[2])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", ["60MB", "1GB"])
def test_one_copy_is_in_memory(tmp_path: Path, size: str) -> None:
    """GPT-2, of whose weights most are transposed on the way, at 400 MB; Linux keeps the peak of a process."""
    GPT2.build().save_pretrained(tmp_path / "small")
    config = transformers.GPT2Config(n_embd=768, n_layer=9, n_head=12)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "large", max_shard_size=size)
    stored = sum(path.stat().st_size for path in (tmp_path / "large").glob("*.safetensors"))
    root = Path(qkv.__path__[0])
    lines = (
        f"import sys; sys.path.insert(0, {str(root / 'tests')!r}); import conftest; "
        if (root / "tests").is_dir()
        else ""
    )
    # Filled like a test's, memory would be touched that nobody asks for.
    lines += "import torch; torch.utils.deterministic.fill_uninitialized_memory = False\n"
    words = [sys.executable, "-c", lines + MEASURE, tmp_path / "small", tmp_path / "large"]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert 3.5e8 < stored and int(found.stdout.splitlines()[-1]) <= 1.3 * stored
