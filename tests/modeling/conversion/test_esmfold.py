"""ESMFold's trunk: the numbers of transformers' own, into a qkv model and back into a stock one.

Stock recycles distances of its structure module, of zeros in the first pass; ours adds the bins that it is given in
every pass of a call. So these are equal: one pass without bins; any number of passes in which stock is given the same
bins; and all passes of stock with a structure module, of which ours are one call each. Padding is compared with
nothing: stock lets pairs of padding attend to what they like, which no real residue or pair reads.
"""

import copy
import logging
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import EsmConfig, EsmForProteinFolding, PreTrainedModel
from transformers.models.esm.configuration_esm import TrunkConfig
from transformers.models.esm.modeling_esmfold import EsmFoldingTrunk
from transformers.testing_utils import CaptureLogger

import qkv
from errors import raises_sentence
from qkv.modeling.conversion.esmfold import trunk_and_conversion
from qkv.modeling.conversion.weights import Row, convert
from sampling import sampled

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}
LENGTH = 7
IDS = torch.tensor([[3, 0, 19, 7, 12, 20, 5], [1, 8, 8, 2, 14, 0, 0]])
MASK = torch.tensor([[1] * LENGTH, [1] * 5 + [0] * 2])
STRUCTURE = {"sequence_dim": 6, "pairwise_dim": 4, "ipa_dim": 2, "resnet_dim": 4, "num_heads_ipa": 2, "num_blocks": 2}
FIELDS: dict[str, Any] = {
    **{"num_blocks": 2, "sequence_state_dim": 12, "sequence_head_width": 4, "pairwise_state_dim": 6},
    **{"pairwise_head_width": 2, "position_bins": 2, "max_recycles": 3, "structure_module": STRUCTURE},
}
each_case = pytest.mark.parametrize(("dtype", "mask"), sampled(product(TOLERANCES, (None, MASK)), 3))


def jittered(model: nn.Module, seed: int) -> Any:
    """With every weight moved off its initial value: gains of one and biases of zero hide mistakes."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


def folding(dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any) -> EsmForProteinFolding:
    """A whole stock model; fields of the trunk, and `embed_aa` and `fp16_esm` of what is around it."""
    around = {name: fields.pop(name, default) for name, default in (("embed_aa", True), ("fp16_esm", False))}
    config = EsmConfig(
        **{"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "hidden_size": 8, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 8, "position_embedding_type": "rotary"},
        is_folding_model=True,
        esmfold_config={**around, "lddt_head_hid_dim": 4, "trunk": {**FIELDS, **fields}},
    )
    torch.manual_seed(seed)
    model = jittered(EsmForProteinFolding(config), seed)
    return model if around["fp16_esm"] else model.to(dtype)


def bare(dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any) -> EsmFoldingTrunk:
    torch.manual_seed(seed)
    return jittered(EsmFoldingTrunk(TrunkConfig(**{**FIELDS, **fields})), seed).to(dtype)


def features(dtype: torch.dtype, width: int, length: int = LENGTH, rows: int = 2) -> Tensor:
    return torch.randn(rows, length, width, dtype=dtype, generator=torch.Generator().manual_seed(1))


def known_bins(length: int = LENGTH, rows: int = 2) -> Tensor:
    """Numbers of distances, those of (i, j) others than those of (j, i)."""
    return torch.randint(15, (rows, length, length), generator=torch.Generator().manual_seed(2))


def run_stock(trunk: EsmFoldingTrunk, residues: Tensor, mask: Tensor | None, recycles: int | None) -> dict[str, Tensor]:
    """What a stock trunk says of sequence features."""
    batch, length = residues.shape[:2]
    pairs = residues.new_zeros(batch, length, length, trunk.config.pairwise_state_dim)
    real = residues.new_ones(batch, length, dtype=torch.long) if mask is None else mask
    places = torch.arange(length).expand(batch, -1)
    return trunk(residues, pairs, torch.zeros_like(places), places, real, recycles)


def give_bins(trunk: EsmFoldingTrunk, bins: Tensor) -> None:
    """Have a stock trunk read these distances in every pass."""
    trunk.recycle_disto.register_forward_pre_hook(lambda module, args: (bins,))


def distance(actual: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], mask: Tensor | None) -> float:
    """The largest difference of residues and pairs, at real ones."""
    real = torch.ones(actual[0].shape[:2]).bool() if mask is None else mask.bool()
    pairs = real[:, :, None] & real[:, None]
    found = [
        (one - other)[where].abs().max().item()
        for one, other, where in zip(actual, expected, (real, pairs), strict=True)
    ]
    assert all(one.shape == other.shape for one, other in zip(actual, expected, strict=True))
    return max(found)


def states(output: Any) -> tuple[Tensor, Tensor]:
    if isinstance(output, dict) and "s_s" in output:
        return output["s_s"], output["s_z"]
    return output.last_hidden_state, output.pair_hidden_state


@each_case
@torch.no_grad()
def test_one_pass_of_the_whole_model_is_equal(dtype: torch.dtype, mask: Tensor | None) -> None:
    stock, seen = folding(dtype), []
    stock.trunk.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    expected = stock(IDS, attention_mask=mask, num_recycles=0)
    given = {"inputs_embeds": seen[0], "attention_mask": mask, "num_recycles": 0}
    ours = qkv.trunk_from_transformers(stock)
    residues, pairs = states(ours(**given))
    assert distance((residues, pairs), states(expected), mask) <= TOLERANCES[dtype]
    distogram = qkv.trunk_from_transformers(stock, qkv.QkvPairForDistancePrediction)(**given).logits
    logits = expected.lm_logits, expected.distogram_logits
    assert distance((stock.lm_head(residues), distogram), logits, mask) <= TOLERANCES[dtype]
    assert torch.equal(ours.embed_tokens(IDS), stock.embedding(IDS))


@each_case
@torch.no_grad()
def test_each_pass_around_the_structure_module_is_equal(dtype: torch.dtype, mask: Tensor | None) -> None:
    stock, read, made = bare(dtype), [], []
    stock.recycle_disto.register_forward_pre_hook(lambda module, args: read.append(args[0]))
    stock.blocks[-1].register_forward_hook(lambda module, args, output: made.append(output))
    ours, residues = qkv.trunk_from_transformers(stock), features(dtype, 12)
    run_stock(stock, residues, mask, 2)
    assert len(read) == len(made) == 3 and not read[0].any() and len(read[1].unique()) > 2
    call, recycled = partial(ours, inputs_embeds=residues, attention_mask=mask, num_recycles=0), None
    for bins, expected in zip(read, made, strict=True):
        recycled = states(call(distance_bins=bins, recycled=recycled))
        assert distance(recycled, expected, mask) <= TOLERANCES[dtype]


@pytest.mark.parametrize(("mask", "chunk_size"), sampled(product((None, MASK), (128, 3)), 3))
def test_gradients_are_equal(mask: Tensor | None, chunk_size: int) -> None:
    stock, bins = bare(torch.float64), known_bins()
    give_bins(stock, bins)
    ours = qkv.trunk_from_transformers(bare(torch.float64, chunk_size=chunk_size))
    assert ours.config.chunk_size == chunk_size
    residues, real = features(torch.float64, 12).requires_grad_(), torch.ones(2, LENGTH) if mask is None else mask
    weights = torch.randn(2, LENGTH, 12), torch.randn(2, LENGTH, LENGTH, 6)
    weights = weights[0] * real[..., None], weights[1] * (real[:, :, None] * real[:, None])[..., None]
    outputs = (
        run_stock(stock, residues, mask, 2),
        ours(inputs_embeds=residues, attention_mask=mask, distance_bins=bins, num_recycles=2),
    )
    found = []
    for model, output in zip((stock, ours), outputs, strict=True):
        loss = sum((weight * value).sum() for weight, value in zip(weights, states(output), strict=True))
        loss.backward()
        found.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
        found[-1]["inputs"], residues.grad = residues.grad, None
    table = (*trunk_and_conversion(stock, type(ours))[1].rows, Row(["inputs"], ["inputs"], []))
    theirs, mine = convert(table, found[0], ours.config, reading=True), found[1]
    assert mine.keys() == theirs.keys() == {*dict(ours.named_parameters()), "inputs"} - {"embed_tokens.weight"}
    for name, gradient in theirs.items():
        assert (mine[name] - gradient).abs().max() <= 1e-10, name


# What is no part of the trunk, in a whole stock model and in a bare trunk.
STAYS = ("esm", "af2_to_esm", "lm_head", "lddt_head", "ptm_head", "trunk.structure_module", "trunk.trunk2sm")
STAYS += ("structure_module", "trunk2sm")


def assert_written(ours: PreTrainedModel, source: nn.Module, target: nn.Module, *stays: str) -> None:
    """Write into a stock model: what is the trunk's, or its head's, is the source's to the bit, all else as it was."""
    before = copy.deepcopy(target.state_dict())
    qkv.trunk_to_transformers(ours, target)
    for name, weight in target.state_dict().items():
        stayed = name.startswith((*STAYS, *stays))
        assert torch.equal(weight, (before if stayed else source.state_dict())[name]), name
        assert weight.ndim == 1 or torch.equal(before[name], weight) == stayed, name


@st.composite
def trunks(draw: Callable[..., Any]) -> dict[str, Any]:
    """Whatever sizes the config of a trunk may say, from four components on: a norm of two is a sign of a difference."""
    width, heads, pair_width, pair_heads = (draw(st.integers(2, 4)) for _ in range(4))
    pair_heads *= 1 + pair_width * pair_heads % 2  # stock wants pairs of even width
    return {
        **{"sequence_state_dim": width * heads, "sequence_head_width": width},
        **{"pairwise_state_dim": pair_width * pair_heads, "pairwise_head_width": pair_width},
        **{"num_blocks": draw(st.integers(1, 3)), "position_bins": draw(st.integers(1, 9))},
        **{"max_recycles": draw(st.integers(2, 4)), "chunk_size": draw(st.sampled_from([None, 1, 2, 128]))},
    }


@pytest.mark.slow
@settings(max_examples=30, derandomize=True, deadline=None, database=None, suppress_health_check=HealthCheck)
@given(fields=trunks(), length=st.integers(1, 6), padding=st.integers(0, 2))
@torch.no_grad()
def test_drawn_configs_are_equal_and_go_back(fields: dict[str, Any], length: int, padding: int) -> None:
    mask, bins = torch.ones(2, length + padding, dtype=torch.long), known_bins(length + padding)
    mask[1, length:] = 0
    for dtype, tolerance in TOLERANCES.items():
        stock = bare(dtype, **fields)
        give_bins(stock, bins)
        ours = qkv.trunk_from_transformers(stock)
        residues = features(dtype, fields["sequence_state_dim"], length + padding)
        expected = states(run_stock(stock, residues, mask, None))
        actual = states(ours(inputs_embeds=residues, attention_mask=mask, distance_bins=bins))
        assert distance(actual, expected, mask) <= tolerance
        assert_written(ours, stock, bare(dtype, seed=1, **fields))


@pytest.mark.parametrize("embed_aa", [True, False])
def test_there_and_back_is_the_identity(embed_aa: bool) -> None:
    source, target, other = (folding(seed=seed, embed_aa=embed_aa) for seed in (0, 1, 2))
    assert_written(qkv.trunk_from_transformers(source), source, target, "distogram_head")
    assert_written(qkv.trunk_from_transformers(source, qkv.QkvPairForDistancePrediction), source, other)


def test_the_trunk_has_weights_of_its_own_in_its_dtype_and_mode() -> None:
    """ESM-2 is kept in half precision (`fp16_esm`), whatever the trunk is in; a warning names what stays behind."""
    stock = folding(fp16_esm=True, dropout=0.1)
    assert stock.esm.dtype == torch.float16
    with CaptureLogger(logging.getLogger("qkv")) as said:
        ours = qkv.trunk_from_transformers(stock)
    left = "esm, af2_to_esm, esm_s_combine, esm_s_mlp, lm_head, lddt_head, ptm_head, distogram_head"
    assert f"{left}, trunk.structure_module, trunk.trunk2sm_s, trunk.trunk2sm_z" in said.out
    assert ours.dtype == torch.float32 and not ours.training
    assert (ours.config.residual_dropout, ours.config.pair_dropout) == (0.1, 0.2)
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    with torch.no_grad():
        for parameter in stock.parameters():
            parameter.zero_()
    assert all(torch.equal(weight, before[name]) for name, weight in ours.state_dict().items())
    assert qkv.trunk_from_transformers(stock.train()).training


def test_refusals() -> None:
    whole, trunk = folding(), bare()
    ours = qkv.trunk_from_transformers(whole)
    read, write = qkv.trunk_from_transformers, qkv.trunk_to_transformers
    refused = [
        (lambda: read(whole.esm), ("EsmForProteinFolding", "EsmFoldingTrunk", "EsmModel")),
        (lambda: read(whole, qkv.QkvPairForMaskedLM), ("QkvPairForMaskedLM", "QkvPairForDistancePrediction")),
        (lambda: read(trunk, qkv.QkvPairForDistancePrediction), ("EsmFoldingTrunk", "QkvPairModel")),
        (lambda: read(bare(max_recycles=1)), ("max_recycles=1", "max_recycles=2", "num_recycles=0")),
        (
            lambda: write(qkv.QkvPairForTokenClassification(ours.config), whole),
            ("QkvPairForTokenClassification", "QkvPairModel"),
        ),
        (lambda: write(ours, folding(num_blocks=3)), ("num_hidden_layers=2", "3", "config")),
        (lambda: write(ours, folding(max_recycles=4)), ("num_recycles=2", "config")),
        (lambda: write(ours, folding(torch.float64)), ("torch.float32", "torch.float64")),
        (lambda: write(ours, trunk), ("embed_tokens.weight", "embed_aa=True")),
    ]
    for refuse, mentions in refused:
        with raises_sentence(*mentions):
            refuse()
    other = qkv.QkvPairConfig(**{**qkv.trunk_from_transformers(trunk).config.to_dict(), "norm_eps": 1e-6})
    with raises_sentence("norm_eps=1e-06", "config"):
        write(qkv.QkvPairModel(other), bare())
