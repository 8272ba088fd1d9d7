"""What is measured on a copy: the allocator's peak, however far it is extrapolated, and nothing of the training moves."""

import pytest
import torch
from accelerate import Accelerator
from torch.profiler import ProfilerActivity, profile

import qkv
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.memory import step_cost
from qkv.scripts.training.memory.step_cost import StepCost, gradient_bytes, held_bytes, is_measurable, measure
from recipes import recipe_of
from tiny_training import task_of

RECIPE = recipe_of(max_steps=4, batch_size=16, learning_rate=1e-2)
MUCH = 10**12


def trimmed(records: list[Record], places: object) -> Batch:
    """Texts as long as the longest of them."""
    length = max(record["length"] for record in records)
    ids = torch.stack([record["input_ids"][:length] for record in records])
    return {"input_ids": ids, "labels": ids}


def loop_of(*, dropout: float = 0.1, lengths: list[int] | None = None, **fields: object) -> Loop:
    """A decoder and texts of 4 to 40 tokens."""
    lengths = lengths or [4 + index % 37 for index in range(64)]
    texts = Columns({"input_ids": torch.randint(3, 50, (64, 40)), "length": torch.tensor(lengths)}, lengths)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "residual_dropout": dropout}
    model = qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(vocab_size=50, **sizes))
    count = {"count": lambda batch: int(batch["labels"][:, 1:].numel())}
    return Loop(Accelerator(cpu=True), model, changed(RECIPE, **fields), task_of(texts, collate=trimmed, **count))


def allocated(loop: Loop) -> int:
    """Bytes that torch's allocator gives out at the most in the second of two equal steps."""
    trial = step_cost.copied(loop)
    size = loop.loader.share.size
    (places,) = [step_cost.longest_first(loop, step) for step in [next(loop.loader.sampler.steps())]]
    batches = [step_cost.micro_batch(trial, places[start : start + size]) for start in range(0, len(places), size)]
    batches = [batches[0]] * len(batches)
    trial.step(batches)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as events:
        trial.step(batches)
    now = peak = 0
    for event in events.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak + held_bytes(trial)


@pytest.mark.parametrize(
    "fields", [{}, {"accumulate": 4}, {"ema_decay": 0.9}, {"gradient_checkpointing": True}], ids=str
)
def test_the_peak_is_that_of_the_allocator(fields: dict[str, object]) -> None:
    loop = loop_of(**fields)
    accumulate = loop.recipe.optimization.accumulate
    assert measure(loop, MUCH).peak(accumulate) == pytest.approx(allocated(loop), rel=0.05)


def test_few_examples_tell_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of()
    whole = measure(loop, MUCH)
    short = measure(loop, 2 * held_bytes(loop))
    assert short.peak(1) == pytest.approx(whole.peak(1), rel=0.1)
    monkeypatch.setattr(step_cost, "SECONDS", 0.0)
    assert measure(loop, MUCH).peak(1) == pytest.approx(whole.peak(1), rel=0.3)


def test_the_longest_text_counts_and_not_the_first() -> None:
    short, one_long = loop_of(lengths=[4] * 64), loop_of(lengths=[4] * 63 + [40])
    assert measure(one_long, MUCH).each > 5 * measure(short, MUCH).each


def test_more_parts_take_less_and_gradients_stay() -> None:
    cost = StepCost(1.0, held=100, each=10.0, gradients=30, batch_size=16)
    assert [cost.peak(parts) for parts in (1, 2, 4, 16)] == [260, 210, 170, 140]
    assert StepCost(1.0, held=100, each=1.0, gradients=30, batch_size=16).peak(1) == 130


def test_the_training_does_not_notice() -> None:
    """The weights after four steps are equal bit by bit, dropout and averaged weights among them."""
    results = []
    for before in (lambda loop: None, lambda loop: measure(loop, MUCH)):
        torch.manual_seed(0)
        loop = loop_of(dropout=0.5, ema_decay=0.9)
        weights = [weight.clone() for weight in loop.model.parameters()]
        before(loop)
        assert all(map(torch.equal, weights, loop.model.parameters())) and loop.done == 0
        assert not loop.optimizer.state and all(weight.grad is None for weight in loop.model.parameters())
        torch.manual_seed(1)
        losses = [step.loss for step in loop.steps()]
        loop.finish()
        results.append([*losses, *loop.model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("limit", [100.0, 0.0])
def test_seconds_are_those_of_a_whole_step(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that each example moves by a second, also where only one of them is measured."""
    now, step = [0.0], Loop.step

    def one_second_each(self: Loop, batches: list[Batch]) -> object:
        now[0] += sum(len(batch["input_ids"]) for batch in batches)
        return step(self, batches)

    monkeypatch.setattr(Loop, "step", one_second_each)
    monkeypatch.setattr(step_cost.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(step_cost, "SECONDS", limit)
    assert measure(loop_of(accumulate=4), MUCH).seconds == measure(loop_of(), MUCH).seconds == 16.0


def test_frozen_weights_have_no_gradients() -> None:
    loop = loop_of()
    every = gradient_bytes(loop)
    frozen = next(loop.model.parameters())
    frozen.requires_grad_(False)
    assert gradient_bytes(loop) == every - frozen.nbytes


def test_what_is_compiled_is_not_measured() -> None:
    loop = loop_of()
    assert is_measurable(loop)
    loop.recipe = changed(loop.recipe, compile=True)
    assert not is_measurable(loop)
