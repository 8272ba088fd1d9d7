"""One stack of layers: width, depth, norm placement, feed-forward, dropout."""

from typing import Any, ClassVar

from .axes import ActivationName, FeedForwardName, NormName
from .configuration_attention import AttentionConfig
from .configuration_base import Derived, at_least, checked, positive, rate


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

    intermediate_size: Derived = at_least(1)
    hidden_act: ActivationName = "gelu"
    feed_forward: FeedForwardName = "mlp"
    mlp_bias: bool = True
    norm: NormName = "layer"
    norm_eps: float | int = positive(1e-5)
    norm_first: bool = True
    final_norm: bool | None = None
    embedding_norm: bool = False
    embedding_dropout: float | int = rate()
    residual_dropout: float | int = rate()
    activation_dropout: float | int = rate()
    drop_path_rate: float | int = rate()
    initializer_range: float | int = positive(0.02)

    def __post_init__(self, **kwargs: Any) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.final_norm is None:
            self.final_norm = self.norm_first
        super().__post_init__(**kwargs)
