"""transformers' own ways to the Hub with our models: `push_to_hub`, `Trainer` and its strategies, `pipeline`.

One process is the author, who has qkv; another has not, and an empty cache.
"""

from collections.abc import Iterator

import pytest

import clean_client_jobs
import push_jobs
from endpoint import Answers, Client, Endpoint, chosen

pytestmark = pytest.mark.upstream

MODEL = ["LICENSE", "README.md", "config.json", "model.safetensors"]
WORDS = ["tokenizer.json", "tokenizer_config.json"]
RUN = [*MODEL, *WORDS, "training_args.bin"]
CHECKPOINT = [
    *["LICENSE", "config.json", "model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt", *WORDS],
    *["trainer_state.json", "training_args.bin"],
]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    place = tmp_path_factory.mktemp("endpoint")
    with chosen(place) as found:
        yield found
        found.delete(place, *push_jobs.LABELS, "passed_on")


@pytest.fixture(scope="module")
def author(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    environment = endpoint.environment(tmp_path_factory.mktemp("author"))
    return Client("push_jobs", list(push_jobs.JOBS), environment).answers()


@pytest.fixture(scope="module")
def clean_client(endpoint: Endpoint, author: Answers, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    environment = endpoint.environment(tmp_path_factory.mktemp("clean_client"))
    return Client("clean_client_jobs", list(clean_client_jobs.JOBS), environment).answers()


def test_a_model_and_its_tokenizer_are_two_commits(author: Answers) -> None:
    answer = author["pushed"]
    assert answer["files"] == sorted([*MODEL, *WORDS])
    assert answer["titles"] == ["words", "weights"]
    assert answer["private"] is True


def test_the_author_gets_the_package_and_not_the_copy(author: Answers) -> None:
    answer = author["pushed"]
    assert answer["logits"][0] == answer["logits"][1]
    masked, module = "QkvEncoderForMaskedLM", "qkv.modeling.modeling_encoder"
    assert answer["classes"] == [*[f"{module}_pretraining.{masked}"] * 2, f"{module}.QkvEncoderModel"]


def test_a_second_version_is_proposed_or_goes_to_a_branch(author: Answers) -> None:
    answer = dict(author["proposed"])
    first, change = answer.pop("first"), answer.pop("change")
    assert first != change
    assert answer.pop("main") == first
    assert set(answer) == {"second", "refs/pr/1"} and all(found == change for found in answer.values())


def test_old_weights_are_not_left_beside_new_ones(author: Answers) -> None:
    answer = author["leftovers"]
    assert answer["refused"]["kind"] == "ValueError" and answer["unchanged"]
    assert answer["refused"]["message"].startswith(f"{answer['name']} holds model.safetensors, which this push would")


def test_saving_can_push(author: Answers) -> None:
    assert author["saved"]["files"] == MODEL
    assert author["saved"]["logits"][0] == author["saved"]["logits"][1]


def test_a_trainer_pushes_checkpoints_with_their_code(author: Answers) -> None:
    answer = author["checkpoint"]
    checkpoints = [f"last-checkpoint/{name}" for name in CHECKPOINT]
    assert answer["during"] == sorted([*(name for name in RUN if name != "README.md"), *checkpoints])
    assert answer["after"] == sorted([*RUN, *checkpoints]) and len(answer["pushes"]) == 4
    assert answer["logits"][0] == answer["logits"][1]


@pytest.mark.slow
@pytest.mark.parametrize("label", clean_client_jobs.ENCODERS)
def test_a_clean_client_gets_the_same_numbers(author: Answers, clean_client: Answers, label: str) -> None:
    expected = author[label]["logits"][0]
    found = {"home": "transformers_modules", "logits": expected, "body": "QkvEncoderModel"}
    assert clean_client["numbers"][label] == found


@pytest.mark.slow
def test_a_clean_client_has_the_same_pipeline(author: Answers, clean_client: Answers) -> None:
    assert clean_client["task"] == author["pushed"]["answer"]
    assert set(clean_client["task"]) < set(push_jobs.WORDS)


@pytest.mark.slow
def test_a_clean_client_passes_the_model_on(author: Answers, clean_client: Answers) -> None:
    assert clean_client["passed_on"] == author["pushed"]["logits"][0]
