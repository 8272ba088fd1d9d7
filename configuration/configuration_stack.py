"""One stack of layers: width, depth, norm placement, feed-forward, dropout."""

from typing import Any, ClassVar

from .axes import ActivationName, FeedForwardName, NormName
from .configuration_attention import AttentionConfig
from .configuration_base import checked


@checked
class StackConfig(AttentionConfig):
    """A stack of identical layers: frontend -> layers -> norm.

    `norm_first` normalises before each branch (pre-norm) and ends with a norm of its own; else after each residual sum,
    as in 2017. `final_norm` overrides that ending. `embedding_norm` normalises the embeddings (BERT, BART, BLOOM).
    Dropout: `embedding_dropout` after the embeddings, `attention_dropout` on the weights, `residual_dropout` on each
    branch, `activation_dropout` inside the feed-forward; `drop_path_rate` is stochastic depth at the last layer.
    """

    base_model_tp_plan: ClassVar[dict[str, str]] = {
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise",
        "layers.*.self_attn.v_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }

    intermediate_size: int | None = None
    hidden_act: ActivationName = "gelu"
    feed_forward: FeedForwardName = "mlp"
    mlp_bias: bool = True
    norm: NormName = "layer"
    norm_eps: float | int = 1e-5
    norm_first: bool = True
    final_norm: bool | None = None
    embedding_norm: bool = False
    embedding_dropout: float | int = 0.0
    residual_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    drop_path_rate: float | int = 0.0
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: Any) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.final_norm is None:
            self.final_norm = self.norm_first
        super().__post_init__(**kwargs)

    def validate_feed_forward(self) -> None:
        """The inner width is positive and the norm's epsilon keeps it finite."""
        if self.intermediate_size < 1:
            raise ValueError(f"intermediate_size={self.intermediate_size} must be at least 1")
        if self.norm_eps <= 0:
            raise ValueError(f"norm_eps={self.norm_eps} must be positive")

    def validate_dropout(self) -> None:
        """Each rate is a probability below one: dropping everything trains nothing."""
        names = ("embedding_dropout", "attention_dropout", "residual_dropout", "activation_dropout", "drop_path_rate")
        for name in (*names, "classifier_dropout"):
            rate = getattr(self, name, 0.0)
            if not 0 <= rate < 1:
                raise ValueError(f"{name}={rate} must lie in [0, 1)")
