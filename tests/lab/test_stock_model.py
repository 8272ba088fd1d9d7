"""The stock model of comparisons: its shape and its loss."""

import pytest
import torch
from transformers import MBartConfig, MBartForConditionalGeneration

import qkv
from qkv.modeling.heads.loss import cross_entropy
from qkv.scripts.lab.stock_model import stock_model, with_summed_loss
from recipes import recipe_of

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}


LLAMA = {
    "position": "rope", "norm": "rms", "feed_forward": "glu", "hidden_act": "silu", "attention_bias": False,
    "mlp_bias": False,
}  # fmt: skip


def test_counterpart_has_the_same_shape() -> None:
    model = qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(**SIZE, **LLAMA))
    found = stock_model(recipe_of(architecture="QkvDecoderForCausalLM"), model, {})
    assert type(found).__name__ == "LlamaForCausalLM" and found.num_parameters() == model.num_parameters()
    assert not torch.equal(found.model.embed_tokens.weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("QkvDecoderForCausalLM", {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}),
        ("QkvEncoderForMaskedLM", {"model_type": "bert", **SIZE, "intermediate_size": 32}),
        ("QkvEncoderForSequenceClassification", {"model_type": "bert", **SIZE, "intermediate_size": 32}),
        ("QkvEncoderForTokenClassification", {"model_type": "bert", **SIZE, "intermediate_size": 32}),
        (
            "QkvEncoderDecoderForConditionalGeneration",
            {
                "model_type": "mbart", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
                "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
                "decoder_ffn_dim": 16,
            },
        ),
    ],
    ids=["gpt2", "bert-mlm", "bert-classifier", "bert-tagger", "mbart"],
)  # fmt: skip
def test_stock_losses_add_up_over_parts_of_a_step(architecture: str, fields: dict[str, object]) -> None:
    config = getattr(qkv, architecture).config_class(**SIZE)
    ours = getattr(qkv, architecture)(config)
    found = stock_model(recipe_of(architecture=architecture), ours, fields).eval()
    ids = torch.randint(2, 11, (4, 6))
    tokens = ids % config.num_labels if "Token" in architecture else ids
    labels = (
        torch.tensor([0, 1, 1, 0]) if "Sequence" in architecture else tokens.masked_fill(torch.rand(4, 6) < 0.3, -100)
    )
    whole = found(input_ids=ids, labels=labels, num_items_in_batch=10).loss
    parts = [found(input_ids=ids[rows], labels=labels[rows], num_items_in_batch=10).loss for rows in ([0], [1, 2, 3])]
    assert found.config.vocab_size == 11 and whole.item() == pytest.approx(sum(parts).item(), rel=1e-5)
    assert found(input_ids=ids, labels=labels, num_items_in_batch=5).loss.item() == pytest.approx(2 * whole.item())


def test_smoothing_equals_ours() -> None:
    model = qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(**SIZE, **LLAMA, label_smoothing=0.2)).eval()
    stock = qkv.to_transformers(qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(**SIZE, **LLAMA))).eval()
    qkv_copy = qkv.from_transformers(stock).eval()
    qkv_copy.config.label_smoothing = 0.2
    ids = torch.randint(0, 11, (2, 5))
    found = stock_model(recipe_of(architecture="QkvDecoderForCausalLM"), model, {})
    found.load_state_dict(stock.state_dict())
    assert found(input_ids=ids, labels=ids).loss.item() == pytest.approx(
        qkv_copy(input_ids=ids, labels=ids).loss.item()
    )


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        ("QkvDecoderForCausalLM", {"n_embd": 8}, "model_type"),
        ("QkvDecoderForCausalLM", {"model_type": "gpt3"}, "'gpt3'"),
        ("QkvDecoderForCausalLM", {"model_type": "bert", **SIZE}, r"model_type='bert'"),
        ("QkvDecoderForCausalLM", {"model_type": "vit"}, r"model_type='vit'.*AutoModelForCausalLM"),
        ("QkvDecoderForQuestionAnswering", {}, "QkvDecoderForQuestionAnswering"),
    ],
)
def test_models_without_a_counterpart_are_refused(architecture: str, fields: dict[str, str], message: str) -> None:
    model = getattr(qkv, architecture)(qkv.QkvDecoderConfig(**SIZE))
    with pytest.raises(ValueError, match=message):
        stock_model(recipe_of(architecture=architecture), model, fields)


def test_model_with_another_loss_generates() -> None:
    stock = qkv.to_transformers(qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(**SIZE, **LLAMA))).eval()
    ids = torch.randint(0, 11, (1, 3))
    expected = stock.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
    found = with_summed_loss(stock, None, 0.0).generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert torch.equal(found, expected)


def test_decoder_inputs_begin_as_in_generation() -> None:
    """By its own way mBART would begin with the last token of the labels."""
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = MBartConfig(**sizes, **heads, vocab_size=11, pad_token_id=0, decoder_start_token_id=1, eos_token_id=2)
    found = with_summed_loss(MBartForConditionalGeneration(config).eval(), cross_entropy, 0.0)
    ids, labels = torch.randint(3, 11, (2, 4)), torch.tensor([[5, 6, 7, 2], [8, 2, -100, -100]])
    given = torch.tensor([[1, 5, 6, 7], [1, 8, 2, 0]])
    expected = found(input_ids=ids, labels=labels, decoder_input_ids=given).loss
    assert torch.equal(found(input_ids=ids, labels=labels).loss, expected)
