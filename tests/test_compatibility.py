"""Published folders load with the oldest transformers we claim and with the newest there is: `make compatibility`.

QKV_PYTHONS names the interpreters of environments that hold transformers and torch, and no qkv.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from test_generate import prompt

import tiny
from families.base import Row
from qkv.scripts.common.inspector import Job, outputs
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.loading import load_in_clean_process
from speaking import build
from test_hub import EVERY, QUICK, built, job

# Every head of some families; QUICK has every family.
FAMILIES = ("bert", "vit", "gpt2", "t5", "clip", "clip_text_model")
HEADS = [
    name
    for name, row in EVERY.items()
    if name not in QUICK and isinstance(row, Row) and row.family.model_type in FAMILIES and not row.name
]
PYTHONS = os.environ.get("QKV_PYTHONS", "").split()
# Every kind of cache, and the ways of generating with it: greedy, without a cache, with a static one, by beams.
WRITERS = ("gpt2", "llama", "mistral", "bloom", "linear", "deltanet", "t5", "bart", "rnnsearch")
WAYS = [{}, {"use_cache": False}, {"cache_implementation": "static", "disable_compile": True}, {"num_beams": 3}]
WAYS = [{"max_new_tokens": 6, "do_sample": False, "pad_token_id": tiny.PAD, **way} for way in WAYS]
VERSIONS = "import torch, transformers; print(transformers.__version__, torch.__version__)"


@pytest.mark.parametrize("python", PYTHONS or ["none"])
@pytest.mark.parametrize("names", [QUICK, pytest.param(HEADS, marks=pytest.mark.slow)], ids=["families", "heads"])
def test_another_environment_finds_the_same_numbers(names: Sequence[str], tmp_path: Path, python: str) -> None:
    if not PYTHONS:
        pytest.skip("QKV_PYTHONS names no interpreter of another environment; `make compatibility` makes two")
    models, jobs = {name: built(EVERY[name]) for name in names}, {}
    for name, model in models.items():
        jobs[name] = job(EVERY[name], model, build_folder(model, tmp_path / name))
    versions = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout.strip()
    print(f"transformers and torch: {versions}")
    for (name, asked), found in zip(
        jobs.items(), load_in_clean_process(list(jobs.values()), python=python), strict=True
    ):
        for key, value in outputs(models[name], asked.inputs).items():
            assert torch.equal(found.outputs[key], value), (name, key)


@pytest.mark.parametrize("python", PYTHONS or ["none"])
def test_another_environment_writes_the_same_tokens(tmp_path: Path, python: str) -> None:
    if not PYTHONS:
        pytest.skip("QKV_PYTHONS names no interpreter of another environment; `make compatibility` makes two")
    jobs, expected = [], []
    for kind in WRITERS:
        model = build(kind)
        inputs = prompt(model)
        auto_class = "AutoModelForCausalLM"
        if model.config.is_encoder_decoder:
            auto_class = "AutoModelForSeq2SeqLM"
            inputs["decoder_input_ids"] = torch.full((len(inputs["input_ids"]), 1), tiny.START)
        jobs.append(Job(build_folder(model, tmp_path / kind), auto_class, inputs=inputs, generated=WAYS))
        expected.append([model.generate(**inputs, **way).tolist() for way in WAYS])
    found = [loaded.report["tokens"] for loaded in load_in_clean_process(jobs, python=python)]
    assert found == expected
    assert all(greedy == plain == static for greedy, plain, static, _ in found)
