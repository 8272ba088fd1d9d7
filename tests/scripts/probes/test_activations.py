"""Statistics of activations and gradients are those that slow loops and autograd give."""

from typing import Any

import pytest
import torch

import qkv
import reference
import tiny
from qkv.scripts.probes.activations import activation_statistics, gradient_statistics, kurtosis
from tiny import jitter


def test_kurtosis_of_numbers_and_of_distributions() -> None:
    values = torch.randn(60, generator=torch.Generator().manual_seed(0))
    assert kurtosis(values).item() == pytest.approx(reference.kurtosis(values.double()).item(), rel=1e-9)
    assert kurtosis(torch.tensor([-1.0, 1.0])).item() == 1
    many = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert kurtosis(many).item() == pytest.approx(3, abs=0.05)
    many[0] = 100  # one outlier
    assert kurtosis(many).item() > 100


def test_statistics_of_vectors() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, -7.0]])
    statistics = activation_statistics(vectors)
    assert statistics["norm"] == 6 and statistics["max_abs"] == 7
    assert statistics["kurtosis"] == pytest.approx(reference.kurtosis(vectors.flatten().double()).item())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_gradients_are_those_of_autograd(kind: str) -> None:
    torch.manual_seed(0)
    model: Any = jitter(qkv.QkvDecoderForCausalLM(tiny.decoder(kind))).eval()
    batch = tiny.causal_labels()
    mask = batch["attention_mask"].bool()
    statistics = gradient_statistics(model, batch, {"decoder": mask})
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    states: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda *seen: states.append(seen[2]))
    # Hidden states are recorded, so padding stays.
    loss = model(**batch, output_hidden_states=True).loss
    gradients = [each[mask] for each in torch.autograd.grad(loss, states)]
    assert statistics.keys() == {("decoder", 0), ("decoder", 1)}
    for number, gradient in enumerate(gradients):
        own = statistics["decoder", number]
        assert own["gradient_norm"] == pytest.approx(gradient.norm(dim=-1).mean().item(), rel=1e-4)
        assert own["gradient_kurtosis"] == pytest.approx(kurtosis(gradient).item(), rel=1e-4)
        other = gradients[1 - number].norm(dim=-1).mean().item()
        assert own["gradient_norm"] != pytest.approx(other, rel=1e-2)


def test_gradients_of_weights_that_were_there_stay() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder()).eval()
    model.model.embed_tokens.requires_grad_(False)
    model.model.norm.weight.grad = torch.ones_like(model.model.norm.weight)
    gradient_statistics(model, tiny.causal_labels(), {})
    assert not model.model.embed_tokens.weight.requires_grad and model.model.norm.weight.requires_grad
    assert (model.model.norm.weight.grad == 1).all()


def test_no_gradient_without_labels() -> None:
    assert gradient_statistics(qkv.QkvDecoderForCausalLM(tiny.decoder()).eval(), tiny.text(), {}) == {}
