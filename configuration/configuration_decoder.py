"""Decoders: GPT-2, OPT, BLOOM, GPT-NeoX, Llama, Mistral, Qwen, and the decoder half of an encoder-decoder."""

from dataclasses import fields
from typing import ClassVar

from .axes import ROTARY_POSITIONS, ActivationName, FeedForwardName, FrontendName, RouterName
from .configuration_base import auto_classes_of
from .configuration_pattern import check_words_of_layers, words_of_layers
from .configuration_stack import BranchConfig, TextGridConfig
from .earlier_names import root_of_width
from .fields import Derived, Fields, at_least, positive, rate, size_of


class ExpertsConfig(BranchConfig):
    """Configure the feed-forward networks of a decoder, which may be mixtures of experts.

    Args:
        feed_forward: Kind of feed-forward network, one word for all layers or a list with one for each: `mlp`, two
            linear maps; `glu`, a third gates the first (Llama); `moe`, several gated networks of which a router chooses
            a few for each token (Mixtral).
        num_experts: Number of experts of a mixture.
        num_experts_per_tok: Number of experts that a token is sent to.
        moe_intermediate_size: Width inside an expert. None is `intermediate_size`.
        shared_expert_intermediate_size: Width inside an expert that every token is sent to. 0 is no such expert.
        shared_expert_gate: Whether a sigmoid of the token scales the output of the shared expert (Qwen2-MoE).
        router: Scores of the experts: `softmax`, shares of one (Mixtral); `sigmoid`, each by itself (DeepSeek-V3).
        norm_topk_prob: Whether the weights of the chosen experts are divided by their sum.
        routed_scaling_factor: Factor on the weights of the chosen experts.
        score_correction_bias: Whether a bias that no gradient trains is added to scores for the choice alone;
            `balance_experts` moves it after each step of training.
        n_group: Number of groups of experts, of which the best `topk_group` are chosen first.
        topk_group: Number of groups that a token may choose experts from.
        swiglu_alpha: Factor inside the sigmoid of a gate, gate * sigmoid(alpha * gate) * (up + 1). None is
            `hidden_act(gate) * up` (GPT-OSS has 1.702).
        swiglu_limit: Largest value of such a gate, and largest size of what it scales. None is no limit.
        router_aux_loss_coef: Weight of the loss of uneven loads, in training of a language model.
        router_z_loss_coef: Weight of the loss of large logits of routers, in training of a language model.
        output_router_logits: Whether a language model returns the logits of its routers, and adds their losses in
            evaluation, too.
    """

    feed_forward: FeedForwardName | list[FeedForwardName] = "mlp"  # type: ignore[assignment]  # words of other stacks
    num_experts: int = at_least(1, 8)
    num_experts_per_tok: int = at_least(1, 2)
    moe_intermediate_size: Derived = size_of("intermediate_size")
    shared_expert_intermediate_size: int = at_least(0, 0)
    shared_expert_gate: bool = False
    router: RouterName = "softmax"
    norm_topk_prob: bool = True
    routed_scaling_factor: float | int = positive(1.0)
    score_correction_bias: bool = False
    n_group: int = at_least(1, 1)
    topk_group: int = at_least(1, 1)
    swiglu_alpha: float | int | None = positive()
    swiglu_limit: float | int | None = positive()
    router_aux_loss_coef: float | int = rate()
    router_z_loss_coef: float | int = rate()
    output_router_logits: bool = False

    @property
    def layer_feed_forwards(self) -> list[FeedForwardName]:
        """The kind of feed-forward network of each layer."""
        return words_of_layers(self.feed_forward, self.num_hidden_layers)

    def to_dict(self) -> Fields:
        """Return all fields; those of mixtures and sinks, without a mixture, only if they were set."""
        values = super().to_dict()
        if "moe" in self.layer_feed_forwards:
            return values
        others = {each.name for each in fields(BranchConfig)}
        unset: Fields = {each.name: each.default for each in fields(ExpertsConfig) if each.name not in others}
        unset |= {"moe_intermediate_size": values.get("intermediate_size"), "attention_sinks": False}
        return {name: value for name, value in values.items() if name not in unset or value != unset[name]}

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Plan of tensor parallelism; experts with biases, which each process would add, are not split."""
        plan = super().base_model_tp_plan
        if "moe" not in self.layer_feed_forwards:
            return plan
        shared = ("up_proj", "down_proj", "gate_proj") if self.shared_expert_intermediate_size else ()
        styles = {f"shared_expert.{name}": "rowwise" if name == "down_proj" else "colwise" for name in shared}
        if not self.mlp_bias:
            styles |= {"experts.gate_up_proj": "packed_colwise", "experts.down_proj": "rowwise"}
            styles |= {"experts": "moe_tp_experts"}
        return plan | {f"layers.*.mlp.{name}": style for name, style in styles.items()}

    @property
    def base_model_ep_plan(self) -> dict[str, str] | None:  # type: ignore[override]
        """Plan of expert parallelism: each process has some of the experts, and is sent the tokens that chose them."""
        if "moe" not in self.layer_feed_forwards:
            return None
        names = [f"{name}{end}" for name in ("gate_up_proj", "down_proj") for end in ("", "_bias")]
        split = [f"experts.{name}" for name in names if self.mlp_bias or not name.endswith("_bias")]
        styles = {**dict.fromkeys(split, "grouped_gemm"), "experts": "ep_dispatch_experts"}
        return {f"layers.*.mlp.{name}": style for name, style in styles.items()}

    def validate_experts(self) -> None:
        """Check that each layer has a feed-forward network, and that routers can choose as many experts as asked."""
        words = self.layer_feed_forwards
        check_words_of_layers("feed_forward", words, self.num_hidden_layers)
        if "moe" not in words:
            return
        experts, groups, kept = self.num_experts, self.n_group, self.topk_group
        if experts % groups or kept > groups or (groups > 1 and experts // groups < 2):
            rule = f"must divide num_experts={experts} into groups of at least 2, and reach topk_group={kept}"
            raise ValueError(f"n_group={groups} {rule}")
        if self.num_experts_per_tok > kept * (experts // groups):
            most = f"the {kept * (experts // groups)} experts that a token may choose from"
            raise ValueError(f"num_experts_per_tok={self.num_experts_per_tok} exceeds {most}")
        check_unmixed(self)


def check_unmixed(config: ExpertsConfig) -> None:
    """Raise ValueError where a mixture of experts would ignore a field, or a memory would need losses of its own."""
    unread = {"activation_dropout": 0, "layerdrop": 0, "float16_clamp": None, "cross_attention": False}
    for name, needed in unread.items():
        if (value := getattr(config, name, needed)) != needed:
            raise ValueError(f"feed_forward='moe' needs {name}={needed}, got {value!r}")
    if config.shared_expert_gate and not config.shared_expert_intermediate_size:
        raise ValueError("shared_expert_gate=True scales a shared expert; set shared_expert_intermediate_size")


class ConvolutionConfig(BranchConfig):
    """Configure layers of the gated delta rule behind a short convolution.

    Args:
        linear_conv_kernel_dim: Number of tokens that a short convolution mixes before `kernel="gated_delta"`, which
            then has heads of other sizes, and outputs that are gated by a SiLU (Qwen3-Next). 0 is none.
        linear_num_key_heads: Number of heads of its queries and keys. None is `num_attention_heads`.
        linear_num_value_heads: Number of heads of its values, which share keys. None is `linear_num_key_heads`.
        linear_key_head_dim: Width of a head of its queries and keys. None is `head_dim`.
        linear_value_head_dim: Width of a head of its values. None is `linear_key_head_dim`.
    """

    linear_conv_kernel_dim: int = at_least(0, 0)
    linear_num_key_heads: Derived = size_of("num_attention_heads")
    linear_num_value_heads: Derived = size_of("linear_num_key_heads")
    linear_key_head_dim: Derived = size_of("head_dim")
    linear_value_head_dim: Derived = size_of("linear_key_head_dim")

    def to_dict(self) -> Fields:
        """Return all fields; those of short convolutions only where there are some."""
        kept, values = self.linear_conv_kernel_dim, super().to_dict()
        return {name: value for name, value in values.items() if kept or not name.startswith("linear_")}

    @property
    def linear_key_width(self) -> int:
        """Width of all keys of `kernel="gated_delta"` with a convolution."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_width(self) -> int:
        """Width of all its values."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    def validate_convolution(self) -> None:
        """Check that a short convolution has its kernel, without a rotation, and values that divide by keys."""
        taps, kernels = f"linear_conv_kernel_dim={self.linear_conv_kernel_dim}", self.layer_kernels
        for each in () if self.linear_conv_kernel_dim else fields(ConvolutionConfig):
            value, follows = getattr(self, each.name), each.metadata.get("follows")
            if each.name.startswith("linear_") and follows and value != follows(self):
                raise ValueError(f"{each.name}={value} is of short convolutions; set linear_conv_kernel_dim, too")
        if self.linear_conv_kernel_dim and "gated_delta" not in kernels:
            raise ValueError(f"{taps} is of kernel='gated_delta', got kernel={self.kernel!r}; leave it out")
        words = [word for word, kernel in zip(self.layer_positions, kernels, strict=False) if kernel == "gated_delta"]
        if self.linear_conv_kernel_dim and {*words} & {*ROTARY_POSITIONS}:
            raise ValueError(f"{taps} leaves order to its layers, got position={self.position!r}; use 'none' there")
        if self.linear_num_value_heads % self.linear_num_key_heads:
            heads = f"linear_num_value_heads={self.linear_num_value_heads}"
            raise ValueError(f"{heads} must be a multiple of linear_num_key_heads={self.linear_num_key_heads}")


class QkvDecoderConfig(ExpertsConfig, ConvolutionConfig, TextGridConfig):
    """Configure a causal stack over tokens, alone or as the decoder of an encoder-decoder.

    Args:
        embedding_size: Width of token embeddings, mapped linearly in and out (OPT-350m). None is `hidden_size`.
        logit_scale: Factor on the last hidden state before the head, so on logits without a bias; TRL and serving
            engines read it by this name (T5 v1.0 divides by sqrt(hidden_size)).
        final_logit_softcapping: Bound c that logits s approach, c·tanh(s/c) (Gemma 2). None is none.
        lm_head_transform: Whether a linear map, activation and norm stand before the head (Ettin).
        head_act: Activation of that linear map. None is `hidden_act`.
        head_bias: Whether it has a bias.
        lm_head_bias: Whether the language-modelling head has a bias (BART, Marian).
        attention_sinks: Whether each head has a learned logit beside those of keys, so it may read nothing (GPT-OSS).
        cross_attention: Whether each layer attends to the output of an encoder.
        label_smoothing: Probability that the loss moves from the right token to all of them evenly; not read by TRL.
    """

    model_type = "qkv_decoder"
    causal: ClassVar[bool] = True
    frontend: ClassVar[FrontendName] = "tokens"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "decoder",
        "QkvDecoder",
        "CausalLM SequenceClassification TokenClassification QuestionAnswering",
        # A decision pipeline reads the next token of any causal LM; `transformers serve` asks this Auto class first.
        ForDecision="ForCausalLM",
    )

    # Later stages are given hidden states as embeddings, to which a stack without its first layer adds no positions.
    base_model_pp_plan: ClassVar[Fields] = {
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
        "norm": (["hidden_states"], ["hidden_states"]),
    }

    vocab_size: int = at_least(1, 50257)
    embedding_multiplier: float | int = positive(1.0)
    embedding_size: Derived = size_of("hidden_size")
    logit_scale: float | int = positive(1.0)
    final_logit_softcapping: float | int | None = positive()
    lm_head_transform: bool = False
    head_act: ActivationName | None = None
    head_bias: bool = True
    lm_head_bias: bool = False
    attention_sinks: bool = False
    cross_attention: bool = False
    classifier_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    use_cache: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    scale_embedding = root_of_width("embedding_multiplier", 0.5)
    scale_logits = root_of_width("logit_scale", -0.5)

    def validate_lm_head(self) -> None:
        """Check that a head beside an encoder is a linear map alone, and that one with a transform reads its width."""
        beside = [name for name in ("lm_head_transform", "final_logit_softcapping") if getattr(self, name)]
        if self.cross_attention and beside:
            raise ValueError(f"{beside[0]}={getattr(self, beside[0])} is for decoders alone, got cross_attention=True")
        if self.lm_head_transform and self.embedding_size != self.hidden_size:
            raise ValueError(f"lm_head_transform=True needs embedding_size={self.embedding_size} to be hidden_size")

    def validate_sinks(self) -> None:
        """Check that attention has scores, to which a sink adds one."""
        if self.attention_sinks and self.keeps_state:
            raise ValueError(f"attention_sinks=True needs kernel='softmax', got kernel={self.kernel!r}")

    @property
    def rotary_dim(self) -> int:
        """Number of components of a head that one set of `rope_parameters` rotates, in pairs."""
        parameters: Fields = {**(self.rope_parameters or {})}
        size = int(self.head_dim * parameters.get("partial_rotary_factor", 1.0))
        return size + size % 2

    @property
    def position_width(self) -> int:
        """Width of what positions are added to: that of the layers."""
        return self.hidden_size

    @property
    def output_width(self) -> int:
        """Width of what the head reads: that of token embeddings, whose table it may share."""
        return self.embedding_width
