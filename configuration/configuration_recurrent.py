"""Recurrent encoder-decoders: what translated before the Transformer, with and without attention."""

from operator import attrgetter
from typing import ClassVar

from .axes import AlignmentName, CellName, FrontendName, ReadoutName
from .configuration_base import QkvConfig, auto_classes_of
from .configuration_encoder_decoder import check_token_ids
from .earlier_names import root_of_width
from .fields import Derived, Fields, at_least, positive, rate, size_of


class QkvRecurrentConfig(QkvConfig):
    """Configure a recurrent encoder-decoder, with or without attention: embeddings -> layers -> readout.

    Args:
        cell: Recurrent cell: `gru` or `lstm`.
        attention: Scores by which the decoder reads the encoder's states: `additive`, `dot`; `none`, the last states.
        readout: What the head reads: `none`, the state; `tanh` or `maxout`, a layer over state, context and input.
        bidirectional: Whether the encoder also reads from right to left.
        embedding_size: Width of token embeddings. None is `hidden_size`.
        hidden_size: Width of the decoder's states.
        encoder_hidden_size: Width of the encoder's states in each direction. None is `hidden_size`, or half for `dot`.
        attention_size: Width of the layer that scores with `attention="additive"`. None is `hidden_size`.
        readout_size: Width of what the head reads. None is `embedding_size`, with `readout="none"` `hidden_size`.
        num_encoder_layers: Number of layers of the encoder. None is `num_hidden_layers`.
        hidden_dropout: Dropout probability after each layer.
    """

    model_type = "qkv_recurrent"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    frontend: ClassVar[FrontendName] = "tokens"
    start_with_last_token: ClassVar[bool] = False
    # Each half of the model has a plan of its own.
    base_model_fsdp_plan: ClassVar[Fields] = {}
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "recurrent", "QkvRecurrent", ForSeq2SeqLM="ForConditionalGeneration"
    )

    cell: CellName = "gru"
    attention: AlignmentName = "additive"
    readout: ReadoutName = "tanh"
    bidirectional: bool = True
    vocab_size: int = at_least(1, 30000)
    embedding_size: Derived = size_of("hidden_size")
    hidden_size: int = at_least(1, 512)
    encoder_hidden_size: Derived = at_least(1, follows=lambda config: config.default_encoder_size)
    attention_size: Derived = size_of("hidden_size")
    readout_size: Derived = at_least(
        1, follows=lambda config: config.hidden_size if config.readout == "none" else config.embedding_size
    )
    num_hidden_layers: int = at_least(1, 1, most=10_000)
    num_encoder_layers: Derived = at_least(1, most=10_000, follows=attrgetter("num_hidden_layers"))
    embedding_multiplier: float | int = positive(1.0)
    share_embeddings: bool = False
    tie_word_embeddings: bool = False
    embedding_dropout: float | int = rate()
    hidden_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    initializer_range: float | int = positive(0.05)
    use_cache: bool = True
    is_encoder_decoder: bool = True
    decoder_start_token_id: Derived = 0
    pad_token_id: Derived = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 1

    scale_embedding = root_of_width("embedding_multiplier", 0.5)

    @property
    def default_encoder_size(self) -> int:
        """Width of the encoder's states in each direction: dot products need a memory as wide as the decoder."""
        halves = 2 if self.bidirectional and self.attention == "dot" else 1
        return max(self.hidden_size // halves, 1)

    @property
    def memory_size(self) -> int:
        """Width of the encoder's outputs, both directions together."""
        return self.encoder_hidden_size * (2 if self.bidirectional else 1)

    def validate_sizes(self) -> None:
        """Check the widths that scores, readout and shared tables need to be equal, and the token to start from."""
        width, memory = f"hidden_size={self.hidden_size}", f"memory of width {self.memory_size}"
        readout, embedding = f"readout_size={self.readout_size}", f"embedding_size={self.embedding_size}"
        if self.attention == "dot" and self.memory_size != self.hidden_size:
            raise ValueError(f"attention='dot' multiplies {width} with {memory}; set encoder_hidden_size or 'additive'")
        if self.readout == "none" and self.readout_size != self.hidden_size:
            raise ValueError(f"readout='none' reads {width}, got {readout}; leave that out or set readout='tanh'")
        if self.tie_word_embeddings and self.readout_size != self.embedding_size:
            raise ValueError(f"tie_word_embeddings=True needs {readout} to be {embedding}; set readout='tanh'")
        check_token_ids(self, "decoder_start_token_id", "pad_token_id")
