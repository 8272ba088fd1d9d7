"""Published folders load with the oldest transformers we claim and with the newest there is: `make compatibility`.

QKV_PYTHONS names the interpreters of environments that hold transformers and torch, and no qkv.
"""

import os
import subprocess
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

# Every family, and every head of some.
FAMILIES = ("bert", "vit", "gpt2", "t5", "clip", "clip_text_model")
HEADS = {
    name: row
    for name, row in EVERY.items()
    if name in QUICK or (isinstance(row, Row) and row.family.model_type in FAMILIES and not row.name)
}
PYTHONS = os.environ.get("QKV_PYTHONS", "").split()
# Every kind of cache, and the ways of generating with it: greedy, without a cache, with a static one, by beams.
WRITERS = ("gpt2", "llama", "mistral", "bloom", "linear", "deltanet", "t5", "bart", "rnnsearch")
WAYS = [{}, {"use_cache": False}, {"cache_implementation": "static", "disable_compile": True}, {"num_beams": 3}]
WAYS = [{"max_new_tokens": 6, "do_sample": False, "pad_token_id": tiny.PAD, **way} for way in WAYS]
VERSIONS = "import torch, transformers; print(transformers.__version__, torch.__version__)"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory):
    if not PYTHONS:
        pytest.skip("QKV_PYTHONS names no interpreter of another environment; `make compatibility` makes two")
    place = tmp_path_factory.mktemp("compatibility")
    models, jobs = {}, {}
    for name, row in HEADS.items():
        models[name] = built(row)
        jobs[name] = job(row, models[name], build_folder(models[name], place / name))
    return models, jobs


@pytest.mark.parametrize("python", PYTHONS or ["none"])
def test_another_environment_finds_the_same_numbers(published, python: str) -> None:
    models, jobs = published
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
