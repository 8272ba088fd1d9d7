"""One stack of layers: width, depth, norm placement, feed-forward, dropout."""

from dataclasses import field
from typing import Literal

from .axes import (
    BIAS_POSITIONS,
    RECURRENT_KERNELS,
    ROTARY_POSITIONS,
    ActivationName,
    DenseFeedForwardName,
    FeedForwardName,
    NormGainName,
    NormName,
    NormPositionName,
)
from .configuration_attention import AttentionConfig
from .fields import Derived, at_least, positive, rate


class StackConfig(AttentionConfig):
    """Configure a stack of identical layers: embeddings -> layers -> norm.

    Args:
        intermediate_size: Width inside the feed-forward network. None is `4 * hidden_size`.
        feed_forward: Kind of feed-forward network: `mlp`, two linear maps; `glu`, a third gates the first (Llama).
        mlp_bias: Whether its linear maps have a bias.
        norm: Kind of normalization: `layer` or `rms`.
        norm_position: Place of a layer's norms: `before` each branch (GPT-2); `after` the residual sum (BERT);
            `inside`, on a branch's output before it is added (OLMo 2); `sandwich`, before and on the output (Gemma 2).
        norm_gain: Gain of norms: `direct`; `zero_centered`, the gain is 1 plus the parameter (Gemma); `none`, no
            parameters (OLMo).
        final_norm: Whether a norm follows the last layer. None is True unless norms stand `after`.
        norm_bias: Whether norms have a bias beside their gain.
        residual_multiplier: Factor on the output of each branch (Granite).
        embedding_norm: Whether embeddings are normalized (BERT); `instead`, in place of the first norm (ModernBERT).
        activation_dropout: Dropout probability inside the feed-forward network.
        drop_path_rate: Probability of skipping a branch of the last layer for a row, rising from 0 (stochastic depth).
        layerdrop: Probability with which a layer is skipped for a whole batch (M2M100).
        float16_clamp: Where float16 keeps hidden states finite: after each `branch`, whose last matrices are loaded in
            single precision (T5), or each `layer` (encoders of BART and Whisper). None is nowhere.
    """

    # Read of every stack; fields of those that may have others.
    final_dropout = 0.0
    layer_scale = None
    parallel_residual = False
    attention_sinks = False

    intermediate_size: Derived = at_least(1, follows=lambda config: 4 * config.hidden_size)
    hidden_act: ActivationName = "gelu"
    feed_forward: DenseFeedForwardName = "mlp"
    mlp_bias: bool = True
    norm: NormName = "layer"
    norm_eps: float | int = positive(1e-5)
    norm_position: NormPositionName = "before"
    norm_gain: NormGainName = "direct"
    final_norm: bool | None = field(default=None, metadata={"follows": lambda config: config.norm_position != "after"})
    norm_bias: bool = True
    residual_multiplier: float | int = positive(1.0)
    embedding_norm: bool | Literal["instead"] = False
    embedding_dropout: float | int = rate()
    residual_dropout: float | int = rate()
    activation_dropout: float | int = rate()
    drop_path_rate: float | int = rate()
    layerdrop: float | int = rate()
    float16_clamp: Literal["branch", "layer"] | None = None
    initializer_range: float | int = positive(0.02)

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Plan of tensor parallelism: which matrices are split by output (`colwise`) or by input (`rowwise`).

        With a bias on the scores, or parameters by head, every process computes all heads: they are made in one place.
        """
        gate = ("g_proj",) if self.attention_gate else ()
        heads = dict.fromkeys(("q_proj", "k_proj", "v_proj", *gate), "colwise") | {"o_proj": "rowwise"}
        by_head = self.query_key_norm in ("head", "head_after_rotation") and self.norm_gain != "none"
        if by_head:  # each process normalises its own heads with the same gain, whose gradient they add up
            heads |= dict.fromkeys(("q_norm", "k_norm"), "replicated_with_grad_allreduce")
        joined = self.attention_sinks or self.query_key_norm in ("each_head", "width")
        whole = joined or self.position_word in BIAS_POSITIONS or bool({*RECURRENT_KERNELS} & {*self.layer_kernels})
        readers = [] if whole else ["self_attn"]
        readers += ["cross_attn"] if getattr(self, "cross_attention", False) and not joined else []
        plan = {f"{reader}.{name}": style for reader in readers for name, style in heads.items()}
        dense = {*self.layer_feed_forwards} - {"moe"}
        plan |= {"mlp.up_proj": "colwise", "mlp.down_proj": "rowwise"} if dense else {}
        plan |= {"mlp.act_fn": "replicated_with_grad_allreduce"} if dense and self.hidden_act == "xielu" else {}
        plan |= {"mlp.gate_proj": "colwise"} if "glu" in self.layer_feed_forwards else {}
        return {f"layers.*.{name}": style for name, style in plan.items()}

    @property
    def norm_first(self) -> bool:
        """True where a norm stands before each branch; the name of `norm_position` in earlier configs, which set it."""
        return self.norm_position in ("before", "sandwich")

    @norm_first.setter
    def norm_first(self, value: bool) -> None:
        if value is not self.norm_first:
            self.norm_position = "before" if value else "after"

    @property
    def layer_feed_forwards(self) -> list[FeedForwardName]:
        """The kind of feed-forward network of each layer."""
        return [self.feed_forward] * self.num_hidden_layers

    @property
    def skip_first_norm(self) -> bool:
        """True where the norm of the embeddings replaces that before the first attention."""
        return self.embedding_norm == "instead"

    @property
    def position_width(self) -> int:
        """Width of what positions are added to: the embedding as it was looked up."""
        return self.embedding_width

    @property
    def output_width(self) -> int:
        """Width of the last hidden state, which heads read."""
        return self.hidden_size

    def validate_residuals(self) -> None:
        """Check that parallel branches have a norm before them, and are two."""
        crossed = getattr(self, "cross_attention", False)
        if self.parallel_residual and (self.norm_position != "before" or crossed):
            parallel = f"parallel_residual={self.parallel_residual!r}"
            raise ValueError(f"{parallel} needs norm_position='before' and cross_attention=False")
        if self.skip_first_norm and not self.norm_first:
            raise ValueError("embedding_norm='instead' needs norm_position='before', which has a norm to leave out")

    def validate_query_key_norm(self) -> None:
        """Check that a norm of queries and keys has the gain and the rotation that it needs."""
        word, position = f"query_key_norm={self.query_key_norm!r}", self.position_word
        if self.query_key_norm == "each_head" and self.norm_gain != "direct":
            raise ValueError(f"{word} has a direct gain, got norm_gain={self.norm_gain!r}; use 'head'")
        if self.query_key_norm == "head_after_rotation":
            alone = not self.keeps_state and not getattr(self, "cross_attention", False)
            if position not in ROTARY_POSITIONS or not alone or getattr(self, "global_projections", False):
                needed = "position='rope', kernel='softmax', without cross-attention and global projections"
                raise ValueError(f"{word} needs {needed}; use 'head'")


class GridStackConfig(StackConfig):
    """Configure a stack whose tokens may fill the rows and columns of a grid.

    Args:
        grid_kernel: Width and height of the window of `pattern="convolutional"` in tokens; odd.
        final_dropout: Dropout probability after the last norm (T5).
    """

    grid_kernel: int = at_least(1, 11)
    final_dropout: float | int = rate()


class TextGridConfig(GridStackConfig):
    """Configure a stack over a text with an image after it.

    Args:
        text_length: Number of tokens before the grid; they attend to all tokens and all attend to them.
        grid_columns: Number of columns of the grid that the tokens after the text fill row by row.
    """

    text_length: int = at_least(0, 0)
    grid_columns: int = at_least(1, 32)


class BranchConfig(GridStackConfig):
    """Configure how the branches of a layer are added.

    Args:
        parallel_residual: Whether attention and feed-forward read the same input and are added at once (GPT-NeoX);
            `shared_norm`, through one norm (GPT-J).
        layer_scale: Initial value of a learned gain on each branch. None is no gain (DINOv2 has 1.0).
    """

    parallel_residual: bool | Literal["shared_norm"] = False  # type: ignore[assignment]  # False of other stacks
    layer_scale: float | int | None = positive()  # type: ignore[assignment]  # None of other stacks
