"""The loss alone is the loss beside logits, values and gradients, and is computed wherever only it is read."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import reference
import tiny
from comparison import EXACT, exact, jittered
from errors import raises_sentence
from qkv import modeling
from qkv.modeling.heads import language_modeling
from qkv.modeling.heads.chunked_loss import ChunkedCrossEntropy
from qkv.modeling.heads.language_modeling import loss_without_logits
from qkv.modeling.heads.loss import IGNORED, negative_log_likelihood

IDS = torch.randint(4, 61, (2, 9), generator=torch.Generator().manual_seed(0))
LABELS = IDS.masked_fill(torch.tensor([[1, 0, 0, 1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 0, 0]]) == 0, IGNORED)
FEATURES = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TARGETS = torch.arange(12).view(2, 6) % 11
SHORTER = IDS.masked_fill(torch.arange(9) > torch.tensor([[4], [6]]), IGNORED)
MODELS: dict[str, tuple[Any, Any, dict[str, Tensor]]] = {
    "masked": (modeling.QkvEncoderForMaskedLM, tiny.encoder, {"labels": LABELS}),
    "pre-training": (
        modeling.QkvEncoderForPreTraining,
        tiny.encoder,
        {"labels": LABELS, "next_sentence_label": torch.tensor([0, 1])},
    ),
    "causal": (modeling.QkvDecoderForCausalLM, tiny.decoder, {"labels": IDS}),
    "scores alone": (
        modeling.QkvEncoderForMaskedLM,
        partial(tiny.encoder, lm_head_transform=False),
        {"labels": LABELS},
    ),
    "bounded": (
        modeling.QkvDecoderForCausalLM,
        partial(tiny.decoder, final_logit_softcapping=1.5, logit_scale=3.0, lm_head_transform=True, head_act="relu"),
        {"labels": IDS},
    ),
    "seq2seq": (modeling.QkvEncoderDecoderForConditionalGeneration, tiny.encoder_decoder, {"labels": SHORTER}),
}
models = pytest.mark.parametrize("kind", MODELS)


def logits_of(outputs: Any) -> Tensor | None:
    return outputs.get("prediction_logits", outputs.get("logits"))


@pytest.fixture(params=["chunks", "one piece", "accelerator"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Logits in chunks of three rows, or of all rows with a label at once; or by the function for accelerators."""
    monkeypatch.setattr(language_modeling, "CHUNK", 3)
    monkeypatch.setattr(language_modeling, "WIDE_CHUNK", 4)
    monkeypatch.setattr(language_modeling, "LARGE", 10**9 if request.param == "one piece" else 0)
    monkeypatch.setattr(language_modeling, "is_on_host", lambda _: request.param != "accelerator")
    return str(request.param)


def step(model: Any, **inputs: Any) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    with exact():
        loss = model(**inputs).loss
        loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@models
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [None, 17, torch.tensor(17)])
@pytest.mark.costly(36)
def test_loss_and_gradients_are_those_with_logits(kind: str, smoothing: float, count: Any, size: str) -> None:
    model_class, config, labels = MODELS[kind]
    model = jittered(model_class(config(label_smoothing=smoothing, **dict.fromkeys(tiny.DROPOUT, 0.0)))).train()
    given = {"input_ids": IDS, **labels, "num_items_in_batch": count}
    losses = [step(model, **given, skip_logits=skip) for skip in (False, True, None)]
    (expected, gradients), *others = losses
    assert len(gradients) > 10
    for loss, own in others:
        assert (loss - expected).abs() <= EXACT * 10
        for one, other in zip(own, gradients, strict=True):
            assert (one - other).abs().max() <= 100 * EXACT * (1 + other.abs().max())


@models
def test_logits_are_there_for_whoever_asks(kind: str) -> None:
    model_class, config, labels = MODELS[kind]
    model, inputs = model_class(config()).train(), {"input_ids": IDS, **labels}
    without = {"input_ids": IDS} | ({"decoder_input_ids": IDS} if kind == "seq2seq" else {})
    outputs = model(**inputs)
    assert logits_of(outputs) is None
    assert outputs.to_tuple()[0] is outputs.loss and outputs.get("past_key_values") is None  # nothing is cached
    assert logits_of(model(**inputs, skip_logits=False)) is not None
    assert logits_of(model(**inputs, output_hidden_states=True)) is not None
    assert logits_of(model(**without)) is not None and logits_of(model(**without, skip_logits=True)) is not None
    model.eval()
    evaluated, alone = model(**inputs), model(**inputs, skip_logits=True)
    assert logits_of(evaluated) is not None and logits_of(alone) is None
    assert (evaluated.loss - alone.loss).abs() <= 1e-5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("labels", ["some", "none", "all"])
def test_rows_without_a_label_are_left_out(labels: str, *, bias: bool, size: str) -> None:
    seen = []
    head = nn.Linear(7, 11, bias=bias, dtype=torch.float64)
    left_out = {"some": torch.arange(6) % 2 == 0, "none": torch.tensor(True), "all": torch.tensor(False)}[labels]
    targets = TARGETS.masked_fill(left_out, IGNORED)
    hidden = [FEATURES.clone().requires_grad_() for _ in range(2)]
    expected = negative_log_likelihood(head(hidden[0]), targets)
    head.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    other = copy.deepcopy(head)
    other._forward_pre_hooks.clear()
    for one in (head, other):  # called as a module for its hook, and by its weight
        actual = loss_without_logits(one, hidden[1], targets)
        assert (actual - expected).abs() <= EXACT
        gradients = torch.autograd.grad(actual, hidden[1])[0]
        assert (gradients - torch.autograd.grad(expected, hidden[0], retain_graph=True)[0]).abs().max() <= EXACT
    assert seen[-1] == (12 if size == "accelerator" else {"some": 6, "none": 0, "all": 12}[labels])
    for wrong in (targets.clamp(min=11), targets[:, 1:], targets.double()):
        with raises_sentence("labels"):
            loss_without_logits(head, FEATURES, wrong)


class Adapted(nn.Linear):
    """A map that computes something else than its weight says, as adapters and quantised maps do."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden) + 1000 * hidden.mean(-1, keepdim=True) * torch.arange(self.out_features)


def test_a_head_that_is_more_than_its_weight_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_modeling, "LARGE", 0)
    adapted, hooked, wrapped, normed = (kind(7, 11).double() for kind in (Adapted, *[nn.Linear] * 3))
    hooked.register_forward_hook(lambda _, __, output: output * 2)
    wrapped.forward = Adapted.forward.__get__(adapted)  # as accelerate and TRL do
    for head in (adapted, hooked, wrapped, nn.utils.parametrizations.weight_norm(normed)):
        expected = negative_log_likelihood(head(FEATURES), TARGETS)
        assert (loss_without_logits(head, FEATURES, TARGETS) - expected).abs() <= EXACT * expected.abs()
    single, features = nn.Linear(7, 11), FEATURES.float()
    with torch.autocast("cpu", torch.bfloat16):
        expected = negative_log_likelihood(single(features), TARGETS)
        assert torch.equal(loss_without_logits(single, features, TARGETS), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_on_an_accelerator(
    dtype: torch.dtype, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_modeling, "LARGE", 0)
    monkeypatch.setattr(language_modeling, "is_on_host", lambda _: False)
    torch.manual_seed(0)
    head, hidden = nn.Linear(32, 500), torch.randn(300, 32)
    labels = torch.randint(500, (300,)).masked_fill(torch.arange(300) % 7 == 0, IGNORED)

    def learned(loss: Any, kind: torch.dtype) -> list[Tensor]:
        own, features = copy.deepcopy(head).to(kind), hidden.to(kind).requires_grad_()
        value = loss(own, features)
        value.backward()
        return [each.double() for each in (value.detach(), features.grad, own.weight.grad, own.bias.grad)]

    def plain(own: Any, features: Tensor) -> Tensor:
        return negative_log_likelihood(own(features), labels, None, smoothing)

    def chunked(own: Any, features: Tensor) -> Tensor:
        return loss_without_logits(own, features, labels, None, smoothing)

    def autocast(own: Any, features: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype):
            return loss_without_logits(own, features, labels, None, smoothing)

    exact_ones = learned(plain, torch.float64)
    allowed = [(each - true).norm() for each, true in zip(learned(plain, dtype), exact_ones, strict=True)]
    for found in (learned(chunked, dtype), learned(autocast, torch.float32)):
        for each, true, error in zip(found, exact_ones, allowed, strict=True):
            assert (each - true).norm() <= 2 * error + 1e-6


def test_a_compiled_loss_and_frozen_weights() -> None:
    head, hidden = nn.Linear(7, 11).double(), FEATURES.flatten(0, 1).clone().requires_grad_()
    head.weight.requires_grad_(False)
    given = (hidden, head.weight, head.bias, TARGETS.flatten(), (5, 0.1, None))
    expected = negative_log_likelihood(head(hidden), TARGETS.flatten(), 1, 0.1)
    gradients = torch.autograd.grad(expected, (hidden, head.bias))
    for loss in (ChunkedCrossEntropy.apply, torch.compile(ChunkedCrossEntropy.apply, backend="aot_eager")):
        actual = loss(*given)
        assert (actual - expected).abs() <= EXACT * 10
        for one, other in zip(torch.autograd.grad(actual, (hidden, head.bias)), gradients, strict=True):
            assert (one - other).abs().max() <= EXACT
    with torch.no_grad():
        assert (ChunkedCrossEntropy.apply(*given) - expected).abs() <= EXACT * 10
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(ChunkedCrossEntropy.apply(*given), hidden, create_graph=True)


@torch.no_grad()
def test_logits_of_a_decoder_are_transformed_scaled_and_bounded() -> None:
    fields = {"final_logit_softcapping": 1.5, "logit_scale": 3.0, "lm_head_transform": True, "head_act": "relu"}
    model = jittered(modeling.QkvDecoderForCausalLM(tiny.decoder(**fields))).eval()
    with exact():
        hidden = 3.0 * model.model(IDS).last_hidden_state
        actual = model(IDS).logits
    dense, norm = model.transform.dense, model.transform.norm
    inner = reference.relu(reference.linear(hidden, dense.weight, dense.bias))
    inner = reference.layer_norm(inner, norm.weight, norm.bias, norm.eps)
    expected = reference.soft_cap(reference.linear(inner, model.lm_head.weight), 1.5)
    assert (actual - expected).abs().max() <= EXACT and actual.abs().max() <= 1.5


def test_chunks_of_bounded_logits_learn_as_a_whole() -> None:
    hidden = FEATURES.flatten(0, 1).clone().requires_grad_()
    head = nn.Linear(7, 11).double()
    given, inputs = (hidden, head.weight, head.bias), (hidden, head.weight, head.bias)
    expected = negative_log_likelihood(reference.soft_cap(4 * head(hidden), 1.5), TARGETS.flatten(), 1, 0.1)
    actual = ChunkedCrossEntropy.apply(
        *(4 * each if each is not hidden else each for each in given), TARGETS.flatten(), (5, 0.1, 1.5)
    )
    assert (actual - expected).abs() <= EXACT * 10
    for one, other in zip(torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert (one - other).abs().max() <= EXACT * 10
