"""ESMFold, whole: coordinates and confidence of transformers' own, into a qkv model and back into a stock one.

Stock computes rotations in single precision whatever the model's, which is what is left of a difference in double. Of
padding it says other things, which are compared with nothing.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import EsmConfig, EsmForProteinFolding

import qkv
from errors import raises_sentence
from qkv.modeling.conversion.convert import official_conversions
from qkv.modeling.conversion.weights import convert
from sampling import sampled

# Å, and everything else.
TOLERANCES = {torch.float32: (2e-3, 1e-4), torch.float64: (1e-4, 1e-6)}
IDS = torch.tensor([[3, 0, 19, 7, 12, 20, 5], [1, 8, 8, 2, 14, 0, 0]])
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
STRUCTURE = {"sequence_dim": 6, "pairwise_dim": 4, "ipa_dim": 2, "resnet_dim": 4, "num_heads_ipa": 2, "num_blocks": 2}
FIELDS: dict[str, Any] = {
    **{"num_blocks": 2, "sequence_state_dim": 12, "sequence_head_width": 4, "pairwise_state_dim": 6},
    **{"pairwise_head_width": 2, "position_bins": 2, "max_recycles": 3, "structure_module": STRUCTURE},
}


def jittered(model: nn.Module, seed: int) -> Any:
    """With every weight moved off its initial value: gains of one and biases of zero hide mistakes."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


def folding(dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any) -> EsmForProteinFolding:
    """A whole stock model; fields of the trunk, and of the parts around it."""
    around = {name: fields.pop(name) for name in ("embed_aa", "fp16_esm", "bypass_lm") if name in fields}
    config = EsmConfig(
        **{"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "hidden_size": 8, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "intermediate_size": 8, "position_embedding_type": "rotary"},
        is_folding_model=True,
        esmfold_config={"fp16_esm": False, **around, "lddt_head_hid_dim": 4, "trunk": {**FIELDS, **fields}},
    )
    torch.manual_seed(seed)
    model = jittered(EsmForProteinFolding(config), seed)
    return model if around.get("fp16_esm") else model.to(dtype)


def assert_folds_alike(ours: Any, stock: EsmForProteinFolding, mask: Tensor | None, recycles: int | None) -> None:
    """Equal numbers of all real residues; pTM where stock computes it of one chain without padding."""
    actual, expected = (model(IDS, attention_mask=mask, num_recycles=recycles) for model in (ours, stock))
    real = torch.ones_like(IDS).bool() if mask is None else mask.bool()
    pairs = real[:, :, None] & real[:, None]
    distance, other = TOLERANCES[ours.dtype]
    turned = expected.frames[-1] * expected.frames[-1][..., :1].sign() * actual.frames[..., :1].sign()
    frames = torch.cat((turned[..., :4], expected.frames[-1][..., 4:]), dim=-1)
    for one, another, where, tolerance in (
        (actual.positions, expected.positions[-1], real, distance),
        (actual.frames, frames, real, distance),
        (actual.angles, expected.angles[-1], real, other),
        (actual.plddt, expected.plddt, real, other),
        (actual.last_hidden_state, expected.s_s, real, other),
        (actual.pair_hidden_state, expected.s_z, pairs, other),
        (actual.distogram_logits, expected.distogram_logits, pairs, other),
        (actual.lm_logits, expected.lm_logits, real, other),
        (actual.predicted_aligned_error, expected.predicted_aligned_error, pairs, distance),
    ):
        assert one.shape == another.shape
        assert (one - another)[where].abs().max() <= tolerance
    if mask is None:
        assert abs(actual.ptm.max() - expected.ptm) <= other


@pytest.mark.parametrize(("dtype", "mask", "recycles"), sampled(product(TOLERANCES, (None, MASK), (0, 1, None)), 6))
@torch.no_grad()
def test_the_structure_is_equal(dtype: torch.dtype, mask: Tensor | None, recycles: int | None) -> None:
    stock = folding(dtype)
    assert_folds_alike(qkv.from_transformers(stock), stock, mask, recycles)


@torch.no_grad()
def test_files_are_equal() -> None:
    """Of one chain: in a batch stock writes what it says of padding, too."""
    stock = folding()
    ours = qkv.from_transformers(stock)
    actual = ours.to_pdb(ours(IDS, attention_mask=MASK), IDS, MASK)
    expected = stock.output_to_pdb(stock(IDS[:1]))
    assert [len(each.splitlines()) for each in (actual[0], expected[0])] == [len(expected[0].splitlines())] * 2
    for one, other in zip(actual[0].splitlines(), expected[0].splitlines(), strict=True):
        assert one[:30] == other[:30]
        numbers = zip(one[30:60].split(), other[30:60].split(), strict=True)
        assert all(abs(float(a) - float(b)) <= 0.01 for a, b in numbers)
        if one.startswith("ATOM"):  # stock writes pLDDT from 0 to 1, of which two digits are left
            assert abs(float(one[60:66]) - 100 * float(other[60:66])) <= 0.6
    assert {line[22:26].strip() for line in actual[1].splitlines() if line.startswith("ATOM")} == set("12345")


def test_gradients_are_equal() -> None:
    stock, weights = folding(torch.float64), torch.randn(2, 7, 14, 3)
    ours = qkv.from_transformers(stock)
    ours.language_features.residue_head.requires_grad_()
    found = []
    for model in (stock, ours):
        output = model(IDS, num_recycles=1)
        positions = output.positions[-1] if model is stock else output.positions
        others = (output.plddt, output.ptm.max(), output.distogram_logits, output.lm_logits)
        ((weights * positions).sum() + sum(each.sin().sum() for each in others)).backward()
        found.append({name: each.grad for name, each in model.named_parameters() if each.grad is not None})
    (conversion,) = official_conversions(stock)
    theirs = convert(conversion.rows, found[0], ours.config, reading=True)
    assert theirs.keys() == found[1].keys() == {name for name, each in ours.named_parameters() if each.requires_grad}
    theirs["embed_tokens.weight"][0] = found[1]["embed_tokens.weight"][0]  # stock takes alanine for padding
    for name, gradient in theirs.items():
        assert (found[1][name] - gradient).abs().max() <= 1e-5 * gradient.abs().max().clamp(min=1), name


@st.composite
def trunks(draw: Callable[..., Any]) -> dict[str, Any]:
    """Whatever sizes the config of a trunk may say, from four components on: a norm of two is a sign of a difference."""
    width, heads, pair_width, pair_heads = (draw(st.integers(2, 4)) for _ in range(4))
    pair_heads *= 1 + pair_width * pair_heads % 2  # stock wants pairs of even width
    few = st.integers(1, 3)
    return {
        **{"sequence_state_dim": width * heads, "sequence_head_width": width},
        **{"pairwise_state_dim": pair_width * pair_heads, "pairwise_head_width": pair_width},
        **{"num_blocks": draw(few), "position_bins": draw(st.integers(1, 9))},
        **{"max_recycles": draw(st.integers(2, 4)), "chunk_size": draw(st.sampled_from([None, 1, 2, 128]))},
        "structure_module": {
            **{"sequence_dim": draw(st.integers(4, 7)), "pairwise_dim": draw(st.integers(4, 7)), "ipa_dim": draw(few)},
            **{"resnet_dim": draw(st.integers(4, 7)), "num_heads_ipa": draw(few), "num_qk_points": draw(few)},
            **{"num_v_points": draw(few), "num_blocks": draw(few), "num_transition_layers": draw(few)},
            "num_resnet_blocks": draw(few),
        },
    }


@pytest.mark.slow
@settings(max_examples=6, derandomize=True, deadline=None, database=None, suppress_health_check=HealthCheck)
@given(fields=trunks())
@torch.no_grad()
def test_drawn_configs_are_equal_and_go_back(fields: dict[str, Any]) -> None:
    stock = folding(torch.float64, **fields)
    ours = qkv.from_transformers(stock)
    assert_folds_alike(ours, stock, MASK, 1)
    assert_goes_back(ours, stock)


def assert_goes_back(ours: Any, stock: EsmForProteinFolding) -> None:
    again = qkv.to_transformers(ours)
    expected, actual = stock.state_dict(), again.state_dict()
    assert expected.keys() == actual.keys()
    assert [name for name, weight in expected.items() if not torch.equal(weight, actual[name])] == []
    assert (again.dtype, again.training) == (stock.dtype, stock.training)


@pytest.mark.parametrize("fields", [{}, {"fp16_esm": True}, {"dropout": 0.1}], ids=str)
def test_there_and_back_is_the_identity(fields: dict[str, Any]) -> None:
    """ESM-2 is kept in half precision (`fp16_esm`), whatever the trunk is in."""
    stock = folding(**fields)
    ours = qkv.from_transformers(stock)
    assert ours.language_features.encoder.dtype == stock.esm.dtype
    assert (ours.config.residual_dropout, ours.config.pair_dropout) == (
        fields.get("dropout", 0),
        2 * ours.config.residual_dropout,
    )
    assert not any(each.requires_grad for each in ours.language_features.encoder.parameters())
    assert_goes_back(ours, stock)


def test_a_saved_model_is_loaded_with_its_language_model(tmp_path: Any) -> None:
    ours = qkv.from_transformers(folding())
    ours.save_pretrained(tmp_path)
    again = qkv.QkvFoldingModel.from_pretrained(tmp_path).eval()
    assert torch.equal(again(IDS).positions, ours(IDS).positions)


def test_refusals() -> None:
    ours = qkv.from_transformers(folding())
    for refused, mentions in (
        (
            lambda: qkv.from_transformers(folding(max_recycles=1)),
            ("max_recycles=1", "max_recycles=2", "num_recycles=0"),
        ),
        (lambda: qkv.from_transformers(folding(embed_aa=False)), ("embed_aa=False",)),
        (lambda: qkv.from_transformers(folding(bypass_lm=True)), ("bypass_lm=True",)),
        (lambda: qkv.to_transformers(changed(ours, norm_eps=1e-6)), ("norm_eps=1e-06",)),
        (lambda: qkv.to_transformers(changed(ours, language_model_config=None, language_model_ids=None)), ("ESM-2",)),
    ):
        with raises_sentence(*mentions):
            refused()


def changed(model: Any, **fields: Any) -> Any:
    return qkv.QkvFoldingModel(qkv.QkvFoldingConfig(**{**model.config.to_dict(), **fields}))
