"""Conversion of ESMFold, whole: ESM-2, folding trunk, structure module and heads.

Stock has one pTM for a batch, where ours has one for each chain.
"""

from transformers import EsmConfig, PreTrainedConfig
from transformers.models.esm.configuration_esm import get_default_vocab_list

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_folding import RESIDUES, QkvFoldingConfig, complete_encoder
from .config import Architecture, Codec, Conversion, Head, Value, Values, renames
from .encoder import ESM, MODEL
from .weights import ROWS, placed

FOLDING, TRUNK = "esmfold_config", "esmfold_config.trunk"
STRUCTURE = f"{TRUNK}.structure_module"
LANGUAGE = Conversion(ESM, MODEL)
# Tokens of ESM-2 for ours.
TOKENS = (*RESIDUES, "<unk>", "<mask>")


def read_passes(passes: int, theirs: Values) -> int:
    """Read the number of recycles: `max_recycles` of stock counts passes, and the first recycles nothing."""
    if passes < 2:
        raise ValueError(
            f"max_recycles={passes} of the trunk runs no second pass, and without one ours has no norms of recycling; "
            "set max_recycles=2 in its config, and num_recycles=0 at each call"
        )
    return passes - 1


def heads_of(side: str, width: str) -> Codec:
    """Count the heads of residues or of pairs, of which stock tells the width."""
    return Codec(
        f"{TRUNK}.{side}_head_width",
        lambda size, theirs: theirs[f"{side}_state_dim"] // size,
        lambda heads, ours: ours[width] // heads,
    )


def times(name: str, factor: float, other: str) -> Codec:
    """Multiply a number that is another field of ours, too."""
    return Codec(f"{TRUNK}.{name}", lambda value, theirs: type(value)(factor * value), lambda value, ours: ours[other])


def inside(part: str, names: str) -> Values:
    """Map our names of fields to theirs in a part: `ours=theirs`, or one name that both sides use."""
    return {ours: f"{part}.{theirs}" for ours, theirs in renames(names).items()}


FIELDS = {
    **inside(TRUNK, "hidden_size=sequence_state_dim num_hidden_layers=num_blocks pair_hidden_size=pairwise_state_dim"),
    **inside(TRUNK, "relative_position_bins=position_bins residual_dropout=dropout"),
    "intermediate_size": times("sequence_state_dim", 4, "hidden_size"),
    "num_attention_heads": heads_of("sequence", "hidden_size"),
    "pair_intermediate_size": times("pairwise_state_dim", 4, "pair_hidden_size"),
    "outer_product_size": times("pairwise_state_dim", 0.5, "pair_hidden_size"),
    "num_pair_attention_heads": heads_of("pairwise", "pair_hidden_size"),
    "num_recycles": Codec(f"{TRUNK}.max_recycles", read_passes, lambda recycles, ours: recycles + 1),
    "chunk_size": Codec(f"{TRUNK}.chunk_size", lambda size, theirs: size or QkvFoldingConfig.chunk_size),
    "pair_dropout": times("dropout", 2, "residual_dropout"),
    **inside(STRUCTURE, "structure_hidden_size=sequence_dim structure_pair_size=pairwise_dim"),
    **inside(STRUCTURE, "num_structure_layers=num_blocks num_structure_heads=num_heads_ipa"),
    **inside(STRUCTURE, "structure_head_dim=ipa_dim num_query_points=num_qk_points num_value_points=num_v_points"),
    **inside(STRUCTURE, "num_transition_layers structure_dropout=dropout_rate"),
    **inside(STRUCTURE, "torsion_hidden_size=resnet_dim num_torsion_layers=num_resnet_blocks"),
    **inside(FOLDING, "confidence_hidden_size=lddt_head_hid_dim"),
}
WORDS = {
    # 20 amino acids, an unknown one, padding and the mask; of distances 15 kinds are recycled, 64 predicted.
    **{"vocab_size": len(TOKENS), "num_distance_bins": 15, "num_distogram_bins": 64},
    **{"outer_product": "difference", "column_attention": False, "pair_embedding": False, "final_norm": False},
    **{"attention_gate": True, "hidden_act": "relu", "norm_eps": 1e-5},
}
ESMFOLD = Architecture(
    "esm",
    QkvFoldingConfig,
    FIELDS,
    WORDS,
    (
        *ROWS["esmfold"],
        *placed(ESM.rows, "language_features.encoder.", "esm."),
        *placed(ROWS["esmfold_trunk"], "", "trunk."),
        *placed(ROWS["esmfold_structure"], "structure_module.", "trunk.structure_module."),
    ),
    (Head("Model", theirs="ForProteinFolding"),),
    # Stock has one rate of dropout in the trunk, and padding has no number.
    free="initializer_range inv_freq_dtype pair_dropout classifier_dropout pad_token_id bos_token_id eos_token_id",
    # How it is run, and a mask's large number.
    inert="esm_type cpu_grad_checkpoint layer_drop inf use_cache classifier_dropout chunk_size",
)


class FoldingConversion(Conversion):
    """Convert a config that has the fields of a language model beside those of a fold."""

    def read(self, config: PreTrainedConfig) -> QkvConfig:
        """Translate an official config to ours."""
        theirs: Value = config
        if theirs.esmfold_config is None:
            raise ValueError("is_folding_model=False in a config of ESMFold; set is_folding_model=True")
        ours: Value = super().read(config)
        language: Value = LANGUAGE.read(config)
        language.bos_token_id, language.eos_token_id = map(theirs.vocab_list.index, ("<cls>", "<eos>"))
        language.dtype = "float16" if theirs.esmfold_config.fp16_esm else None
        ours.language_model_config = complete_encoder(language.to_dict())
        ours.language_model_ids = list(map(theirs.vocab_list.index, TOKENS))
        return ours

    def write(self, config: QkvConfig) -> PreTrainedConfig:
        """Translate our config to the official one."""
        ours: Value = config
        if ours.language_model is None:
            raise ValueError("language_model_config=None, where ESMFold has ESM-2")
        language = LANGUAGE.write(ours.language_model).to_dict()
        values = {**language, **self.written(config), "is_folding_model": True, "vocab_list": get_default_vocab_list()}
        values[FOLDING]["fp16_esm"] = ours.language_model_config["dtype"] == "float16"
        return EsmConfig(**values)


CONVERSIONS_OF_FOLDING = [FoldingConversion(ESMFOLD, head) for head in ESMFOLD.heads]
