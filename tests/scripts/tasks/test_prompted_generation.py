"""A decoder learns what is made of a prompt, and a run leaves what it makes, a card that says how, and a config."""

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, pipeline

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.corpus import Corpus, PromptedCorpus
from qkv.scripts.publishing.card.card import make_card
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks.prompted_generation import PromptedGeneration, generator
from qkv.scripts.training.run import Run, train

TINY = ["text.made=40", "text.evaluated=4", "max_steps=2", "warmup_steps=1", "eval_every=2", "batch_size=8",
        "model.hidden_size=16", "model.num_hidden_layers=2", "model.pattern=[row,column]",
        "model.num_attention_heads=2"]  # fmt: skip
SMALL = recipe.load("tunes", ["holdout=0"])


def data_of(corpus: Corpus) -> PromptedCorpus:
    def score(prompts: list[str], made: list[str]) -> dict[str, float]:
        return {"right": sum(one == other.split()[0] for one, other in zip(made, prompts, strict=True)) / len(made)}

    return PromptedCorpus(corpus, "word", 2, score, lambda generate, folder: {}, "")


def corpus(**others: object) -> Corpus:
    texts = {"train": ["a b", "b a", "b b"], "test": ["a a"]}
    return Corpus("c", "c", "s", texts, targets={"train": ["x y x", "y y y", "x x x"], "test": ["y x y"], **others})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run") / "out"
    return train(recipe.load("tunes", [*TINY, f"out={folder}"]), "qkv train tunes")


def test_only_what_is_made_is_to_be_predicted() -> None:
    task = PromptedGeneration(SMALL, data_of(corpus()))
    batch = task.collate(task.train.__getitems__([0, 1]), [0, 1])
    assert [task.processor.decode(row) for row in batch["input_ids"]] == ["a b <s> x y x", "b a <s> y y y"]
    assert (batch["labels"][:, :3] == IGNORED).all() and task.count(batch) == 6
    assert torch.equal(batch["labels"][:, 3:], batch["input_ids"][:, 3:])
    assert task.config | {"text_length": 3, "grid_columns": 2, "max_position_embeddings": 6} == task.config
    found = task.measure({"loss": 6.0, "targets": 3.0}, [("a", "a b"), ("x", "b a")])
    assert found == {"loss": 2.0, "bits_per_word": 2.0 / math.log(2), "right": 0.5}
    with pytest.raises(ValueError, match="text.tokenizer"):
        PromptedGeneration(SMALL, data_of(corpus(train=["x", "y y y", "x x x"])))


@pytest.mark.slow
def test_what_is_written_is_what_was_learned_and_the_same_every_time(finished: Run) -> None:
    task, model = finished.task, finished.model
    generate = generator(model, task.processor, task.generation)
    torch.manual_seed(3)
    first = generate(["C major AABA", "G minor ABAB"])
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), drawn)  # as if nothing had been sampled
    assert first == generate(["C major AABA", "G minor ABAB"])
    known = {
        word for row in task.train.columns["input_ids"][:, 4:] for word in task.processor.convert_ids_to_tokens(row)
    }
    assert all(len(text.split()) == 72 and set(text.split()) <= known for text in first)


def test_the_run_leaves_products_and_says_so(finished: Run) -> None:
    facts = json.loads((finished.folder / "record.json").read_text())
    assert facts["products"] == ["tunes.png", "tunes.mid"] and set(facts["pictures"]) == {"curve.png", "tunes.png"}
    assert all((finished.folder / name).stat().st_size for name in facts["products"])
    assert set(facts["metrics"]["test"]) == {"loss", "bits_per_event", "notes_in_key", "bars_in_form", "lawful"}
    assert "![Tunes by the model" in str(make_card(facts))


def test_the_saved_model_makes_something_by_itself(finished: Run) -> None:
    """A pipeline and `generate` are told nothing: how much is written, and of what, is saved."""
    saved = GenerationConfig.from_pretrained(finished.folder)
    assert (saved.do_sample, saved.max_new_tokens, saved.top_k) == (True, 72, 0)
    compose = pipeline("text-generation", model=str(finished.folder))
    text = compose("G major AABA", return_full_text=False)[0]["generated_text"]
    assert len(text.split()) == 72 and not {"major", "minor", "<s>"} & set(text.split())


@pytest.mark.parametrize(
    ("name", "file", "start"), [("tunes", "tune.mid", b"MThd"), ("digits-draw", "seven.png", b"\x89PNG")]
)
def test_the_program_of_the_card_makes_a_file(
    name: str, file: str, start: bytes, finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != finished.record["recipe"]["name"]:
        words = [*TINY, "text.evaluated=12", f"out={tmp_path / 'out'}"]
        finished = train(recipe.load(name, words), f"qkv train {name}")
    program = str(make_card(finished.record)).split("```python\n")[1].split("```")[0]
    assert f'model="user/qkv-{name}", trust_remote_code=True' in program
    monkeypatch.chdir(tmp_path)
    exec(compile(program.replace(f"user/qkv-{name}", str(finished.folder)), "card", "exec"), {})
    assert (tmp_path / file).read_bytes()[:4] == start
