"""The loss alone is the loss beside logits, values and gradients, and is computed wherever only it is read."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tiny
from comparison import EXACT, exact, jittered
from errors import raises_sentence
from qkv import modeling
from qkv.modeling.heads import language_modeling
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
    "seq2seq": (modeling.QkvEncoderDecoderForConditionalGeneration, tiny.encoder_decoder, {"labels": SHORTER}),
}
models = pytest.mark.parametrize("kind", MODELS)


def logits_of(outputs: Any) -> Tensor | None:
    return outputs.get("prediction_logits", outputs.get("logits"))


@pytest.fixture(params=["chunks", "one piece"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits in chunks of three rows, or of all rows with a label at once."""
    monkeypatch.setattr(language_modeling, "CHUNK", 3)
    monkeypatch.setattr(language_modeling, "LARGE", 0 if request.param == "chunks" else 10**9)


def step(model: Any, **inputs: Any) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    with exact():
        loss = model(**inputs).loss
        loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@models
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [None, 17, torch.tensor(17)])
@pytest.mark.costly(24)
def test_loss_and_gradients_are_those_with_logits(kind: str, smoothing: float, count: Any, size: None) -> None:
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
def test_rows_without_a_label_are_left_out(labels: str, *, bias: bool, size: None) -> None:
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
    assert seen[-1] == {"some": 6, "none": 0, "all": 12}[labels]
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
