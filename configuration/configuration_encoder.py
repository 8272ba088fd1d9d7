"""Text encoders: BERT, RoBERTa, DistilBERT, ELECTRA, ModernBERT, ESM-2, and what encoders of text and images share."""

from typing import ClassVar, Literal

from .axes import BIAS_POSITIONS, ActivationName, ContactHeadName, FrontendName, TextPoolingName, TextPositionName
from .configuration_base import auto_classes_of
from .configuration_stack import GridStackConfig, TextGridConfig
from .fields import Derived, at_least, positive, rate, size_of


class PooledStackConfig(GridStackConfig):
    """Configure an encoder whose output is pooled into one vector.

    Args:
        head_act: Activation of the head's linear map, and of `pooling="dense"`. None is `hidden_act`, and tanh.
        head_bias: Whether these linear maps have a bias.
        pooling_dropout: Dropout probability before the linear map of `pooling="dense"` (RoBERTa).
    """

    head_act: ActivationName | None = None
    head_bias: bool = True
    pooling_dropout: float | int = rate()

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before those of the input itself, such as a class token."""
        return 0


class TextStackConfig(TextGridConfig, PooledStackConfig):
    """Configure an encoder over tokens.

    Args:
        type_vocab_size: Number of token types (segments); 0 is none.
        token_dropout: Whether embeddings of `mask_token_id` count as dropped, and the others are scaled by how many
            were masked in training and are here (ESM-2).
        embedding_size: Width of token embeddings, mapped linearly to `hidden_size` (ELECTRA). None is `hidden_size`.
        pooling: What a sequence-level head reads: `first`, the first token; `dense`, that through a linear map and tanh
            (BERT); `mean`, the mean of all tokens; `first_norm`, the first token normalized; `end`, the first
            `eos_token_id` (CLIP); `highest`, the token of the highest id (the first CLIP).
        mask_token_id: Token that hides others, which `token_dropout` counts.
    """

    frontend: ClassVar[FrontendName] = "tokens"
    # Read of every text encoder; a field of those that classify.
    global_projections = False

    vocab_size: int = at_least(1, 30522)
    type_vocab_size: int = at_least(0, 0)
    embedding_multiplier: float | int = positive(1.0)
    token_dropout: bool = False
    embedding_size: Derived = size_of("hidden_size")
    pooling: TextPoolingName = "first"
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    mask_token_id: int | None = None

    @property
    def scale_embedding(self) -> bool | str:
        """True where the factor is sqrt(hidden_size), or 'token_dropout'; set by earlier configs."""
        return "token_dropout" if self.token_dropout else self.embedding_multiplier == self.hidden_size**0.5

    @scale_embedding.setter
    def scale_embedding(self, value: bool | str) -> None:
        self.token_dropout = value == "token_dropout"
        self.embedding_multiplier = self.hidden_size**0.5 if value is True else 1.0

    def validate_tokens(self) -> None:
        """Check that masked tokens are known where their number scales embeddings, and that there is an end to read."""
        if self.token_dropout and self.mask_token_id is None:
            raise ValueError("token_dropout=True counts masked tokens, got mask_token_id=None; set it")
        if self.pooling == "end" and not isinstance(self.eos_token_id, int):
            raise ValueError(f"pooling='end' needs one eos_token_id, got {self.eos_token_id}; set it or pooling='mean'")


class QkvEncoderConfig(TextStackConfig):
    """Configure a text encoder: tokens -> bidirectional stack -> head (BERT, ELECTRA, ModernBERT, ESM-2).

    Args:
        pos_att_type: What meets the vectors of `disentangled` distances: queries, `c2p`; keys, `p2c`; or both.
        share_att_key: Whether the maps of queries and keys project these vectors; else they have their own.
        norm_rel_ebd: Norm of these vectors: `layer_norm` or `none`.
        head_transform: Whether a linear map, activation and norm stand before each classifier (ModernBERT).
        lm_head_transform: Whether a linear map, activation and norm stand before the scores of tokens; EuroBERT has
            the scores alone.
        lm_head_bias: Whether the scores of tokens have a bias.
        qa_dropout: Dropout probability before the scores of answers (DistilBERT).
        global_projections: Whether global tokens have their own projections of queries, keys and values (Longformer).
        contact_head: Predicts contacts of residues from `attention`, the maps of all layers (ESM-2), or
            `outer_product`, products and differences of hidden states (ESMFold).
    """

    model_type = "qkv_encoder"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "encoder",
        "QkvEncoder",
        "MaskedLM PreTraining SequenceClassification TokenClassification QuestionAnswering MultipleChoice",
        ForTextEncoding="Model",
    )

    position: TextPositionName | list[TextPositionName] = "learned"  # type: ignore[assignment]  # more words
    pos_att_type: Literal["c2p|p2c", "p2c|c2p", "c2p", "p2c"] = "c2p|p2c"
    share_att_key: bool = True
    norm_rel_ebd: Literal["none", "layer_norm"] = "layer_norm"
    head_transform: bool = False
    lm_head_transform: bool = True
    lm_head_bias: bool = True
    classifier_dropout: float | int = rate()
    qa_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    tie_word_embeddings: bool = True
    global_projections: bool = False
    contact_head: ContactHeadName | None = None

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Plan of tensor parallelism, with the projections of global tokens."""
        own = ("q_proj", "k_proj", "v_proj", "q_norm", "k_norm") if self.global_projections else ()
        plan, place = super().base_model_tp_plan, "layers.*.self_attn."
        return plan | {f"{place}global_projections.{n}": plan[place + n] for n in own if place + n in plan}

    def validate_lm_head(self) -> None:
        """Check that scores of tokens alone read the width of embeddings."""
        if not self.lm_head_transform and self.embedding_size != self.hidden_size:
            raise ValueError(f"lm_head_transform=False needs embedding_size={self.embedding_size} to be hidden_size")

    def validate_contact_head(self) -> None:
        """Check that there are attention maps of every layer to predict contacts from."""
        if self.contact_head == "attention" and (self.kernel != "softmax" or self.layerdrop):
            cause = f"layerdrop={self.layerdrop}" if self.layerdrop else f"kernel={self.kernel!r}"
            raise ValueError(f"contact_head='attention' reads all attention weights, got {cause}; use 'outer_product'")

    def validate_global_projections(self) -> None:
        """Check that tokens can be global in every layer, and that no bias is left out of their scores."""
        if self.global_projections and "full" in self.layer_patterns:
            raise ValueError("global_projections=True needs layers that hide tokens, got pattern='full'; use 'sliding'")
        if self.global_projections and self.position_word in BIAS_POSITIONS:
            raise ValueError(f"global_projections=True has no bias of scores, got position={self.position!r}")
