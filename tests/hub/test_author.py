"""The Hub without `qkv publish`: `push_to_hub`, `Trainer` and its strategies, `pipeline`; data sets that are read from it.

One process is the author, who has qkv; another has not, and an empty cache.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import push_jobs
from endpoint import client
from loopback import Hub, serving
from loopback.server import environment

pytestmark = pytest.mark.upstream

JOBS = {"push_jobs": "pushed proposed leftovers saved checkpoint", "data_jobs": "tables pictures missing"}
MODEL = ["LICENSE", "README.md", "config.json", "model.safetensors"]
WORDS = ["tokenizer.json", "tokenizer_config.json"]
RUN = [*MODEL, *WORDS, "training_args.bin"]
CHECKPOINT = [
    *["LICENSE", "config.json", "model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt", *WORDS],
    *["trainer_state.json", "training_args.bin"],
]


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture(scope="module")
def author(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("author")
    with client(environment(hub.url, place, "hf_alice"), place) as asked:
        return {job: asked.call(f"{file}.{job}") for file, jobs in JOBS.items() for job in jobs.split()}


@pytest.mark.slow
def test_a_model_and_its_tokenizer_are_two_commits(hub: Hub, author: dict[str, Any]) -> None:
    answer = author["pushed"]
    assert answer["files"] == sorted([*MODEL, *WORDS]) and answer["private"] is True
    assert [commit.title for commit in hub.model("alice/pushed").history()[:-1]] == ["words", "weights"]
    assert answer["logits"][0] == answer["logits"][1]
    masked, module = "QkvEncoderForMaskedLM", "qkv.modeling.modeling_encoder"
    assert answer["classes"] == [*[f"{module}_pretraining.{masked}"] * 2, f"{module}.QkvEncoderModel"]


def test_a_second_version_is_proposed_or_goes_to_a_branch(author: dict[str, Any]) -> None:
    answer = dict(author["proposed"])
    first, change = answer.pop("first"), answer.pop("change")
    assert first != change and answer == {"main": first, "second": change, "refs/pr/1": change}


def test_old_weights_are_not_left_beside_new_ones(author: dict[str, Any]) -> None:
    message, is_unchanged = author["leftovers"]
    assert message.startswith("alice/leftovers holds model.safetensors, which") and is_unchanged


def test_saving_can_push(author: dict[str, Any]) -> None:
    assert author["saved"]["files"] == MODEL
    assert author["saved"]["logits"][0] == author["saved"]["logits"][1]


def test_a_trainer_pushes_checkpoints_with_their_code(hub: Hub, author: dict[str, Any]) -> None:
    answer = author["checkpoint"]
    checkpoints = [f"last-checkpoint/{name}" for name in CHECKPOINT]
    assert answer["during"] == sorted([*(name for name in RUN if name != "README.md"), *checkpoints])
    assert answer["after"] == sorted([*RUN, *checkpoints])
    assert answer["logits"][0] == answer["logits"][1]


@pytest.mark.slow
def test_a_clean_client_gets_the_same_numbers_and_passes_them_on(
    hub: Hub, author: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("clean")
    with client(environment(hub.url, place, "hf_alice"), place, "clean") as asked:
        numbers = asked.call("clean_client_jobs.numbers")
        assert numbers == {label: ["transformers_modules", author[label]["logits"][0]] for label in numbers}
        words = asked.call("clean_client_jobs.task")
        assert words == author["pushed"]["answer"] and set(words) < set(push_jobs.WORDS)
        assert asked.call("clean_client_jobs.passed_on") == author["pushed"]["logits"][0]


def test_a_data_set_of_the_hub_is_read_at_its_revision(author: dict[str, Any]) -> None:
    answer = author["tables"]
    old, new = [f"old {n}" for n in range(6)], [f"new {n}" for n in range(4)]
    assert answer["table"] == answer["stream"] == new
    assert answer["table at first"] == answer["stream at first"] == old
    assert answer["splits"] == ["train", "test"] and answer["test"] == ["tested"]
    assert answer["identity"].endswith(f"@{answer['second']}") and answer["identity at first"].endswith(answer["first"])


def test_pictures_of_the_hub_are_read(author: dict[str, Any]) -> None:
    assert author["pictures"] == {"table": [[0, [3, 2]], [1, [3, 2]]], "stream": [[0, [3, 2]], [1, [3, 2]]]}


def test_what_the_hub_has_not_is_refused_in_a_sentence(author: dict[str, Any]) -> None:
    answer = author["missing"]
    assert "is no file or folder here, nor got from the Hub" in answer["nobody"]
    assert "validation" in answer["split"] and "train" in answer["split"]
    assert "has no column 'txt'; did you mean 'text'?" in answer["column"]
    assert all("\n" not in said for said in answer.values())
