"""Published folders load with the oldest transformers we claim and with the newest there is: `make compatibility`.

QKV_PYTHONS names the interpreters of environments that hold transformers and torch, and no qkv.
"""

import os
import subprocess

import pytest
import torch

from families.base import Row
from qkv.scripts.common.inspector import outputs
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.clean_process import load_in_clean_process
from test_hub import EVERY, QUICK, built, job

# Every family, and every head of some.
FAMILIES = ("bert", "vit", "gpt2", "t5", "clip", "clip_text_model")
HEADS = {
    name: row
    for name, row in EVERY.items()
    if name in QUICK or (isinstance(row, Row) and row.family.model_type in FAMILIES and not row.name)
}
PYTHONS = os.environ.get("QKV_PYTHONS", "").split()
VERSIONS = "import torch, transformers; print(transformers.__version__, torch.__version__)"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory):
    if not PYTHONS:
        pytest.skip("QKV_PYTHONS names no interpreter of another environment; `make compatibility` makes two")
    place = tmp_path_factory.mktemp("compatibility")
    models, jobs = {}, {}
    for name, row in HEADS.items():
        models[name] = built(row)
        if models[name]._supports_sdpa:
            models[name].set_attn_implementation("sdpa")
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
