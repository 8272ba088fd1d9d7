"""The loop: equal steps however they are split into micro-batches; evaluation is over targets."""

import itertools
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor

import qkv
import scale_worker
from qkv.modeling import modeling_decoder
from qkv.scripts.data.examples import Batch, Columns
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training.loop import Loop, out_of_memory_explained, parameter_groups
from recipes import recipe_of
from sampling import sampled
from tiny_training import task_of

TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
RECIPE = recipe_of(max_steps=4, batch_size=8, learning_rate=1e-2, warmup_steps=2, weight_decay=0.1)
SPLIT = [name for name in scale_worker.CASES if name not in ("pairs", "dropout")]


@pytest.mark.parametrize("case", sampled(SPLIT, 3))
def test_micro_batches_add_up_to_the_batch(case: str) -> None:
    with scale_worker.fresh_state():
        (whole, model), (parts, other) = (scale_worker.curve(case, "float64", 3, accumulate=n) for n in (1, 4))
    for key in ("loss", "norm", "tokens", "evaluation"):
        assert parts[key] == pytest.approx(whole[key], rel=0, abs=1e-10), key
    weights = other.state_dict()
    assert all((value - weights[name]).abs().max() < 1e-10 for name, value in model.state_dict().items())


def image_loop(**fields: object) -> Loop:
    """Images with 16 patches of 4 in a batch, some without a label."""
    torch.manual_seed(0)
    config = qkv.QkvImageEncoderConfig(image_size=4, patch_size=2, num_channels=1, num_labels=3, **TINY)
    labels = torch.randint(0, 3, (20,))
    labels[::7] = -100
    examples = Columns({"pixel_values": torch.randn(20, 1, 4, 4).double(), "labels": labels})

    def score(outputs: Any, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}

    task = task_of(examples, count=lambda batch: int((batch["labels"] != -100).sum()), score=score)
    model = qkv.QkvImageEncoderForImageClassification(config).double()
    return Loop(Accelerator(cpu=True), model, changed(RECIPE, **fields), task)


def text_loop(accelerator: Accelerator | None = None, **fields: object) -> Loop:
    torch.manual_seed(0)
    model = qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(vocab_size=11, **TINY)).double()
    ids = torch.randint(0, 11, (20, 11))
    examples = Columns({"input_ids": ids, "labels": ids.masked_fill(torch.rand(20, 11) < 0.4, -100)})
    task = task_of(examples, count=lambda batch: int((batch["labels"][:, 1:] != -100).sum()))
    return Loop(accelerator or Accelerator(cpu=True), model, changed(RECIPE, **fields), task)


def losses(loop: Loop) -> Tensor:
    return torch.stack([step.loss for step in loop.steps()])


def test_evaluation_is_over_targets() -> None:
    loop = image_loop()
    split = loop.task.train
    found = loop.evaluate(split)
    with torch.no_grad():
        outputs = loop.model.eval()(**split.columns)
    right = (outputs.logits.argmax(-1) == split.columns["labels"]).sum() / (split.columns["labels"] != -100).sum()
    assert found == pytest.approx({"loss": outputs.loss.item(), "accuracy": right.item()}, abs=1e-7)
    loop.model.classifier.bias.data[0] = 1e3
    assert loop.evaluate(Columns({**split.columns, "labels": torch.full((20,), 2)}))["accuracy"] == 0.0


def test_training_learns_and_reports() -> None:
    steps = list(image_loop(max_steps=60).steps())
    assert [step.number for step in steps] == list(range(1, 61)) and steps[-1].loss < 0.7 * steps[0].loss
    assert [step.learning_rate for step in steps[:3]] == [0.0, 0.005, 0.01] and steps[-1].learning_rate < 1e-4
    assert all(step.grad_norm > 0 and not step.tokens for step in steps)
    assert all(step.tokens == 8 * 11 for step in text_loop().steps())


def test_checkpointing_changes_no_number_and_training_keeps_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_decoder, "DynamicCache", None)
    assert (losses(text_loop()) - losses(text_loop(gradient_checkpointing=True))).abs().max() < 1e-12
    loop = text_loop(max_steps=1)
    assert loop.evaluate(loop.task.train)["loss"] > 0


def compiled_graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.fixture
def compiled() -> Any:
    """Loops that compile, by backend, with two graphs at most."""
    torch._dynamo.reset()
    AcceleratorState._reset_state()
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        yield lambda backend, **fields: text_loop(Accelerator(cpu=True, dynamo_backend=backend), **fields)
    AcceleratorState._reset_state()


@pytest.mark.slow
def test_compiling_changes_no_number(compiled: Any) -> None:
    before, found = compiled_graphs(), losses(compiled("inductor"))
    assert compiled_graphs() > before
    AcceleratorState._reset_state()
    assert (found - losses(text_loop())).abs().max() < 1e-10


def test_varying_lengths_are_compiled_once(compiled: Any) -> None:
    """The first length has a graph of its own, all others share one."""
    loop, before, lengths = compiled("eager", max_steps=14), compiled_graphs(), itertools.cycle([6, 9, 7, 11, 5, 10, 8])
    whole = loop.task.collate
    loop.task.collate = lambda records, places: {
        name: value[:, :length] for length in [next(lengths)] for name, value in whole(records, places).items()
    }
    assert len(losses(loop)) == 14 and 1 <= compiled_graphs() - before <= 2


def test_matrices_alone_decay() -> None:
    model = image_loop().model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, kept = ([names[id(p)] for p in group["params"]] for group in parameter_groups(model, 0.1))
    assert sorted(decayed + kept) == sorted(names.values()) and all(name.endswith("weight") for name in decayed)
    assert not any("norm" in name or name.endswith("bias") or "class_token" in name for name in decayed)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("accumulate", "contrasted", "mend"),
    [(1, False, "accumulate=2"), (8, False, r"text\.length"), (8, True, r"model\.embedding_chunk_size")],
)
def test_step_without_memory_is_answered_with_fields_that_need_less(
    error: Exception, accumulate: int, contrasted: bool, mend: str
) -> None:
    loop = text_loop(accumulate=accumulate)
    type(loop.task).in_batch_negatives = contrasted
    with pytest.raises(RuntimeError, match=f"batch_size=8 .*{mend}"), out_of_memory_explained(loop):
        raise error
    with pytest.raises(RuntimeError, match="^shapes differ$"), out_of_memory_explained(loop):
        raise RuntimeError("shapes differ")
