"""Conversion of ESMFold's folding trunk: out of a stock model, and back into one.

A stock model is more than a trunk: ESM-2 before it, the structure module after it and between its passes. So the way
back needs a stock model, which brings the rest. In training, stock drops out transitions of pairs at half the rate of
their other branches, and incoming triangles by columns; ours drops out both as all others.
"""

from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from ...configuration.configuration_pair import QkvPairConfig
from ..base import QkvPreTrainedModel
from ..modeling_pair import QkvPairModel
from .config import Architecture, Codec, Conversion, Head, Values, different, flat, renames
from .files import Model, check_tensors_placed, filled
from .weights import Rows, convert, owned

logger = logging.get_logger(__name__)


def read_passes(passes: int, theirs: Values) -> int:
    """Read the number of recycles: `max_recycles` of stock counts passes, and the first recycles nothing."""
    if passes < 2:
        raise ValueError(
            f"max_recycles={passes} of the trunk runs no second pass, and without one ours has no norms of recycling; "
            "set max_recycles=2 in its config, and num_recycles=0 at each call"
        )
    return passes - 1


def heads_of(side: str) -> Codec:
    """Count the heads of residues or of pairs, of which stock tells the width."""
    return Codec(f"{side}_head_width", lambda width, theirs: theirs[f"{side}_state_dim"] // width)


def times(name: str, factor: float) -> Codec:
    """Scale a number."""
    return Codec(name, lambda value, theirs: type(value)(factor * value))


def unread(names: str) -> Rows:
    """Return rows of weights that stay in a stock model."""
    return tuple(("", name, "unread") for name in names.split())


# ESM-2, how its layers are mixed, the heads on residues and of confidence.
OUTSIDE = unread("esm.** af2_to_esm esm_s_combine esm_s_mlp.** lm_head lddt_head.** ptm_head")
TRUNK = Architecture(
    "esm",
    QkvPairConfig,
    {
        **renames("hidden_size=sequence_state_dim num_hidden_layers=num_blocks pair_hidden_size=pairwise_state_dim"),
        **renames("relative_position_bins=position_bins residual_dropout=dropout"),
        "intermediate_size": times("sequence_state_dim", 4),
        "num_attention_heads": heads_of("sequence"),
        "pair_intermediate_size": times("pairwise_state_dim", 4),
        "outer_product_size": times("pairwise_state_dim", 0.5),
        "num_pair_attention_heads": heads_of("pairwise"),
        "num_recycles": Codec("max_recycles", read_passes),
        "chunk_size": Codec("chunk_size", lambda size, theirs: size or QkvPairConfig.chunk_size),
        "pair_dropout": times("dropout", 2),
    },
    {
        # 20 amino acids, an unknown one, padding and the mask; of distances 15 kinds are recycled, 64 predicted.
        **{"vocab_size": 23, "pad_token_id": 0, "num_distance_bins": 15, "num_distogram_bins": 64},
        **{"outer_product": "difference", "column_attention": False, "pair_embedding": False, "final_norm": False},
        **{"attention_gate": True, "hidden_act": "relu", "norm_eps": 1e-5},
    },
    (
        ("embed_pairs.{relative_positions,distances}", "{pairwise_positional_embedding.embedding,recycle_disto}"),
        ("recycling.{norm,pair_norm}", "{recycle_s_norm,recycle_z_norm}"),
        ("blocks.*.row_bias.{norm,proj}", "blocks.*.pair_to_sequence.{layernorm,linear}"),
        ("blocks.*.row_attn_residual.norm", "blocks.*.layernorm_1"),
        ("blocks.*.row_attn.{q,k,v}_proj", "blocks.*.seq_attention.proj", "split num_attention_heads"),
        ("blocks.*.row_attn.{o,g}_proj", "blocks.*.seq_attention.{o,g}_proj"),
        ("blocks.*.transition_residual.norm", "blocks.*.mlp_seq.mlp.0"),
        ("blocks.*.transition.{up,down}_proj", "blocks.*.mlp_seq.mlp.{1,3}"),
        ("blocks.*.outer_product.{norm,proj,pair_proj}", "blocks.*.sequence_to_pair.{layernorm,proj,o_proj}"),
        ("blocks.*.pair_residuals.{outgoing,incoming}.norm", "blocks.*.{tri_mul_out,tri_mul_in}.layer_norm_in"),
        ("blocks.*.{outgoing,incoming}.{a,b}_proj", "blocks.*.{tri_mul_out,tri_mul_in}.linear_{a,b}_p"),
        ("blocks.*.{outgoing,incoming}.{a,b}_gate", "blocks.*.{tri_mul_out,tri_mul_in}.linear_{a,b}_g"),
        ("blocks.*.{outgoing,incoming}.norm", "blocks.*.{tri_mul_out,tri_mul_in}.layer_norm_out"),
        ("blocks.*.{outgoing,incoming}.{o_proj,o_gate}", "blocks.*.{tri_mul_out,tri_mul_in}.linear_{z,g}"),
        ("blocks.*.pair_residuals.{starting,ending}.norm", "blocks.*.{tri_att_start,tri_att_end}.layer_norm"),
        ("blocks.*.{starting,ending}.bias_proj", "blocks.*.{tri_att_start,tri_att_end}.linear"),
        (
            "blocks.*.{starting,ending}.attention.{q,k,v,o,g}_proj",
            "blocks.*.{tri_att_start,tri_att_end}.mha.linear_{q,k,v,o,g}",
        ),
        ("blocks.*.pair_residuals.pair_transition.norm", "blocks.*.mlp_pair.mlp.0"),
        ("blocks.*.pair_transition.{up,down}_proj", "blocks.*.mlp_pair.mlp.{1,3}"),
        *unread("structure_module.** trunk2sm_s trunk2sm_z"),
    ),
    (
        Head(
            "Model",
            (*OUTSIDE, *unread("distogram_head"), ("embed_tokens", "embedding")),
            theirs="ForProteinFolding",
            prefix="trunk.",
        ),
        Head(
            "ForDistancePrediction",
            (*OUTSIDE, ("classifier", "distogram_head"), ("model.embed_tokens", "embedding")),
            theirs="ForProteinFolding",
        ),
        Head("Model", theirs="FoldingTrunk"),
    ),
    prefix="trunk.",
    free="initializer_range",
)
CONVERSIONS = [Conversion(TRUNK, head) for head in TRUNK.heads]
# They change no number outside training.
FREE = {"chunk_size", "residual_dropout", "pair_dropout"}


def trunk_from_transformers(
    stock: nn.Module,
    model_class: type[Model] = QkvPairModel,  # type: ignore[assignment]  # the default of a type variable
) -> Model:
    """Return the folding trunk of a stock `EsmForProteinFolding`, or a bare `EsmFoldingTrunk`, as a qkv model.

    Of the whole, `model_class` may also be `QkvPairForDistancePrediction`, with the distogram head; a warning names the
    parts that stay in the stock model. The stock `seq_feats` are `inputs_embeds` of ours, and bins of
    `EsmFoldingTrunk.distogram` are `distance_bins`, new ones in each pass, so call ours once for each: with
    `num_recycles=0`, and as `recycled` with the states of the call before. The stock `lm_head` reads
    `last_hidden_state`. Without a table of residues (`embed_aa=False`) ours is of zeros.

    Source: Lin et al. 2023, ESMFold, https://doi.org/10.1126/science.ade2574
    """
    trunk, conversion = trunk_and_conversion(stock, model_class)
    config, like = conversion.read(trunk.config), next(trunk.parameters())
    weights = convert(conversion.rows, stock.state_dict(keep_vars=True), config, reading=True)
    weights.setdefault(embedding(conversion), like.new_zeros(config.vocab_size, config.hidden_size))
    weights = owned(weights, stock, copies=True)
    model, unplaced = filled(model_class, conversion.theirs, config, weights, dtype=like.dtype)
    check_tensors_placed(conversion.theirs, model_class.__name__, unplaced)
    left = ", ".join(row.theirs[0].removesuffix(".**") for row in conversion.rows if not row.ours)
    logger.warning(f"{model_class.__name__} holds the folding trunk of {conversion.theirs}, without {left}")
    return model.train(trunk.training).to(like.device)


@torch.no_grad()
def trunk_to_transformers(model: QkvPreTrainedModel, stock: nn.Module) -> None:
    """Write a folding trunk, and its head, into a stock `EsmForProteinFolding` or `EsmFoldingTrunk` of the same config.

    All else in the stock model stays as it is: ESM-2, the structure module, other heads. A trunk of another config or
    dtype is an error, as is a table of residues for which stock has no place.
    """
    trunk, conversion = trunk_and_conversion(stock, type(model))
    names = (TRUNK.fields.keys() | TRUNK.words.keys()) - FREE
    ours = {name: value for name, value in flat(model.config).items() if name in names}
    lost, dtype = different(ours, flat(conversion.read(trunk.config))), next(trunk.parameters()).dtype
    if model.dtype != dtype:
        lost.append(f"dtype={model.dtype} would become {dtype}")
    if lost:
        raise ValueError(f"in this stock model {' and '.join(lost)}; give one of the same config and dtype")
    weights, table = dict(model.state_dict()), embedding(conversion)
    if not hasattr(stock, "embedding") and weights.pop(table).any():
        raise ValueError(
            f"{table} has vectors of residues, for which this {conversion.theirs} has no place; give one with "
            "embed_aa=True"
        )
    for name, weight in convert(conversion.rows, weights, model.config, reading=False).items():
        stock.get_parameter(name).copy_(weight)


def trunk_and_conversion(stock: nn.Module, model_class: type[nn.Module]) -> tuple[Any, Conversion]:
    """Return the trunk of a stock model, and its conversion to a class of ours."""
    theirs, ours = ({base.__name__ for base in each.__mro__} for each in (type(stock), model_class))
    conversions = [each for each in CONVERSIONS if each.theirs in theirs]
    if not conversions:
        raise ValueError(
            f"a folding trunk is in an EsmForProteinFolding, or is an EsmFoldingTrunk; this is a {type(stock).__name__}"
        )
    for conversion in conversions:
        if conversion.ours in ours:
            return getattr(stock, "trunk", stock), conversion
    known = ", ".join(each.ours for each in conversions)
    raise ValueError(f"{model_class.__name__} is no model of {conversions[0].theirs}'s trunk; give one of {known}")


def embedding(conversion: Conversion) -> str:
    """Return our name of the table of residues."""
    return "embed_tokens.weight" if conversion.ours == QkvPairModel.__name__ else "model.embed_tokens.weight"
