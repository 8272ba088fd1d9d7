"""The loop: the same steps however they are cut into parts and shared by processes; evaluation is exact."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from transformers import Speech2TextConfig, WhisperConfig

import qkv
import tiny
from qkv.modeling import modeling_decoder
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.object_detection import ObjectDetection
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.loop import UNITS, Loop, count_tokens, parameter_groups, unit_of
from qkv.scripts.training.record import compiled_graphs
from recipes import recipe_of
from tiny_training import task_of

TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
RECIPE = recipe_of(max_steps=4, batch_size=8, learning_rate=1e-2, warmup_steps=2, weight_decay=0.1)


def image_model(**fields: object) -> nn.Module:
    config = qkv.QkvImageEncoderConfig(image_size=4, patch_size=2, num_channels=1, num_labels=3, **TINY, **fields)
    return qkv.QkvImageEncoderForImageClassification(config).double()


def text_model(**fields: object) -> nn.Module:
    return qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(vocab_size=11, **TINY, **fields)).double()


def image_task() -> Task:
    labels = torch.randint(0, 3, (20,))
    labels[::7] = -100  # parts with different numbers of targets
    examples = Columns({"pixel_values": torch.randn(20, 1, 4, 4).double(), "labels": labels})
    return task(examples, lambda batch: int((batch["labels"] != -100).sum()))


def text_task() -> Task:
    ids = torch.randint(0, 11, (20, 6))
    labels = ids.masked_fill(torch.rand(20, 6) < 0.4, -100)
    return task(
        Columns({"input_ids": ids, "labels": labels}), lambda batch: int((batch["labels"][:, 1:] != -100).sum())
    )


def detector() -> nn.Module:
    config = tiny.detector(num_queries=5, auxiliary_loss=True, **dict.fromkeys(tiny.DROPOUT, 0.0))
    return qkv.QkvDetectionForObjectDetection(config).double()


def object_task() -> Task:
    """Images with no, one or several objects each, so that parts have different numbers of them."""
    counts = torch.randint(0, 4, (20,)).tolist()
    objects = [{"class_labels": torch.randint(0, 3, (n,)), "boxes": torch.rand(n, 4).double()} for n in counts]
    images = torch.randn(20, 3, 32, 32).double()
    examples = Columns({"pixel_values": images, "pixel_mask": torch.ones(20, 32, 32), "labels": objects})

    def collate(records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        labels = [record.pop("labels") for record in records]
        return {**stack(records), "labels": labels}

    made = task(examples, partial(ObjectDetection.count, None))
    made.collate, made.score = collate, lambda outputs, batch: {"loss": outputs.loss * len(batch["labels"])}
    return made


def task(examples: Columns, count: Callable[[Batch], int]) -> Task:
    def score(outputs: object, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}

    return task_of(examples, {"test": examples}, ["a", "b", "c"], count=count, score=score)


def sound_model(**fields: object) -> nn.Module:
    sound = {"num_mel_bins": 5, "conv_channels": 4, "pad_token_id": 0}
    return qkv.QkvAudioEncoderForCTC(qkv.QkvAudioEncoderConfig(vocab_size=11, **sound, **TINY, **fields)).double()


def dictation_model(**fields: object) -> nn.Module:
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "vocab_size": 11}
    sound = {"num_mel_bins": 5, "conv_channels": 4}
    config = qkv.QkvSpeechEncoderDecoderConfig(encoder=sound, **ids, **TINY, **fields)
    return qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(config).double()


def sound_task() -> Task:
    """Sound of unequal lengths, in which very unequal numbers of words are said."""
    labels = torch.randint(1, 11, (20, 4))
    labels = labels.masked_fill(torch.arange(4) > torch.arange(20)[:, None] % 4, -100)
    mask = (torch.arange(41) < torch.arange(20)[:, None] % 7 + 35).long()
    columns = {"input_features": torch.randn(20, 41, 5).double(), "attention_mask": mask, "labels": labels}
    made = task(Columns(columns), lambda batch: int((batch["labels"] != -100).sum()))
    made.score = nothing
    return made


CASES = {
    "images": (image_model, image_task, {}),
    "images, smoothed": (image_model, image_task, {"label_smoothing": 0.1}),
    "text": (text_model, text_task, {}),
    "text, smoothed": (text_model, text_task, {"label_smoothing": 0.1}),
    "labels of sound": (sound_model, sound_task, {}),
    "texts of sound": (dictation_model, sound_task, {}),
    "objects": (detector, object_task, {}),
}


def weights_after(case: str, recipe: Recipe) -> dict[str, Tensor]:
    """Weights, and the losses on the way, after training a case in this process's share of the world."""
    torch.manual_seed(0)
    build, make_task, fields = CASES[case]
    model, data = build(**fields), make_task()
    loop = Loop(Accelerator(cpu=True), model, recipe, data)
    losses = torch.stack([step.loss for step in loop.steps()])
    return {**{name: value.detach().clone() for name, value in model.state_dict().items()}, "losses": losses}


def furthest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.parametrize("case", CASES)
def test_parts_add_up_to_the_whole_batch(case: str) -> None:
    whole = weights_after(case, RECIPE)
    assert furthest(whole, weights_after(case, changed(RECIPE, accumulate=4))) < 1e-10
    assert furthest(whole, weights_after(case, changed(RECIPE, seed=1))) > 1e-3


def test_a_mean_of_means_would_be_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = weights_after("images", RECIPE)
    forward = qkv.QkvImageEncoderForImageClassification.forward

    def mean_of_parts(self: nn.Module, num_items_in_batch: object = None, **kwargs: object) -> object:
        outputs = forward(self, **kwargs)
        outputs.loss = outputs.loss / 4
        return outputs

    monkeypatch.setattr(qkv.QkvImageEncoderForImageClassification, "forward", mean_of_parts)
    assert furthest(whole, weights_after("images", changed(RECIPE, accumulate=4))) > 1e-3


def test_a_text_that_is_read_once_leaves_no_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_decoder, "DynamicCache", None)
    data = text_task()
    data.score = nothing
    loop = Loop(Accelerator(cpu=True), text_model(), changed(RECIPE, max_steps=1), data)
    assert len(list(loop.steps())) == 1 and loop.evaluate(data.train)["loss"] > 0


def nothing(outputs: object, batch: Batch) -> dict[str, Tensor]:
    return {}


def prepared() -> Loop:
    torch.manual_seed(0)
    return Loop(Accelerator(cpu=True), image_model(), RECIPE, image_task())


def test_evaluation_is_over_targets_not_batches() -> None:
    loop = prepared()
    split = loop.task.train
    found = loop.evaluate(split)
    with torch.no_grad():
        outputs = loop.model.eval()(**split.columns)
    right = (outputs.logits.argmax(-1) == split.columns["labels"]).sum() / (split.columns["labels"] != -100).sum()
    assert found == pytest.approx({"loss": outputs.loss.item(), "accuracy": right.item()}, abs=1e-7)


def test_nothing_right_is_an_accuracy_of_zero() -> None:
    loop = prepared()
    columns = loop.task.train.columns
    assert loop.evaluate(Columns({**columns, "labels": torch.full((20,), 2)}))["accuracy"] in (0.0, 1.0)
    loop.model.classifier.bias.data[0] = 1e3
    assert loop.evaluate(Columns({**columns, "labels": torch.full((20,), 2)}))["accuracy"] == 0.0


def test_training_learns_and_reports() -> None:
    loop = Loop(Accelerator(cpu=True), image_model(), changed(RECIPE, max_steps=60), image_task())
    steps = list(loop.steps())
    assert [step.number for step in steps] == list(range(1, 61))
    assert steps[-1].loss < 0.7 * steps[0].loss
    assert [step.learning_rate for step in steps[:3]] == [0.0, 0.005, 0.01] and steps[-1].learning_rate < 1e-4
    assert all(step.grad_norm > 0 and step.tokens == 8 * 4 for step in steps)


def test_the_average_is_evaluated_and_training_goes_on_from_its_own_weights() -> None:
    losses = {}
    for decay in (None, 0.9):
        torch.manual_seed(0)
        loop = Loop(Accelerator(cpu=True), image_model(), changed(RECIPE, ema_decay=decay), image_task())
        losses[decay] = torch.stack([step.loss for step in loop.steps()])
    assert torch.equal(losses[None], losses[0.9])
    own = {name: weight.clone() for name, weight in loop.model.state_dict().items()}
    averaged = loop.evaluate(loop.task.train)["loss"]
    assert all(torch.equal(weight, own[name]) for name, weight in loop.model.state_dict().items())
    loop.ema.copy_to_model()
    with torch.no_grad():
        expected = loop.model.eval()(**loop.task.train.columns).loss.item()
    assert averaged == pytest.approx(expected, abs=1e-12)


def test_checkpointing_changes_no_number() -> None:
    plain = weights_after("text", changed(RECIPE, max_steps=2))
    assert furthest(plain, weights_after("text", changed(RECIPE, max_steps=2, gradient_checkpointing=True))) < 1e-12


@pytest.mark.slow
def test_compiling_changes_no_number() -> None:
    try:
        AcceleratorState._reset_state()
        torch.manual_seed(0)
        loop = Loop(Accelerator(cpu=True, dynamo_backend="inductor"), text_model(), RECIPE, text_task())
        losses = torch.stack([step.loss for step in loop.steps()])
        assert hasattr(loop.model, "_orig_mod") or loop.model._compiled_call_impl is not None
    finally:
        AcceleratorState._reset_state()
    assert (losses - weights_after("text", RECIPE)["losses"]).abs().max() < 1e-10


def test_lengths_that_vary_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first length has a graph of its own, all others share one."""
    lengths = itertools.cycle([6, 9, 7, 11, 5, 10, 8])
    data = text_task()
    ids = torch.randint(0, 11, (20, 11))
    data.collate = lambda records, places: {
        name: ids[: len(records), :length] for length in [next(lengths)] for name in ("input_ids", "labels")
    }
    torch._dynamo.reset()
    before = compiled_graphs()
    try:
        AcceleratorState._reset_state()
        monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
        monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
        recipe = changed(RECIPE, max_steps=14)
        loop = Loop(Accelerator(cpu=True, dynamo_backend="eager"), text_model(), recipe, data)
        assert len(list(loop.steps())) == 14
    finally:
        AcceleratorState._reset_state()
    assert 1 <= compiled_graphs() - before <= 2


def test_only_matrices_decay() -> None:
    model = image_model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, kept = ([names[id(p)] for p in group["params"]] for group in parameter_groups(model, 0.1))
    assert sorted(decayed + kept) == sorted(names.values())
    assert not any("norm" in name or name.endswith("bias") or "class_token" in name for name in decayed)
    assert all(name.endswith("weight") for name in decayed)


def test_what_is_counted_is_named_by_the_input() -> None:
    assert unit_of({"input_ids": torch.zeros(1, 2)}) == "tokens"
    assert {name: unit_of({"labels": None, name: None}) for name in UNITS} == UNITS
    assert unit_of({"pixel_values": None, "pixel_mask": None}) == "pixels"


def test_positions_are_tokens_patches_moments_of_sound_or_pixels() -> None:
    assert count_tokens({"input_ids": torch.zeros(3, 5)}, text_model().config) == 15
    assert count_tokens({"pixel_values": torch.zeros(3, 1, 4, 4)}, image_model().config) == 12
    assert count_tokens({"pixel_values": torch.zeros(3, 3, 12, 16)}, tiny.dual_encoder().vision_config) == count_tokens(
        {"input_ids": torch.zeros(3, 5), "pixel_values": torch.zeros(3, 3, 12, 16)}, tiny.dual_encoder()
    )
    images = {"pixel_values": torch.zeros(2, 3, 4, 5), "pixel_mask": torch.tensor([1, 1, 1, 1, 0]).expand(2, 4, 5)}
    assert count_tokens(images, tiny.detector()) == 2 * 16
    stock = Speech2TextConfig(input_feat_per_channel=6)
    for config in (
        tiny.audio_encoder("speech"),
        tiny.speech_encoder_decoder("speech"),
        stock,
    ):  # two convolutions of stride 2
        assert count_tokens({"input_features": torch.zeros(3, 41, 6)}, config) == 3 * 11
    # One of stride 1 and one of stride 2.
    assert count_tokens({"input_features": torch.zeros(3, 6, 41)}, WhisperConfig(num_mel_bins=6)) == 3 * 21
