"""The logit lens of a layer is what its vectors give after the final norm and the output embedding, number by number."""

from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
import reference
import tiny
from families.attentions import SIZES, WORDS, built, stock
from qkv.scripts.probes.layers import evaluating, model_layers, observed_forward, without_cache
from qkv.scripts.probes.logit_lens import lens_logits, lens_statistics, lens_targets
from tiny import jitter

PLACES = [0, 3, 7]  # tokens whose predictions are compared one by one


def lens(model: Any, batch: dict[str, Any]) -> tuple[Any, list[Tensor]]:
    """The outputs of a model, and the logits of its lens by layer."""
    outputs: dict[Any, Any] = {}
    with evaluating(model):
        whole = observed_forward(model, batch, lambda record: None, outputs.__setitem__)
        return whole, [own for _, own in lens_logits(model, batch, model_layers(model), outputs)]


def gpt2(kind: str) -> tuple[Any, Any, Tensor]:
    """A GPT-2 of ours or transformers', its final norm and its output embedding."""
    torch.manual_seed(0)
    if kind == "qkv":
        model: Any = jitter(qkv.QkvDecoderForCausalLM(tiny.decoder(num_hidden_layers=3))).eval()
        return model, model.model.norm, model.lm_head.weight
    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 61, "n_positions": 48}
    model = jitter(stock("GPT2LMHeadModel", "GPT2Config", **sizes)).eval()
    return model, model.transformer.ln_f, model.lm_head.weight


@pytest.mark.parametrize("kind", ["qkv", "stock"])
def test_each_layer_is_read_as_the_last_one_is(kind: str) -> None:
    model, norm, embedding = gpt2(kind)
    batch = {"input_ids": tiny.text(batch=1)["input_ids"]}
    outputs, by_layer = lens(model, batch)
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states
    target = batch["input_ids"][0].roll(-1)
    read = [each.double() for each in (norm.weight.data, norm.bias.data, embedding.data)]
    assert len(by_layer) == 3
    # The last of the hidden states that a model returns is normalised already.
    for number, logits in enumerate(by_layer[:-1]):
        for place in PLACES:
            vector = states[number + 1][0, place].double()
            entropy, share, rank = reference.lens_prediction(vector, *read, int(target[place]), norm.eps)
            own = lens_statistics(logits[0, place], target[place])
            assert own["lens_entropy"] == pytest.approx(entropy.item(), rel=1e-5)
            assert own["lens_probability"] == pytest.approx(share.item(), rel=1e-5)
            assert own["lens_rank"] == rank.item()
            other = lens_statistics(by_layer[number + 1][0, place], target[place])
            assert other["lens_entropy"] != pytest.approx(entropy.item(), rel=1e-3)
    assert torch.equal(by_layer[-1], outputs.logits)


CASES = [case for case in tiny.HEADS if any(name in case.name for name in ("MaskedLM", "Classification", "CTC"))]
CASES += [case for case in tiny.HEADS if any(name in case.name for name in ("ForCausal", "Generation", "Detection-"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_last_layer_gives_the_logits_of_the_model(case: Any) -> None:
    model, batch = case.build(), case.inputs()
    if not model_layers(model):
        return  # a recurrent network
    outputs, by_layer = lens(model, batch)
    torch.testing.assert_close(by_layer[-1], outputs.logits, rtol=0, atol=0)
    assert all(not torch.allclose(one, by_layer[-1], atol=1e-3) for one in by_layer[:-1])
    with torch.no_grad():
        again = model(**without_cache(model, batch)).logits
    torch.testing.assert_close(again, outputs.logits, rtol=1e-4, atol=1e-5)  # all forwards are back


@pytest.mark.parametrize("name", ["stock llama", "stock gemma2", "stock gpt-oss", "stock detr"])
def test_models_of_transformers_too(name: str) -> None:
    model, batch, _ = built(name)
    outputs, by_layer = lens(model, batch)
    assert len(by_layer) == 2 and torch.equal(by_layer[-1], outputs.logits)
    assert not torch.allclose(by_layer[0], outputs.logits, atol=1e-3)


def test_padding_that_is_removed() -> None:
    torch.manual_seed(0)
    model: Any = jitter(qkv.QkvEncoderForMaskedLM(tiny.encoder())).eval()
    batch = tiny.masked_language()
    kept = lens(model, batch)[1]
    model.model.remove_padding = True
    real = batch["attention_mask"].bool()
    for one, other in zip(kept, lens(model, batch)[1], strict=True):
        torch.testing.assert_close(one[real], other[real], rtol=1e-4, atol=1e-5)


def test_layers_are_not_computed_again() -> None:
    model: Any = qkv.QkvDecoderForCausalLM(tiny.decoder()).eval()
    calls: list[Any] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(lambda *seen: calls.append(seen))
    lens(model, tiny.text())
    assert len(calls) == 2


def targets(model: Any, batch: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        return lens_targets(model, batch, model.eval()(**batch).logits)


def test_a_decoder_predicts_the_next_token() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder())
    batch = tiny.text()
    expected = batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100)
    for given in (batch, tiny.causal_labels()):
        own = targets(model, given)
        assert torch.equal(own[:, :-1], expected) and (own[:, -1] == -100).all()


def test_a_translation_predicts_its_labels_or_the_next_token() -> None:
    model = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    assert torch.equal(targets(model, tiny.translations()), tiny.translations()["labels"])
    batch = tiny.pairs()
    own = targets(model, batch)
    mask = batch["decoder_attention_mask"][:, 1:] == 0
    assert torch.equal(own[:, :-1], batch["decoder_input_ids"][:, 1:].masked_fill(mask, -100))


def test_masked_tokens_classes_and_predictions() -> None:
    masked = qkv.QkvEncoderForMaskedLM(tiny.encoder())
    assert torch.equal(targets(masked, tiny.masked_language()), tiny.masked_labels())
    image = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder())
    assert targets(image, tiny.image_classes()).tolist() == [2, 0]
    predicted = targets(masked, tiny.text())
    real = tiny.text()["attention_mask"].bool()
    with torch.no_grad():
        best = masked(**tiny.text()).logits.argmax(-1)
    assert torch.equal(predicted[real], best[real]) and (predicted[~real] == -100).all()


def test_documents_packed_in_a_row_do_not_predict_each_other() -> None:
    llama = stock("LlamaForCausalLM", "LlamaConfig", **SIZES, **WORDS)
    places = torch.tensor([[0, 1, 2, 0, 1]])
    own = targets(llama, {"input_ids": torch.tensor([[5, 6, 7, 8, 9]]), "position_ids": places})
    assert own.tolist() == [[6, 7, -100, 9, -100]]


def test_statistics_are_averages_over_what_is_due() -> None:
    logits = torch.tensor([[[0.0, 0.0, 2.0], [5.0, 1.0, 0.0], [9.0, 0.0, 0.0]]])
    own = lens_statistics(logits, torch.tensor([[2, 2, -100]]))
    shares = logits[0, :2].softmax(-1)
    assert own["lens_rank"] == 2  # the first and the third
    assert own["lens_probability"] == pytest.approx(shares[:, 2].mean().item())
    assert own["lens_entropy"] == pytest.approx(-(shares * shares.log()).sum(-1).mean().item())
