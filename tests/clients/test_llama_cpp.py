"""llama.cpp: a decoder goes out in stock form, and from there to GGUF by llama.cpp's own converter, and runs there."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

import qkv

gguf = pytest.importorskip("gguf", reason="`make clients` installs it", exc_type=ImportError)
sentencepiece = pytest.importorskip("sentencepiece")
SOURCE = Path(os.environ.get("LLAMA_CPP_SOURCE", "no folder"))
if not SOURCE.is_dir():
    pytest.skip("`make clients` unpacks llama.cpp", allow_module_level=True)

TEXTS = ["what is one and two?", "three is the sum of the two.", "the other sum is seven."] * 9
PROMPT = torch.arange(10, 34)[None]
FLOAT32 = 0  # as llama.cpp counts types
# It takes the pre-tokenizer of a byte-level vocabulary from a list of published ones, and asks for others to be added.
AS_GPT2 = """
import sys
from conversion.base import TextModel
import convert_hf_to_gguf
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
convert_hf_to_gguf.main()
"""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with scaled rotations": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "gpt2": ("gpt2", {"n_positions": 1024}),  # the number that transformers takes without reading it from the file
}


def both(case: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    kind, fields = CASES[case]
    return models.both(kind, AutoModelForCausalLM, vocab_size=320, **fields)


def write_tokenizer(kind: str, folder: Path) -> None:
    """A vocabulary of the kind that the published models have."""
    if kind == "gpt2":
        tokenizer = ByteLevelBPETokenizer()
        special = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), models.LETTERS, strict=False))
        tokenizer.train_from_iterator(TEXTS, vocab_size=300, min_frequency=1, special_tokens=[*special.values()])
        PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **special).save_pretrained(folder)
        return
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=300,
        hard_vocab_limit=False,
        model_type="bpe",
        byte_fallback=True,
        pad_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the files that are made once."""
    return tmp_path_factory.mktemp("gguf")


def converted(model: PreTrainedModel, folder: Path) -> Path:
    """The GGUF file of a model, through its stock form; made once."""
    folder = folder / type(model).__name__
    path = folder / "model.gguf"
    if path.exists():
        return path
    stock = qkv.to_transformers(model) if type(model).__module__.startswith("qkv.") else model
    kind = stock.config.model_type
    if kind == "gpt2":
        stock.config.n_ctx = stock.config.n_positions  # a field of older files, which the converter reads
    stock.save_pretrained(folder)
    write_tokenizer(kind, folder)
    script = ["-c", AS_GPT2] if kind == "gpt2" else [str(SOURCE / "vendor/llama.cpp/convert_hf_to_gguf.py")]
    search = os.pathsep.join(str(SOURCE / "vendor/llama.cpp" / part) for part in ("", "gguf-py"))
    done = subprocess.run(
        [sys.executable, *script, str(folder), "--outfile", str(path), "--outtype", "f32"],
        env={**os.environ, "PYTHONPATH": search, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return path


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Rows of queries and keys as llama.cpp has them: it rotates neighbours, transformers the halves of a head."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


@pytest.mark.parametrize("case", CASES)
def test_gguf(case: str, files: Path, side_by_side: Callable[..., None]) -> None:
    ours, stock = both(case)

    @torch.no_grad()
    def convert(model: PreTrainedModel) -> list[Tensor]:
        path = converted(model, files / case)
        tensors = {each.name: torch.tensor(each.data) for each in gguf.GGUFReader(path).tensors}
        layer = ours.model.layers[1]
        if CASES[case][0] == "llama":
            heads = ours.config.num_attention_heads, ours.config.num_key_value_heads
            for name, count in zip(("q", "k"), heads, strict=True):
                weight = getattr(layer.self_attn, f"{name}_proj").weight
                assert torch.equal(tensors[f"blk.1.attn_{name}.weight"], interleaved(weight, count))
        assert torch.equal(tensors["blk.1.ffn_up.weight"], layer.mlp.up_proj.weight)
        again = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        assert type(again) is type(stock)
        expected, found = stock.state_dict(), again.state_dict()
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        logits = again(PROMPT).logits
        if "scaled" not in case:  # transformers does not read back the factors of rotations
            assert_close(logits, model(PROMPT).logits, rtol=1e-5, atol=1e-5)
        return [logits, *(tensors[name] for name in sorted(tensors))]

    side_by_side("llama.cpp", f"{case} to GGUF, read by gguf and transformers", convert, ours, stock)


@pytest.mark.parametrize("case", CASES)
def test_running(case: str, files: Path, monkeypatch: pytest.MonkeyPatch, side_by_side: Callable[..., None]) -> None:
    library = SOURCE / "build" / "bin"
    if not library.is_dir():
        pytest.skip("`make clients` builds llama.cpp where there is a compiler")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(library))
    monkeypatch.syspath_prepend(SOURCE)
    llama_cpp = pytest.importorskip("llama_cpp", reason="`make clients` installs what it imports")

    @torch.no_grad()
    def run(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
        path = converted(model, files / case)
        engine = llama_cpp.Llama(
            str(path), n_ctx=64, n_threads=1, logits_all=True, type_k=FLOAT32, type_v=FLOAT32, verbose=False
        )
        engine.eval(PROMPT[0].tolist())
        logits = torch.tensor(engine.scores[: PROMPT.shape[1]])
        # It looks GELU up in a table of half precision.
        precision = 5e-3 if case == "gpt2" else 1e-4
        assert_close(logits, model(PROMPT).logits[0], rtol=precision, atol=precision)
        engine.reset()
        tokens = engine.generate(PROMPT[0].tolist(), temp=0.0, repeat_penalty=1.0)
        text = torch.tensor([next(tokens) for _ in range(12)])
        settings = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "pad_token_id": 1}
        assert torch.equal(text, model.generate(PROMPT, **settings)[0, PROMPT.shape[1] :])
        return logits, text

    side_by_side("llama.cpp", f"{case} in GGUF, logits and greedy text", run, *both(case))
