"""Models of residues and of their pairs: AlphaFold 2's Evoformer, and the folding trunk of ESMFold."""

from typing import ClassVar

from .axes import ActivationName, FrontendName, OuterProductName
from .configuration_attention import head_size
from .configuration_base import QkvConfig, auto_classes_of
from .configuration_stack import StackConfig
from .fields import Derived, Fields, at_least, positive, rate


class PairBlocksConfig(QkvConfig):
    """Configure the blocks of a model of pairs.

    Args:
        hidden_size: Width of a residue's vector.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Number of heads with which residues attend to each other.
        intermediate_size: Width inside the transition of residues. None is `4 * hidden_size`.
        pair_hidden_size: Width of a pair's vector.
        num_pair_attention_heads: Number of heads of triangle attention.
        pair_intermediate_size: Width inside the transition of pairs. None is `4 * pair_hidden_size`.
        attention_gate: Whether what each head reads is scaled by a sigmoid of the query's input.
        column_attention: Whether residues also attend along the columns of an alignment, which `msa_ids` needs.
        outer_product: How residues update pairs: `mean` over an alignment (AlphaFold 2); `difference` (ESMFold).
        outer_product_size: Width of the projections. None is 32, or half of `pair_hidden_size` for `difference`.
        chunk_size: Number of rows of pairs whose attention is computed at once; it bounds memory and changes nothing.
        pair_dropout: Dropout probability after triangle multiplication and attention, alike in a row or a column.
    """

    hidden_size: int = at_least(1, 256)
    num_hidden_layers: int = at_least(1, 48, most=10_000)
    num_attention_heads: int = at_least(1, 8)
    intermediate_size: Derived = at_least(1, follows=lambda config: 4 * config.hidden_size)
    pair_hidden_size: int = at_least(1, 128)
    num_pair_attention_heads: int = at_least(1, 4)
    pair_intermediate_size: Derived = at_least(1, follows=lambda config: 4 * config.pair_hidden_size)
    attention_gate: bool = True
    column_attention: bool = False
    outer_product: OuterProductName = "mean"
    outer_product_size: Derived = at_least(
        1, follows=lambda config: 32 if config.outer_product == "mean" else max(config.pair_hidden_size // 2, 1)
    )
    chunk_size: int = at_least(1, 128)
    hidden_act: ActivationName = "relu"
    norm_eps: float | int = positive(1e-5)
    attention_dropout: float | int = rate()
    residual_dropout: float | int = rate()
    pair_dropout: float | int = rate()
    initializer_range: float | int = positive(0.02)

    def residue_stack(self) -> StackConfig:
        """Return the config of attention, transition and residual connections of residues."""
        return self.part(self.hidden_size, self.num_attention_heads, self.intermediate_size, self.residual_dropout)

    def pair_stack(self) -> StackConfig:
        """Return the config of attention, transition and residual connections of pairs."""
        return self.part(self.pair_hidden_size, self.num_pair_attention_heads, self.pair_intermediate_size)

    def part(self, width: int, heads: int, intermediate_size: int, dropout: float = 0.0) -> StackConfig:
        """Return the config of a part of these sizes."""
        return StackConfig(
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=intermediate_size,
            residual_dropout=dropout,
            num_hidden_layers=self.num_hidden_layers,
            position="none",
            attention_bias=["o_proj"],
            attention_gate=self.attention_gate,
            attention_dropout=self.attention_dropout,
            hidden_act=self.hidden_act,
            norm_eps=self.norm_eps,
        )

    def validate_heads(self) -> None:
        """Check that residues and pairs divide into heads, and that all rows of an alignment reach the pairs."""
        head_size(self.hidden_size, self.num_attention_heads)
        if self.pair_hidden_size % self.num_pair_attention_heads:
            heads = f"num_pair_attention_heads={self.num_pair_attention_heads}"
            raise ValueError(f"pair_hidden_size={self.pair_hidden_size} is not a multiple of {heads}")
        if self.column_attention and self.outer_product != "mean":
            product = f"outer_product={self.outer_product!r}"
            raise ValueError(f"column_attention=True needs outer_product='mean', got {product}, which reads one row")


class QkvPairConfig(PairBlocksConfig):
    """Configure a model of a chain and of all its pairs: residues -> blocks -> one vector each, and one for each pair.

    Args:
        vocab_size: Number of kinds of residues, with padding and masks.
        pair_embedding: Whether pairs start from a sum of projections of both residues (AlphaFold 2).
        relative_position_bins: Distance in the chain from which on all are embedded alike. 0 leaves order unseen.
        num_distance_bins: Number of kinds of distances that `distance_bins` tells of pairs. 0 is none.
        num_distogram_bins: Number of kinds of distances that are predicted.
        num_recycles: How often the result is added to the input of another pass.
        final_norm: Whether a norm follows the last block.
    """

    model_type = "qkv_pair"
    base_model_fsdp_plan: ClassVar[Fields] = dict.fromkeys(("embed_tokens", "blocks.*"), "free_full_weight")
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["pair_hidden_state", "msa_hidden_state"]
    frontend: ClassVar[FrontendName] = "tokens"
    embedding_multiplier: ClassVar[float] = 1.0
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of("pair", "QkvPair", "MaskedLM TokenClassification")

    vocab_size: int = at_least(1, 33)
    pair_embedding: bool = True
    relative_position_bins: int = at_least(0, 32)
    num_distance_bins: int = at_least(0, 0)
    num_distogram_bins: int = at_least(1, 64)
    num_recycles: int = at_least(0, 0, most=100)
    final_norm: bool = True
    classifier_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    pad_token_id: int | None = 1
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    @property
    def output_width(self) -> int:
        """Width of the last hidden state, which heads read."""
        return self.hidden_size
