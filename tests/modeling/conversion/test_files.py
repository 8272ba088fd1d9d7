"""Reading checkpoints from files: whole or not at all, in little memory, and with one sentence for what is wrong."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_parity import assert_identical
from transformers.testing_utils import CaptureLogger

import qkv
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


def test_shards_are_read_whole(folder: Path) -> None:
    official = GPT2.build()
    ours = qkv.from_transformers(folder)
    assert_identical(qkv.to_transformers(ours), official)
    assert ours.config.name_or_path == str(folder) and not ours.training
    assert_identical(qkv.from_transformers(str(folder)), ours)


def test_settings_of_files_are_kept(tmp_path: Path) -> None:
    official = BART.build().to(torch.bfloat16)
    official.generation_config.update(num_beams=3, length_penalty=0.7)
    official.config.problem_type = "multi_label_classification"
    official.save_pretrained(tmp_path)
    ours = qkv.from_transformers(tmp_path)
    stock = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert ours.dtype == torch.bfloat16 and ours.generation_config.to_dict() == stock.generation_config.to_dict()
    for name in ("problem_type", "id2label", "pad_token_id", "bos_token_id", "eos_token_id"):
        assert getattr(ours.config, name) == getattr(official.config, name)


def test_old_configs_say_how_to_generate(tmp_path: Path) -> None:
    BART.build().save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    change_json(tmp_path / "config.json", num_beams=4, no_repeat_ngram_size=3)
    stock = transformers.BartForConditionalGeneration.from_pretrained(tmp_path)
    assert stock.generation_config.num_beams == 4
    assert qkv.from_transformers(tmp_path).generation_config.to_dict() == stock.generation_config.to_dict()


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
        with pytest.raises(ValueError, match="has no tensor bert.embeddings"):
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
    assert "leaves out bert.pooler.dense.bias, bert.pooler.dense.weight, cls.seq_relationship.bias" in ours.out
    assert ours.out.count("\n") == 1 and others.out == ""
    GPT2.build().save_pretrained(tmp_path / "gpt2")
    mask = torch.ones(24, 24).tril().view(1, 1, 24, 24).bool()
    change_weights(tmp_path / "gpt2", lambda weights: weights.update({"transformer.h.0.attn.bias": mask}))
    assert_identical(qkv.to_transformers(qkv.from_transformers(tmp_path / "gpt2")), GPT2.build())


def test_a_base_model_without_pooler_needs_none(tmp_path: Path) -> None:
    official = transformers.BertModel(variant("bert", "Model", "").config(), add_pooling_layer=False)
    official.save_pretrained(tmp_path)
    assert_identical(qkv.to_transformers(qkv.from_transformers(tmp_path)), official)


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def as_pickle(folder: Path) -> None:
    change_weights(folder, dict.clear)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'exit 1'\ntR.")


def index(folder: Path) -> Path:
    return folder / "model.safetensors.index.json"


def shard(folder: Path) -> Path:
    return sorted(folder.glob("model-00002-*"))[0]


def misplaced(folder: Path, name: str) -> None:
    placed = json.loads(index(folder).read_text())["weight_map"]
    change_json(index(folder), weight_map={**placed, "transformer.wpe.weight": name})


def in_two_shards(folder: Path) -> None:
    """With other numbers in the second, of which a reader would take either."""
    path = shard(folder)
    save_file({**load_file(path), "transformer.wpe.weight": torch.ones(32, 12)}, path, {"format": "pt"})


NO_PLACE = "has tensor {}, for which GPT2LMHeadModel of its config.json has no place; name the architecture"
BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("no config", lambda at: (at / "config.json").unlink(), "has no config.json; a checkpoint is a folder with"),
    ("bad config", lambda at: (at / "config.json").write_text("{"), "config.json is not a JSON object; download it"),
    ("no type", lambda at: change_json(at / "config.json", model_type=None), "config.json names no model_type; add"),
    ("no class", lambda at: change_json(at / "config.json", architectures=None), "names no architectures; add what"),
    (
        "other type",
        lambda at: change_json(at / "config.json", model_type="xlnet"),
        "model_type 'xlnet' cannot be converted; qkv converts",
    ),
    (
        "other class",
        lambda at: change_json(at / "config.json", architectures=["GPT2DoubleHeadsModel"]),
        "GPT2DoubleHeadsModel cannot be converted; of gpt2 qkv converts GPT2Model",
    ),
    *(
        (
            f"{field} of another type",
            lambda at, values={field: value}: change_json(at / "config.json", **values),
            f"{field}={value!r} of .*config.json is of type .*, expected .*; mend it",
        )
        for field, value in {"model_type": 5, "architectures": 5, "auto_map": 5, "dtype": 1}.items()
    ),
    *(
        (
            f"{field} of no use",
            lambda at, values={field: value}: change_json(at / "config.json", **values),
            f"config.json has a value that transformers cannot use .*{message}.*; mend it",
        )
        for field, value, message in [
            ("vocab_size", "61", "Field 'vocab_size' expected int, got str"),
            ("activation_function", "nope", "'nope'"),
            ("dtype", "nope", "'nope'"),
            ("id2label", 5, "'int'"),
        ]
    ),
    ("unknown field", lambda at: change_json(at / "config.json", mine=3), "mine=3 is unknown there; delete from its"),
    (
        "wrong class",
        lambda at: change_json(at / "config.json", architectures=["GPT2ForTokenClassification"]),
        "has no tensor classifier.bias, which GPT2ForTokenClassification needs; download it again, or name",
    ),
    (
        "missing",
        lambda at: change_weights(at, lambda weights: weights.pop("transformer.h.1.ln_2.bias")),
        "has no tensor transformer.h.1.ln_2.bias, which GPT2LMHeadModel needs",
    ),
    (
        "extra",
        lambda at: change_weights(at, lambda weights: weights.update({"transformer.mine": torch.ones(2)})),
        NO_PLACE.format("transformer.mine"),
    ),
    (
        "extra layer",
        lambda at: change_json(at / "config.json", n_layer=1),
        NO_PLACE.format("transformer.h.1.attn.c_attn.weight"),
    ),
    (
        "other shape",
        lambda at: change_json(at / "config.json", n_inner=40),
        r"tensor transformer.h.0.mlp.c_fc.bias of .* has shape \(48,\) where GPT2LMHeadModel has \(40,\); mend",
    ),
    *(
        (
            f"{field} of {size}",
            lambda at, values={field: size}: change_json(at / "config.json", **values),
            r"config.json describes a GPT2LMHeadModel of [\d,]+ parameters, and its files hold [\d,]+ bytes; mend",
        )
        for field, size in {"vocab_size": 10**6, "n_inner": 10**10, "n_positions": 10**9}.items()
    ),
    (
        "a million layers",
        lambda at: change_json(at / "config.json", n_layer=10**6),
        "config.json describes a GPT2LMHeadModel of many more tensors than the .* of its files; mend its numbers of",
    ),
    ("no shard", lambda at: shard(at).unlink(), "is half downloaded: model-00002-of-.*, which .* names, is not there"),
    ("short shard", lambda at: truncate(shard(at)), "model-00002-of-.* is cut short or damaged .*; download it again"),
    ("no index", lambda at: index(at).unlink(), "has no model.safetensors and no model.safetensors.index.json; conve"),
    ("bad index", lambda at: change_json(index(at), weight_map=None), "has no weight_map from tensors to files"),
    ("elsewhere", lambda at: misplaced(at, "../else.safetensors"), "leads out of its folder, to '../else.safetensors'"),
    (
        "long name",
        lambda at: misplaced(at, "a" * 300),
        "names 'aaa.*'…, longer than names of files are; download it again",
    ),
    ("misplaced", lambda at: misplaced(at, shard(at).name), "has no tensor transformer.wpe.weight, which .* says"),
    ("twice", in_two_shards, "tensor transformer.wpe.weight is in model-.* and in model-.*; download both again"),
    ("two", lambda at: (at / "model.safetensors").touch(), "has both model.safetensors and .*; delete the one that is"),
    ("pickle", as_pickle, "only in pytorch_model.bin, a format that can run code when it is read; convert it with"),
]


@pytest.mark.parametrize(("damage", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_is_wrong_is_said_in_one_sentence(folder: Path, damage: Callable[[Path], object], sentence: str) -> None:
    damage(folder)
    with pytest.raises(ValueError, match=sentence) as caught:
        qkv.from_transformers(folder)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(ValueError, match=r"me/gpt2 is neither .* cannot be reached"):
        located("me/gpt2@v2")
    for name, why in (("me/other", "it is not in the cache and the Hub cannot be reached"), ("a b", "its form is not")):
        with pytest.raises(ValueError, match=f"{name} is neither a folder here nor a checkpoint .*: {why}"):
            qkv.from_transformers(name)


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
