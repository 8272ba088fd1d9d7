"""Everything a config says about attention: heads, where positions act, which pairs are seen, how they are mixed."""

from typing import Any, ClassVar

from transformers.modeling_rope_utils import RopeParameters

from .axes import KernelName, PatternName, PositionName
from .configuration_base import QkvConfig, checked

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")
# Patterns that need every past key keep a full cache; a window can forget.
CACHE_LAYER_TYPES = {"full": "full_attention", "sliding": "sliding_attention", "block_sparse": "full_attention"}


@checked
class AttentionConfig(QkvConfig):
    """Heads, position, pattern and kernel of one stack.

    `num_key_value_heads` below `num_attention_heads` is grouped-query attention, 1 is multi-query. `sliding_window`
    counts the token itself: |query - key| < sliding_window. `position_offset` is the first row of a learned table that
    is used (RoBERTa and BART start at 2). `attention_multiplier` scales the scores, 1/sqrt(head_dim) when None
    (T5 uses 1).
    """

    # Whether the stack may look ahead belongs to the family, never to the user.
    causal: ClassVar[bool] = False

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    attention_bias: bool = True
    attention_multiplier: float | int | None = None
    attention_dropout: float | int = 0.0
    position: PositionName = "learned"
    max_position_embeddings: int = 512
    position_offset: int = 0
    rope_parameters: RopeParameters | dict | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    pattern: PatternName = "full"
    attention_patterns: list[PatternName] | None = None
    sliding_window: int | None = None
    block_size: int = 64
    kernel: KernelName = "softmax"

    def __post_init__(self, **kwargs: Any) -> None:
        if "layer_types" in kwargs:
            raise ValueError("layer_types is derived here; set attention_patterns, one pattern word for each layer")
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None and self.num_attention_heads > 0:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.position != "rope" and (self.rope_parameters or "rope_theta" in kwargs or "rope_scaling" in kwargs):
            raise ValueError(f"rope_parameters is set but position={self.position!r}; set position='rope' or drop it")
        super().__post_init__(**kwargs)
        if self.position != "rope":
            # transformers fills in a default for whoever has the field.
            self.rope_parameters = None

    @property
    def layer_patterns(self) -> list[str]:
        """The pattern of each layer."""
        return self.attention_patterns or [self.pattern] * self.num_hidden_layers

    @property
    def layer_types(self) -> list[str]:
        """The same in transformers' words, from which its caches are built."""
        return [CACHE_LAYER_TYPES[pattern] for pattern in self.layer_patterns]

    def validate_sizes(self) -> None:
        """Every size and count is positive."""
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
        for name in (*names, "max_position_embeddings", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.position_offset < 0:
            raise ValueError(f"position_offset={self.position_offset} must not be negative")

    def validate_heads(self) -> None:
        """Heads divide evenly, and rope can pair the components of a head."""
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        if heads % groups:
            raise ValueError(f"num_attention_heads={heads} must be a multiple of num_key_value_heads={groups}")
        if self.head_dim * heads != self.hidden_size and self.hidden_size % heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads={heads}; set head_dim"
            )
        if self.position == "rope" and self.head_dim % 2:
            raise ValueError(f"position='rope' rotates pairs, so head_dim={self.head_dim} must be even")

    def validate_patterns(self) -> None:
        """Each layer has a known pattern, and a window where it slides."""
        patterns = self.layer_patterns
        if len(patterns) != self.num_hidden_layers:
            raise ValueError(
                f"attention_patterns has {len(patterns)} entries for num_hidden_layers={self.num_hidden_layers}; "
                "give one word for each layer"
            )
        for pattern in patterns:
            self.refuse_unknown_word("pattern", pattern)
        if "sliding" in patterns and (self.sliding_window is None or self.sliding_window < 1):
            raise ValueError(
                f"pattern='sliding' needs sliding_window >= 1 (the token itself counts), got {self.sliding_window}"
            )

    def validate_positions(self) -> None:
        """The chosen encoding has what it needs."""
        self.validate_relative_buckets()
        if self.position.startswith("sinusoidal") and self.hidden_size % 2:
            raise ValueError(f"position={self.position!r} pairs sines with cosines: hidden_size must be even")
        kind = (self.rope_parameters or {}).get("rope_type", "default")
        if kind not in ROPE_TYPES:
            raise ValueError(f"rope_type={kind!r} is not one of {', '.join(ROPE_TYPES)}")

    def validate_relative_buckets(self) -> None:
        """T5's logarithmic buckets need room: half of them are exact, the rest reach to the maximum distance."""
        buckets, distance = self.relative_attention_num_buckets, self.relative_attention_max_distance
        if buckets < 4 or buckets % 2:
            raise ValueError(f"relative_attention_num_buckets={buckets} must be even and at least 4")
        if distance <= buckets:
            raise ValueError(
                f"relative_attention_max_distance={distance} must exceed relative_attention_num_buckets={buckets}"
            )
