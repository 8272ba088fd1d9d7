"""Models that fold a chain: blocks over residues and pairs, and a structure module that places their atoms."""

from dataclasses import fields
from typing import ClassVar

from transformers import PreTrainedConfig

from .axes import OuterProductName
from .configuration_base import auto_classes_of
from .configuration_encoder import QkvEncoderConfig
from .configuration_pair import QkvPairConfig
from .fields import Fields, at_least, rate

# Amino acids in the order of AlphaFold 2, then the unknown one.
RESIDUES = "ARNDCQEGHILKMFPSTWYVX"
# Tokens that a language model reads around a chain.
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")


class QkvFoldingConfig(QkvPairConfig):
    """Configure a model that predicts the atoms of a chain: AlphaFold 2 without templates, ESMFold by configuration.

    The first 21 tokens are the amino acids `ARNDCQEGHILKMFPSTWYVX`.

    Args:
        structure_hidden_size: Width of a residue's vector in the structure module.
        structure_pair_size: Width of a pair's vector in the structure module.
        num_structure_layers: How often the structure module, of one set of weights, moves all residues.
        num_structure_heads: Number of heads of invariant point attention.
        structure_head_dim: Width of a head's queries, keys and values.
        num_query_points: Number of points in space that are queries, and as many keys, of each head.
        num_value_points: Number of points in space that are values of each head.
        num_transition_layers: Number of feed-forward blocks after attention.
        structure_dropout: Dropout probability after attention and after the transition.
        torsion_hidden_size: Width inside the network that predicts torsion angles.
        num_torsion_layers: Number of its residual blocks.
        confidence_hidden_size: Width inside the network that predicts pLDDT.
        language_model_config: Fields of the `QkvEncoderConfig` of a frozen language model, whose layers are mixed into
            the input (ESMFold). None is no language model.
        language_model_ids: Number of each of our tokens in the vocabulary of the language model.
    """

    model_type = "qkv_folding"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of("folding", "QkvFolding")

    vocab_size: int = at_least(1, 23)
    outer_product: OuterProductName = "difference"
    pair_embedding: bool = False
    num_distance_bins: int = at_least(0, 15)
    num_recycles: int = at_least(0, 3, most=100)
    final_norm: bool = False
    pad_token_id: int | None = 21
    structure_hidden_size: int = at_least(1, 384)
    structure_pair_size: int = at_least(1, 128)
    num_structure_layers: int = at_least(1, 8, most=10_000)
    num_structure_heads: int = at_least(1, 12)
    structure_head_dim: int = at_least(1, 16)
    num_query_points: int = at_least(1, 4)
    num_value_points: int = at_least(1, 8)
    num_transition_layers: int = at_least(1, 1, most=10_000)
    structure_dropout: float | int = rate(0.1)
    torsion_hidden_size: int = at_least(1, 128)
    num_torsion_layers: int = at_least(1, 2, most=10_000)
    confidence_hidden_size: int = at_least(1, 128)
    language_model_config: Fields | None = None
    language_model_ids: list[int] | None = None

    def __post_init__(self, **kwargs: object) -> None:
        if self.language_model_config is not None:
            self.language_model_config = complete_encoder(self.language_model_config)
        super().__post_init__(**kwargs)

    @property
    def language_model(self) -> QkvEncoderConfig | None:
        """Config of the language model; None where there is none."""
        return None if self.language_model_config is None else QkvEncoderConfig(**self.language_model_config)

    def validate_folding(self) -> None:
        """Check that a result can be recycled, and that the language model knows each token."""
        if self.num_recycles and self.final_norm:
            raise ValueError(f"num_recycles={self.num_recycles} needs final_norm=False, got final_norm=True")
        language, ids = self.language_model, self.language_model_ids
        if (language is None) != (ids is None):
            raise ValueError("language_model_config and language_model_ids belong together; give both or none")
        if language and not all(isinstance(getattr(language, name), int) for name in SPECIAL):
            raise ValueError(f"language_model_config needs one number as each of {', '.join(SPECIAL)}")
        if language and ids and (len(ids) != self.vocab_size or not all(0 <= i < language.vocab_size for i in ids)):
            raise ValueError(
                f"language_model_ids={ids} must be vocab_size={self.vocab_size} numbers below the vocab_size="
                f"{language.vocab_size} of language_model_config"
            )


def complete_encoder(given: Fields) -> Fields:
    """Return every field of a text encoder's config, so that no later default changes a saved one."""
    values = QkvEncoderConfig(**given).to_dict()
    others = {each.name for each in fields(PreTrainedConfig)} - {"dtype"}
    return {each.name: values[each.name] for each in fields(QkvEncoderConfig) if each.name not in others}
