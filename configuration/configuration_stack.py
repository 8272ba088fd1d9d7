"""One stack of layers: width, depth, norm placement, feed-forward, dropout."""

from typing import Any, ClassVar

from .axes import BIAS_POSITIONS, ActivationName, FeedForwardName, NormName
from .configuration_attention import AttentionConfig
from .configuration_base import Derived, at_least, checked, positive, rate


@checked
class StackConfig(AttentionConfig):
    """A stack of identical layers: frontend -> layers -> norm.

    `norm_first` normalises before each branch (pre-norm) and ends with a norm of its own; else after each residual sum,
    as in 2017. `final_norm` overrides that ending. `embedding_norm` normalises the embeddings (BERT, BART, BLOOM), and
    `skip_first_norm` then spares the first branch a second norm (ModernBERT). `norm_bias=False` leaves a gain alone.
    `parallel_residual` lets attention and feed-forward read the same input (GPT-NeoX). `layer_scale` is the initial
    value of a learned gain on each branch (DINOv2).
    Dropout: `embedding_dropout` after the embeddings, `attention_dropout` on the weights, `residual_dropout` on each
    branch, `activation_dropout` inside the feed-forward, `final_dropout` after the last norm (T5); `drop_path_rate` is
    stochastic depth at the last layer; `layerdrop` skips a whole layer for a whole batch (M2M100).
    """

    # Whether padding may stand between real tokens, as it does between the rows of an image padded at the right.
    has_padding_inside: ClassVar[bool] = False

    intermediate_size: Derived = at_least(1)
    hidden_act: ActivationName = "gelu"
    feed_forward: FeedForwardName = "mlp"
    mlp_bias: bool = True
    norm: NormName = "layer"
    norm_eps: float | int = positive(1e-5)
    norm_first: bool = True
    final_norm: bool | None = None
    norm_bias: bool = True
    embedding_norm: bool = False
    skip_first_norm: bool = False
    parallel_residual: bool = False
    layer_scale: float | int | None = positive()
    embedding_dropout: float | int = rate()
    residual_dropout: float | int = rate()
    activation_dropout: float | int = rate()
    final_dropout: float | int = rate()
    drop_path_rate: float | int = rate()
    layerdrop: float | int = rate()
    initializer_range: float | int = positive(0.02)

    def __post_init__(self, **kwargs: Any) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.final_norm is None:
            self.final_norm = self.norm_first
        super().__post_init__(**kwargs)

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Which matrices tensor-parallel processes cut by output or by input, as transformers reads it.

        Where scores are biased every process computes all heads: the bias of each head is made in one place for all.
        """
        heads = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "colwise") | {"o_proj": "rowwise"}
        if self.query_key_norm:  # each process normalises its own heads with the same gain, whose gradient they add up
            heads |= dict.fromkeys(("q_norm", "k_norm"), "replicated_with_grad_allreduce")
        readers = [] if self.position in BIAS_POSITIONS else ["self_attn"]
        readers += ["cross_attn"] if getattr(self, "cross_attention", False) else []
        plan = {f"{reader}.{name}": style for reader in readers for name, style in heads.items()}
        plan |= {"mlp.up_proj": "colwise", "mlp.down_proj": "rowwise"}
        plan |= {"mlp.gate_proj": "colwise"} if self.feed_forward == "glu" else {}
        return {f"layers.*.{name}": style for name, style in plan.items()}

    @property
    def embedding_width(self) -> int:
        """Components of a token's embedding, before it is projected to the hidden size where the two differ."""
        return getattr(self, "embedding_size", None) or self.hidden_size

    @property
    def position_width(self) -> int:
        """Components of that to which positions are added: the embedding as it was looked up."""
        return self.embedding_width

    @property
    def output_width(self) -> int:
        """Components of the last hidden state, which heads read."""
        return self.hidden_size

    def validate_residuals(self) -> None:
        """Branches can be parallel only where each has its norm in front and there are two of them."""
        if self.parallel_residual and (not self.norm_first or getattr(self, "cross_attention", False)):
            raise ValueError("parallel_residual=True needs norm_first=True and cross_attention=False")
        if self.skip_first_norm and not (self.norm_first and self.embedding_norm):
            raise ValueError("skip_first_norm=True needs norm_first=True and embedding_norm=True to take its place")
