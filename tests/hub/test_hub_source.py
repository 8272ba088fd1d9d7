"""What takes a model takes a Hub id, as a user types it: trainings start from it, it predicts, writes and is evaluated."""

import re
from collections.abc import Callable, Iterator

import pytest

import own_runs
import stock_folders
from endpoint import client
from loopback import serving
from loopback.server import environment

pytestmark = pytest.mark.slow
Command = Callable[..., str]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Run commands that succeed beside a Hub with stock models and a run; the output of each."""
    place = tmp_path_factory.mktemp("place")
    for kind in ("classes", "images"):
        own_runs.data(kind, place / kind)
    with serving() as hub:
        for make in (stock_folders.bert, stock_folders.gpt2, stock_folders.vit):
            make(place / make.__name__)
            hub.put(f"alice/{make.__name__}", place / make.__name__)
        variables = environment(hub.url, place / "home", "hf_alice", XDG_CACHE_HOME=place / "cache")
        with client(variables, place) as asked:

            def run(*words: str) -> str:
                answer = asked.run(*words)
                assert answer["status"] == 0, answer["err"]
                return answer["out"] + answer["err"]

            run("train", "classes/classes.jsonl", *own_runs.KINDS["classes"], "out=run")
            run("publish", "run", "alice/run", "--private", "--tag", "v1")
            yield run


@pytest.mark.parametrize("init", ["alice/run", "alice/run@v1", "alice/bert"])
def test_a_training_starts_from_it(init: str, command: Command) -> None:
    out = f"out={init.replace('/', '-')}"
    printed = command("train", "classes/classes.jsonl", f"init={init}", "max_steps=1", out)
    assert re.search(rf"\b(\d+) of \1 tensors taken over from {init}\n", printed)


@pytest.mark.parametrize("name", ["alice/run", "alice/run@v1", "alice/bert"])
def test_it_predicts_and_is_evaluated(name: str, command: Command) -> None:
    assert "warm,good" in (printed := command("predict", name, "warm")) or "warm,bad" in printed
    assert command("predict", name, "warm", "--trust-remote-code") == printed
    out = f"evaluation-{name.replace('/', '-')}"
    assert "accuracy" in command("evaluate", name, "classes/classes.jsonl", "resamples=20", "--out", out)


def test_other_stock_models(command: Command) -> None:
    assert command("generate", "alice/gpt2", "warm", "max_new_tokens=3").startswith("warm")
    words = ["evaluate", "alice/vit", "images/images.jsonl", "resamples=20", "--out", "evaluation-vit"]
    assert "accuracy" in command(*words)
