"""Heads of an encoder-decoder whose decoder reads the text too, and its encoder alone.

Shapes: B batch, T tokens, D hidden_size, V labels.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    Seq2SeqModelOutput,
    Seq2SeqQuestionAnsweringModelOutput,
    Seq2SeqSequenceClassifierOutput,
)

from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .base import can_return_tuple, inputs_of, tensor_of
from .checks.inputs import check_end_tokens
from .frontends.tokens import TokenFrontend
from .heads.head import last_token
from .heads.loss import Count, classification, question_answering_loss, real_places
from .heads.target import after_padding, are_missing, shift_right
from .modeling_decoder import other_fields
from .modeling_encoder import QkvEncoderModel
from .modeling_encoder_decoder import QkvEncoderDecoderModel, SharedVocabularyMixin, SourceAndTarget


class EncoderDecoderReader(SharedVocabularyMixin):
    """Run both stacks on one text: the encoder on the text itself, the decoder on the text shifted right.

    Source: Lewis et al. 2020, BART, §3.1 and §3.2, https://arxiv.org/abs/1910.13461
    """

    config: QkvEncoderDecoderConfig

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.model = QkvEncoderDecoderModel(config)

    def read(self, **inputs: object) -> Seq2SeqModelOutput:
        """Run both stacks; decoder inputs default to shifted `input_ids`; a text is read once, without a cache."""
        ids = tensor_of(inputs, "input_ids")
        if ids is not None and are_missing(inputs, "decoder_input_ids", "decoder_inputs_embeds"):
            inputs |= self.shifted(ids, inputs)
        outputs: Seq2SeqModelOutput = self.model(**inputs | {"use_cache": bool(inputs.get("use_cache"))})
        return outputs

    def shifted(self, ids: Tensor, inputs: Mapping[str, object]) -> dict[str, object]:
        """Shift a text right for the decoder, which sees no padding in front of it."""
        real = real_places(inputs.get("attention_mask"), ids)
        if real is None or inputs.get("decoder_attention_mask") is not None:
            return {"decoder_input_ids": shift_right(ids, self.config)}
        return {"decoder_input_ids": shift_right(ids, self.config, real), "decoder_attention_mask": after_padding(real)}


def last_end(input_ids: Tensor, eos_token_id: int | list[int] | None) -> Tensor:
    """Return where the end-of-sequence tokens are (B, T); ValueError for a text without one."""
    ends = [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
    is_end = torch.isin(input_ids, torch.tensor(ends, dtype=input_ids.dtype, device=input_ids.device))
    check_end_tokens(is_end, eos_token_id, "; end each text with it")
    return is_end


class QkvEncoderDecoderForSequenceClassification(EncoderDecoderReader):
    """Classify a text by the decoder's state at its end: `input_ids -> model -> dense, tanh -> logits (B, V)`."""

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, int(config.num_labels or 0))
        self.post_init()

    @inputs_of(QkvEncoderDecoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> Seq2SeqSequenceClassifierOutput:
        """Score each row by the last `eos_token_id` of `input_ids`, without ids by the last token before the padding.

        Decoder inputs are made from `input_ids` when missing, when given they are as long; `labels` as for encoders.
        """
        outputs = self.read(**inputs)
        ids, mask = tensor_of(inputs, "input_ids"), tensor_of(inputs, "attention_mask")
        pooled = self.dropout(self.pool(outputs[0], ids, mask))
        logits = self.classifier(self.dropout(torch.tanh(self.dense(pooled))))
        loss = classification(logits, labels, self.config, num_items_in_batch)
        return Seq2SeqSequenceClassifierOutput(loss=loss, logits=logits, **other_fields(outputs))

    def pool(self, hidden: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        """Return the decoder's state at the end of the text: (B, T, D) -> (B, D)."""
        ends = attention_mask if input_ids is None else last_end(input_ids, self.config.eos_token_id)
        if ends is not None and ends.shape != hidden.shape[:2]:
            raise ValueError(
                f"decoder inputs of {hidden.shape[1]} tokens are not the {ends.shape[1]} of the text; leave them out "
                "or give the text shifted right"
            )
        return last_token(hidden, ends)


class QkvEncoderDecoderForQuestionAnswering(EncoderDecoderReader):
    """Find the answer in a text: `input_ids -> model -> start_logits, end_logits (B, T)` of the decoder's states."""

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @inputs_of(QkvEncoderDecoderModel)
    @can_return_tuple
    def forward(
        self,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Count = None,
        **inputs: object,
    ) -> Seq2SeqQuestionAnsweringModelOutput:
        """Score answers; `start_positions` and `end_positions` (B,) in the decoder's inputs, ignored outside them.

        Decoder inputs are made from `input_ids` when missing.
        """
        outputs = self.read(**inputs)
        starts, ends = (scores.contiguous() for scores in self.qa_outputs(outputs.last_hidden_state).unbind(-1))
        made = are_missing(inputs, "decoder_input_ids", "decoder_inputs_embeds")
        mask = inputs.get("attention_mask" if made else "decoder_attention_mask")
        options = (mask, num_items_in_batch, self.config.label_smoothing)
        loss = question_answering_loss((starts, ends), (start_positions, end_positions), *options)
        return Seq2SeqQuestionAnsweringModelOutput(
            loss=loss, start_logits=starts, end_logits=ends, **other_fields(outputs)
        )


class QkvEncoderDecoderEncoderModel(SourceAndTarget, SharedVocabularyMixin):
    """Encode a text with the encoder alone: `input_ids -> encoder -> last_hidden_state (B, T, D)`.

    Checkpoints of every head of the family load, without the decoder's part. AutoModel loads what was
    saved alone; of a whole model it does so with `architectures=["QkvEncoderDecoderEncoderModel"]` in the config, which
    sentence-transformers takes as `config_kwargs`.
    """

    config: QkvEncoderDecoderConfig
    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        config = deepcopy(config)  # which may be that of a whole model
        config.is_encoder_decoder = False
        # So that AutoModel gives the encoder alone again, not a whole model with a random decoder.
        config.auto_map = {**config.auto_map, "AutoModel": "modeling_encoder_decoder.QkvEncoderDecoderEncoderModel"}
        super().__init__(config)
        self.encoder = QkvEncoderModel(config.encoder, add_pooling_layer=False)
        if config.share_embeddings:  # checkpoints have the shared table under the decoder's name
            self.decoder = nn.ModuleDict({"embed_tokens": TokenFrontend(config.decoder)})
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(self, **inputs: object) -> BaseModelOutputWithPooling:
        """Encode one of `input_ids` and `inputs_embeds`; `attention_mask` (B, T) is 0 at padding."""
        outputs: BaseModelOutputWithPooling = self.encoder(**{**self.recorded(), **inputs})
        return outputs
