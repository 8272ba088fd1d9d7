"""Layers stand around the attention of each stack; the logit lens of a layer is its vectors after the final norm."""

from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
import reference
import tiny
from families.attentions import FAMILIES, SIZES, WORDS, built, stock
from qkv.scripts.attention import statistics
from qkv.scripts.attention.capture import hooked, whole_layers
from qkv.scripts.probes.inspection import padding_mask
from qkv.scripts.probes.layers import (
    evaluating,
    kurtosis,
    lens_logits,
    lens_statistics,
    lens_targets,
    model_layers,
    one_pass,
    real_tokens,
)
from tiny import jitter


@pytest.mark.parametrize("name", [name for name in FAMILIES if "rnnsearch" not in name and "luong" not in name])
def test_every_stack_has_its_layers(name: str) -> None:
    model, _, names = built(name)
    layers = model_layers(model)
    assert set(layers) == {(stack, number) for stack in names if stack != "cross" for number in range(2)}
    assert len(set(layers.values())) == len(layers)


def test_a_recurrent_model_has_no_layers() -> None:
    assert model_layers(qkv.QkvRecurrentModel(tiny.recurrent())) == {}


def test_the_mask_of_each_stack() -> None:
    model: Any = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    pairs, labels = tiny.pairs(), tiny.translations()
    assert padding_mask(model, "encoder", pairs) is pairs["attention_mask"]
    assert padding_mask(model, "cross", pairs) is pairs["decoder_attention_mask"]
    own = padding_mask(model, "decoder", labels)
    assert own is not None and torch.equal(own, labels["labels"] != -100)
    bare = {"input_ids": pairs["input_ids"], "decoder_input_ids": pairs["decoder_input_ids"]}
    assert padding_mask(model, "decoder", bare) is None
    clip, captions = qkv.QkvDualEncoderModel(tiny.dual_encoder()), tiny.captions()
    assert padding_mask(clip, "image", captions) is None
    assert padding_mask(clip, "text", captions) is captions["attention_mask"]


def test_statistics_are_those_of_slow_loops() -> None:
    hidden, mask = torch.arange(12.0).view(2, 3, 2), torch.tensor([[True, True, False], [True, False, False]])
    assert real_tokens(hidden, mask).tolist() == [[0, 1], [2, 3], [6, 7]]
    assert real_tokens(hidden.flatten(0, 1)[None, :4], mask).shape == (4, 2)
    assert real_tokens(hidden.half(), None).dtype == torch.float32
    values = torch.randn(50, dtype=torch.float64)
    assert kurtosis(values).item() == pytest.approx(reference.kurtosis(values).item())
    values = torch.tensor([[[1.0, 2.0, 9.0]], [[4.0, torch.nan, 9.0]]])
    real = torch.tensor([[True, True, False], [True, True, False]])
    assert statistics.mean_of_heads(values, real).item() == pytest.approx(7 / 3)


def lens(model: Any, batch: dict[str, Any]) -> tuple[Any, list[Tensor]]:
    """The outputs of a model, and the logits of its lens by layer."""
    seen: dict[Any, Any] = {}
    hooks = {each: lambda *run, p=place: seen.update({p: run[2]}) for place, each in model_layers(model).items()}
    with torch.no_grad(), evaluating(model):
        with whole_layers(model), hooked(hooks):
            outputs = model(**one_pass(model, batch))
        return outputs, [own for _, own in lens_logits(model, batch, seen)] if seen else []


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
    assert len(by_layer) == 3 and torch.equal(by_layer[-1], outputs.logits)
    # The last of the hidden states that a model returns is normalised already.
    for number, logits in enumerate(by_layer[:-1]):
        for place in (0, 3, 7):
            vector = states[number + 1][0, place].double()
            entropy, share, rank = reference.lens_prediction(vector, *read, int(target[place]), norm.eps)
            own = lens_statistics(logits[0, place], target[place])
            assert own["lens_entropy"] == pytest.approx(entropy.item(), rel=1e-5)
            assert own["lens_probability"] == pytest.approx(share.item(), rel=1e-5)
            assert own["lens_rank"] == rank.item()


CASES = [case for case in tiny.HEADS if any(name in case.name for name in ("MaskedLM", "Classification", "CTC"))]
CASES += [case for case in tiny.HEADS if any(name in case.name for name in ("ForCausal", "Generation", "Detection-"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_last_layer_gives_the_logits_of_the_model(case: Any) -> None:
    model, batch = case.build(), case.inputs()
    outputs, by_layer = lens(model, batch)
    if by_layer:  # none of a recurrent network
        assert torch.equal(by_layer[-1], outputs.logits)
        assert all(not torch.allclose(one, by_layer[-1], atol=1e-3) for one in by_layer[:-1])
    with torch.no_grad():
        again = model(**one_pass(model, batch)).logits
    torch.testing.assert_close(again, outputs.logits, rtol=1e-4, atol=1e-5)


def targets(model: Any, batch: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        return lens_targets(model, batch, model.eval()(**batch).logits)


def test_a_decoder_predicts_the_next_token() -> None:
    model, batch = qkv.QkvDecoderForCausalLM(tiny.decoder()), tiny.text()
    expected = batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100)
    for given in (batch, tiny.causal_labels()):
        own = targets(model, given)
        assert torch.equal(own[:, :-1], expected) and (own[:, -1] == -100).all()
    llama = stock("LlamaForCausalLM", "LlamaConfig", **SIZES, **WORDS)
    packed = {"input_ids": torch.tensor([[5, 6, 7, 8, 9]]), "position_ids": torch.tensor([[0, 1, 2, 0, 1]])}
    assert targets(llama, packed).tolist() == [[6, 7, -100, 9, -100]]


def test_other_models_predict_labels_their_inputs_or_themselves() -> None:
    model = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    assert torch.equal(targets(model, tiny.translations()), tiny.translations()["labels"])
    batch = tiny.pairs()
    mask = batch["decoder_attention_mask"][:, 1:] == 0
    expected = batch["decoder_input_ids"][:, 1:].masked_fill(mask, -100)
    assert torch.equal(targets(model, batch)[:, :-1], expected)
    masked = qkv.QkvEncoderForMaskedLM(tiny.encoder())
    assert torch.equal(targets(masked, tiny.masked_language()), tiny.masked_labels())
    image = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder())
    assert targets(image, tiny.image_classes()).tolist() == [2, 0]
    predicted, real = targets(masked, tiny.text()), tiny.text()["attention_mask"].bool()
    with torch.no_grad():
        best = masked(**tiny.text()).logits.argmax(-1)
    assert torch.equal(predicted[real], best[real]) and (predicted[~real] == -100).all()


def test_statistics_of_the_lens_are_averages_over_due_predictions() -> None:
    logits = torch.tensor([[[0.0, 0.0, 2.0], [5.0, 1.0, 0.0], [9.0, 0.0, 0.0]]])
    own = lens_statistics(logits, torch.tensor([[2, 2, -100]]))
    shares = logits[0, :2].softmax(-1)
    assert own["lens_rank"] == 2  # the first and the third
    assert own["lens_probability"] == pytest.approx(shares[:, 2].mean().item())
    assert own["lens_entropy"] == pytest.approx(-(shares * shares.log()).sum(-1).mean().item())
