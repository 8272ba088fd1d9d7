"""Text encoders and their heads: input_ids -> embeddings -> Stack -> head -> logits.

Shapes: B batch, T tokens, D hidden_size, V vocabulary or labels.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from ..configuration.axes import DISENTANGLED_POSITIONS
from ..configuration.configuration_encoder import PooledStackConfig, QkvEncoderConfig, TextStackConfig
from .base import QkvPreTrainedModel, can_return_tuple, exactly_one, inputs_of, tensor_of
from .checks.inputs import check_embeddings, check_input_kind, check_token_types, count_choices
from .frontends.tokens import drop_masked_tokens
from .heads.contact import CONTACT_HEADS
from .heads.head import POOLINGS, label_classifier, question_answering_output, token_output
from .heads.loss import Count, classification, cross_entropy
from .heads.transform import transform
from .kernels.disentangled_attention import DisentangledAttention
from .kernels.global_attention import GlobalSelfAttention, GlobalTokens, check_marks_given
from .position.hooks import Embedded
from .stack import Stack


class TextStack(Stack):
    """Stack over tokens with a pooler: `input_ids -> embeddings -> Stack -> last_hidden_state, pooler_output`."""

    config: TextStackConfig

    def __init__(self, config: TextStackConfig, *, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        kinds = config.type_vocab_size
        self.embed_token_types = nn.Embedding(kinds, config.embedding_width) if kinds else None
        self.pooler = POOLINGS[config.pooling](config) if add_pooling_layer else None
        if config.global_projections:
            # Not in the layer, for published decoders and image encoders carry the code of all that a layer may hold.
            for index, layer in enumerate(self.layers):
                layer.self_attn = GlobalSelfAttention(config, index)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values: Cache | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: object,
    ) -> BaseModelOutputWithPooling:
        """Encode one of `input_ids` and `inputs_embeds`; `attention_mask` (B, T) is 0 at padding.

        A cache holds a learned prefix, which the mask covers too. `global_attention_mask` (B, T) is 1 at tokens that
        attend to all and to which all attend, in any pattern.
        """
        check_input_kind(self, kwargs)
        exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        kwargs |= {} if global_attention_mask is None else {"global_attention_mask": global_attention_mask}
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if input_ids is not None and self.config.token_dropout:
            hidden = drop_masked_tokens(
                self.config, Embedded(hidden, attention_mask), input_ids, position_ids, **kwargs
            )
        embedded = Embedded(self.embed_types(hidden, token_type_ids), attention_mask)
        if self.config.global_projections:
            kwargs["global_tokens"] = GlobalTokens.of(self.config, embedded, position_ids, past_key_values, **kwargs)
        hidden = self.run(embedded, position_ids, past_key_values, **kwargs)
        mask = attention_mask if hidden.shape[1] == embedded.hidden.shape[1] else None
        return BaseModelOutputWithPooling(hidden, self.pool(hidden, mask, input_ids))

    def embed_types(self, hidden: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Add the token type embedding, type 0 by default: (B, T, D) -> (B, T, D)."""
        check_embeddings(hidden, self.config.embedding_width)
        if token_type_ids is not None:
            check_token_types(token_type_ids, hidden, self.config.type_vocab_size)
        if self.embed_token_types is None:
            return hidden
        if token_type_ids is None:
            token_type_ids = torch.zeros(1, dtype=torch.long, device=hidden.device)
        return hidden + self.embed_token_types(token_type_ids)

    def pool(self, hidden: Tensor, attention_mask: Tensor | None, input_ids: Tensor | None) -> Tensor | None:
        """Return the input of sequence-level heads, None without a pooler."""
        real = None if attention_mask is None or attention_mask.ndim != 2 else attention_mask[:, -hidden.shape[1] :]
        return None if self.pooler is None else self.pooler(hidden, real, input_ids)


class QkvEncoderModel(TextStack):
    """Bidirectional stack over tokens: BERT, RoBERTa, ELECTRA, ModernBERT, ESM-2 by configuration.

    `input_ids -> embeddings -> Stack -> last_hidden_state (B, T, D), pooler_output`
    """

    config: QkvEncoderConfig

    def __init__(self, config: QkvEncoderConfig, *, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        if config.position_word in DISENTANGLED_POSITIONS:
            for index, layer in enumerate(self.layers):
                layer.self_attn = DisentangledAttention(config, index)
        auto_map = getattr(config, "auto_map", {})  # a part of another config has none
        if auto_map.get("AutoModel", "").endswith("ForContactPrediction"):  # read from the folder of that head
            config.auto_map = {**auto_map, "AutoModel": config.auto_classes["AutoModel"]}
        # ESM-2 has it beside every head, and QkvEncoderForContactPrediction alone reads it.
        self.contact_head = CONTACT_HEADS[config.contact_head](config) if config.contact_head else None
        self.post_init()

    def freeze_unread(self) -> None:
        if (head := getattr(self, "contact_head", None)) is not None:
            head.requires_grad_(requires_grad=False)


class PooledClassifier(QkvPreTrainedModel):
    """Classify the pooled hidden state: optional transform, dropout, linear map."""

    config: PooledStackConfig
    # The encoder that the head stands on.
    model_class: ClassVar[type[Stack]] = QkvEncoderModel

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        self.transform = transform(config)
        self.dropout = nn.Dropout(self.config.classifier_dropout)
        self.classifier = POOLINGS[self.config.pooling].classifier(config)
        self.post_init()

    def read(self, attention_mask: object = None, **inputs: object) -> BaseModelOutputWithPooling:
        """Run the encoder, whose first tokens are enough where the pooling reads no others."""
        tokens = POOLINGS[self.config.pooling].tokens_read
        return self.model(attention_mask=attention_mask, tokens_read=tokens, **inputs)

    def classify(
        self, outputs: BaseModelOutputWithPooling, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor | None, Tensor]:
        """Return (loss or None, logits)."""
        logits = self.classifier(self.dropout(self.transform(outputs.pooler_output)))
        return classification(logits, labels, self.config, num_items_in_batch), logits


class QkvEncoderForSequenceClassification(PooledClassifier):
    """Classify a text: `input_ids -> QkvEncoderModel -> pooling -> classifier -> logits (B, V)`."""

    config: QkvEncoderConfig

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> SequenceClassifierOutput:
        """Score rows; `labels`: (B,) classes, (B,) or (B, V) numbers to regress, (B, V) floats for several labels."""
        check_marks_given(self.config, tensor_of(inputs, "global_attention_mask"))
        outputs = self.read(**inputs)
        loss, logits = self.classify(outputs, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class QkvEncoderForMultipleChoice(PooledClassifier):
    """Pick one of several continuations: `input_ids (B, choices, T) -> encoder -> pooling -> logits (B, choices)`."""

    config: QkvEncoderConfig

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> MultipleChoiceModelOutput:
        """Score choices, a dimension of every input after the batch; `labels` (B,) is the right one."""
        check_marks_given(self.config, tensor_of(inputs, "global_attention_mask"))
        choices = count_choices(tensor_of(inputs, "input_ids"), tensor_of(inputs, "inputs_embeds"))
        many = {name: value for name, value in inputs.items() if isinstance(value, Tensor) and value.ndim > 1}
        outputs = self.model(**inputs | {name: value.flatten(0, 1) for name, value in many.items()})
        logits = self.classifier(self.dropout(self.transform(outputs.pooler_output))).view(-1, choices)
        loss = cross_entropy(logits, labels, num_items_in_batch, self.config.label_smoothing)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class QkvEncoderForTokenClassification(QkvPreTrainedModel):
    """Label each token: `input_ids -> QkvEncoderModel -> classifier -> logits (B, T, V)`."""

    config: QkvEncoderConfig

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.model = QkvEncoderModel(config, add_pooling_layer=False)
        self.transform = transform(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = label_classifier(config)
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> TokenClassifierOutput:
        """Classify each token; `labels` (B, T) are -100 where none is due."""
        outputs = self.model(**inputs)
        logits = self.classifier(self.dropout(self.transform(outputs.last_hidden_state)))
        mask = tensor_of(inputs, "attention_mask")
        return token_output(outputs, logits, labels, mask, num_items_in_batch, self.config.label_smoothing)


class QkvEncoderForQuestionAnswering(QkvPreTrainedModel):
    """Find the answer in a text: `input_ids -> QkvEncoderModel -> start_logits, end_logits (B, T)`."""

    config: QkvEncoderConfig

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.model = QkvEncoderModel(config, add_pooling_layer=False)
        self.transform = transform(config)
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Count = None,
        **inputs: object,
    ) -> QuestionAnsweringModelOutput:
        """Score answers; `start_positions` and `end_positions` (B,) outside the text are ignored."""
        check_marks_given(self.config, tensor_of(inputs, "global_attention_mask"))
        outputs = self.model(**inputs)
        logits = self.qa_outputs(self.dropout(self.transform(outputs.last_hidden_state)))
        answers, mask = (start_positions, end_positions), tensor_of(inputs, "attention_mask")
        options = (num_items_in_batch, self.config.label_smoothing)
        return question_answering_output(outputs, logits, answers, mask, *options)
