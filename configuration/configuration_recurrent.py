"""Recurrent encoder-decoders: what translated before the Transformer, with and without attention."""

from typing import Any, ClassVar

from .axes import AlignmentName, CellName, ReadoutName
from .configuration_base import Derived, QkvConfig, at_least, checked, positive, rate
from .configuration_encoder_decoder import refuse_other_ids


@checked
class QkvRecurrentConfig(QkvConfig):
    """An encoder of GRUs or LSTMs, and a decoder that reads a context at each step: frontend -> layers -> readout.

    `attention` is how the context comes about: the encoder's last states alone ("none"), or a mean of all its states,
    weighted by additive or dot-product scores. It is read by the decoder's first layer; the others read the one below.
    `readout` is what the head reads: the state itself, or state, context and input through tanh or maxout, of width
    `readout_size`. An encoder's state is `encoder_hidden_size` wide in each direction. `share_embeddings` ties the
    encoder's table to the decoder's, `tie_word_embeddings` the output head. `embedding_dropout` acts on embeddings,
    `hidden_dropout` on what each layer gives.
    """

    model_type = "qkv_recurrent"
    keys_to_ignore_at_inference = ["past_key_values"]
    frontend: ClassVar[str] = "tokens"
    start_with_last_token: ClassVar[bool] = False
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_recurrent.QkvRecurrentConfig",
        "AutoModel": "modeling_recurrent.QkvRecurrentModel",
        "AutoModelForSeq2SeqLM": "modeling_recurrent.QkvRecurrentForConditionalGeneration",
    }

    cell: CellName = "gru"
    attention: AlignmentName = "additive"
    readout: ReadoutName = "tanh"
    bidirectional: bool = True
    vocab_size: int = at_least(1, 30000)
    embedding_size: Derived = at_least(1)
    hidden_size: int = at_least(1, 512)
    encoder_hidden_size: Derived = at_least(1)
    attention_size: Derived = at_least(1)
    readout_size: Derived = at_least(1)
    num_hidden_layers: int = at_least(1, 1)
    num_encoder_layers: Derived = at_least(1)
    scale_embedding: bool = False
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

    def __post_init__(self, **kwargs: Any) -> None:
        halves = 2 if self.bidirectional and self.attention == "dot" else 1
        derived = {
            "embedding_size": self.hidden_size,
            "encoder_hidden_size": max(self.hidden_size // halves, 1),
            "attention_size": self.hidden_size,
            "readout_size": self.hidden_size if self.readout == "none" else self.embedding_size or self.hidden_size,
            "num_encoder_layers": self.num_hidden_layers,
        }
        for name, value in derived.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__(**kwargs)

    @property
    def embedding_width(self) -> int:
        """Components of a token's embedding."""
        return self.embedding_size

    @property
    def memory_size(self) -> int:
        """Components of each of the encoder's outputs, both directions together."""
        return self.encoder_hidden_size * (2 if self.bidirectional else 1)

    def validate_widths(self) -> None:
        """Scores, readout and shared tables each need two widths to be one."""
        if self.attention == "dot" and self.memory_size != self.hidden_size:
            raise ValueError(
                f"attention='dot' multiplies states of hidden_size={self.hidden_size} with memory of width "
                f"{self.memory_size}; set encoder_hidden_size so that they are equal, or attention='additive'"
            )
        if self.readout == "none" and self.readout_size != self.hidden_size:
            raise ValueError(
                f"readout='none' reads states of hidden_size={self.hidden_size}, got readout_size={self.readout_size}; "
                "leave readout_size out or set readout='tanh'"
            )
        if self.tie_word_embeddings and self.readout_size != self.embedding_size:
            raise ValueError(
                f"tie_word_embeddings=True needs readout_size={self.readout_size} to be "
                f"embedding_size={self.embedding_size}; set readout='tanh' and leave readout_size out"
            )

    def validate_start(self) -> None:
        """Generation and the right shift of labels both begin with a start token."""
        refuse_other_ids(self, "decoder_start_token_id", "pad_token_id")
