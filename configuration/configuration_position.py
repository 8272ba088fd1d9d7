"""Positions: the encoding of each layer, its sizes, and rotary parameters."""

from copy import deepcopy
from difflib import get_close_matches
from math import inf
from typing import ClassVar

from transformers.modeling_rope_utils import RopeParameters

from .axes import LAYER_POSITIONS, ROTARY_POSITIONS, PatternName, PositionName
from .configuration_pattern import CACHE_LAYER_TYPES, PatternConfig, check_words_of_layers, words_of_layers
from .fields import Fields, at_least, check_choice

# Kinds of rope scaling; transformers names the parameters that one of them lacks.
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
# Numbers among rotary parameters with their bounds; all are above 0.
POSITIVE = (
    "rope_theta alpha original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow".split()
)
ROPE_NUMBERS = {**dict.fromkeys(POSITIVE, (0, inf)), "factor": (1, inf), "partial_rotary_factor": (0, 1)}


class PositionConfig(PatternConfig):
    """Configure the position encoding of one stack.

    Args:
        position: Position encoding: `learned`, a table (GPT-2); `grid`, a table each for text, rows and columns
            (DALL-E); `sinusoidal`, sines and cosines interleaved (Transformer), `sinusoidal_concat`, sines before
            cosines (Marian), `sinusoidal_t2t`, the same with the frequencies of Tensor2Tensor (M2M100); `rope` and
            `xpos`, rotated queries and keys (Llama); `rope_2d`, rotated by row and column of a patch (DINOv3), for
            images alone; `alibi`, `t5` and `kerple`, a bias on the scores; `learned_and_t5`, a table and that bias
            (MPNet); for text encoders `disentangled`, scores of queries and keys with vectors of their distances
            (DeBERTa v2 and v3), and with a table `learned_and_disentangled`; `none`. A list has a word for each layer,
            `none` or one that rotates or is a bias alone (Cohere 2, SmolLM3).
        max_position_embeddings: Longest sequence in tokens, for encodings that look positions up in a table.
        position_offset: Number of the first position in a table or a sinusoid; RoBERTa, BART and M2M100 start at 2.
        rope_parameters: Parameters of `position="rope"` as in transformers, and `inv_freq_dtype`, to which frequencies
            are rounded (float16 of ESM-2), and `alpha`, a factor of a fixed base beside the type `dynamic` (HunYuan);
            or a dict of them for each pattern (ModernBERT). The type `longrope` (Phi-3-128k, Phi-4-mini) divides
            frequencies by `long_factor` once the longest text of a batch exceeds `original_max_position_embeddings`, by
            `short_factor` before; `generate` reads all tokens again where a text passes that length.
        relative_attention_num_buckets: Number of buckets of distances for `t5` and `disentangled`.
        relative_attention_max_distance: Distance in tokens from which on all fall into the last bucket.
    """

    ignore_keys_at_rope_validation: ClassVar[set[str]] = {"inv_freq_dtype", "alpha"}  # type: ignore[misc]  # no field here

    hidden_size: int = at_least(1, 768)
    position: PositionName | list[PositionName] = "learned"
    max_position_embeddings: int = at_least(1, 512)
    position_offset: int = at_least(0, 0)
    rope_parameters: RopeParameters | Fields | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    def __post_init__(self, **kwargs: object) -> None:
        turned = self.rope_parameters or "rope_theta" in kwargs or "rope_scaling" in kwargs
        if turned and self.position_word not in ROTARY_POSITIONS:
            raise ValueError(f"rope_parameters is set but position={self.position!r}; set position='rope' or drop it")
        # transformers fills it in place, and the caller may share it.
        self.rope_parameters = deepcopy(self.rope_parameters or {})
        super().__post_init__(**kwargs)
        if self.position_word not in ROTARY_POSITIONS:  # transformers fills in a default
            self.rope_parameters = None

    @property
    def layer_positions(self) -> list[PositionName]:
        """The position encoding of each layer."""
        return words_of_layers(self.position, self.num_hidden_layers)

    @property
    def position_word(self) -> PositionName:
        """The position encoding of all layers that have one."""
        if isinstance(self.position, list):
            return next((word for word in self.position if word != "none"), "none")
        return self.position

    @property
    def grid_rows(self) -> int:
        """Number of rows that the tokens after the text fill."""
        return -(-(self.max_position_embeddings - self.text_length) // self.grid_columns)

    def nested_rope_parameter_keys(self, rope_parameters: RopeParameters | Fields) -> list[str]:
        """Return the patterns that rotary parameters are nested under, where transformers looks for types of layers."""
        return [word for word in rope_parameters if word in CACHE_LAYER_TYPES]

    @property
    def rope_by_pattern(self) -> bool:
        """True where `rope_parameters` hold a set for each pattern."""
        return bool(self.nested_rope_parameter_keys(self.rope_parameters or {}))

    @property
    def lengths_of_longrope(self) -> list[int]:
        """The lengths of text at which rotations of the type `longrope` change their frequencies."""
        rope = self.rope_parameters or {}  # read at each step of generation, so without copies
        sets = [each for each in (rope, *rope.values()) if isinstance(each, dict)]
        return [each["original_max_position_embeddings"] for each in sets if each.get("rope_type") == "longrope"]

    def rope_of(self, pattern: str | None) -> Fields:
        """Return the rotary parameters of the layers of a pattern."""
        parameters = dict(self.rope_parameters or {})
        return parameters[str(pattern)] if self.rope_by_pattern else parameters

    def validate_positions(self) -> None:
        """Check that the position encoding has the sizes it needs."""
        size, text, buckets = self.max_position_embeddings, self.text_length, self.relative_attention_num_buckets
        position, distance = f"position={self.position!r}", self.relative_attention_max_distance
        if isinstance(self.position, list):
            check_positions_of_layers(self)
        if self.position_word.startswith("sinusoidal") and self.hidden_size % 2:
            raise ValueError(f"{position} pairs sines with cosines, so hidden_size={self.hidden_size} must be even")
        if self.position_word == "grid" and size <= text:
            raise ValueError(f"{position} has rows: max_position_embeddings={size} must exceed text_length={text}")
        if buckets < 4 or buckets % 2:  # T5's, half exact and half logarithmic
            raise ValueError(f"relative_attention_num_buckets={buckets} must be even and at least 4")
        if distance <= buckets // 2:
            names = f"relative_attention_max_distance={distance} and relative_attention_num_buckets={buckets}"
            raise ValueError(f"{names}: the distance must exceed half the number")

    def validate_rope(self) -> None:
        """Check the rotary parameters, most of which transformers only logs about."""
        if self.position_word in ROTARY_POSITIONS:
            check_rope(dict(self.rope_parameters or {}), self.layer_patterns if self.rope_by_pattern else [])
            try:
                super().validate_rope()
            except KeyError as error:
                raise ValueError(f"rope_parameters={self.rope_parameters}: {error.args[0]}") from None


def check_positions_of_layers(config: PositionConfig) -> None:
    """Raise ValueError unless layers have one encoding that acts inside them, or none."""
    words = config.layer_positions
    check_words_of_layers("position", words, config.num_hidden_layers)
    if len({*words} - {"none"}) > 1 or not {*words} <= {*LAYER_POSITIONS}:
        inside = ", ".join(LAYER_POSITIONS[1:])
        raise ValueError(f"position={words} of single layers must be 'none' and one word of {inside}")


def check_rope(given: Fields, patterns: list[PatternName]) -> None:
    """Raise ValueError on wrong rotary parameters, given once or for each pattern."""
    for word in dict.fromkeys([*patterns, *given]) if patterns else ():
        check_choice(tuple(CACHE_LAYER_TYPES), "pattern of rope_parameters", word)
        if not isinstance(given.get(word), dict):
            raise ValueError(f"rope_parameters say nothing about pattern={word!r}; give it a dict of its own")
    for parameters in given.values() if patterns else [given]:
        check_scaling({name: value for name, value in parameters.items() if value is not None})


def check_scaling(given: Fields) -> None:
    """Raise ValueError on an unknown type of scaling, and on wrong or contradicting parameters."""
    check_choice(ROPE_TYPES, "rope_type", str(given.get("rope_type", "")))
    for name, value in given.items():
        check_rope_parameter(name, value)
    for small, large in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        if small in given and large in given and given[small] >= given[large]:
            raise ValueError(f"{small}={given[small]} of rope_parameters must be below {large}={given[large]}")


def check_rope_parameter(name: str, value: object) -> None:
    """Raise ValueError on a misspelt rotary parameter, and on a number or dtype out of range."""
    known = {*RopeParameters.__annotations__, "inv_freq_dtype", "alpha"}
    if name == "inv_freq_dtype":
        check_choice(("float32", "float16", "bfloat16"), "inv_freq_dtype of rope_parameters", value)
    if name not in known and (close := get_close_matches(name, known, n=1, cutoff=0.72)):
        raise ValueError(f"rope_parameters has no {name!r}; did you mean {close[0]!r}?")
    if name in ROPE_NUMBERS:
        low, high = ROPE_NUMBERS[name]
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
        if not (0 < number < inf and low <= number <= high):
            raise ValueError(f"{name}={value!r} of rope_parameters must be finite, above 0 and from {low} to {high}")
