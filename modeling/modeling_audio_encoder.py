"""Audio encoders and their CTC head: input_features -> convolutions -> Stack -> head -> logits.

Shapes: B batch, L frames, M mel bins, T tokens, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from ..configuration.configuration_audio_encoder import QkvAudioEncoderConfig
from .base import QkvPreTrainedModel, can_return_tuple, exactly_one, inputs_of, tensor_of
from .checks.inputs import check_input_kind
from .checks.sound import check_blank
from .heads.loss import Count, ctc_loss
from .position.hooks import Embedded
from .stack import Stack


class QkvAudioEncoderModel(Stack):
    """Bidirectional stack over a spectrogram read through convolutions: the encoders of Whisper and Speech2Text.

    `input_features (B, L, M) or (B, M, L) -> convolutions -> Stack -> last_hidden_state (B, T, D)`
    """

    config: QkvAudioEncoderConfig
    main_input_name = "input_features"

    def __init__(self, config: QkvAudioEncoderConfig) -> None:
        super().__init__(config)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_features: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode one of `input_features` and `inputs_embeds`; `attention_mask` (B, L) is 0 at padded frames."""
        check_input_kind(self, kwargs)
        exactly_one(input_features=input_features, inputs_embeds=inputs_embeds)
        if inputs_embeds is not None:
            embedded = Embedded(inputs_embeds, attention_mask)
        else:
            embedded = self.embed_tokens(input_features, attention_mask)
        return BaseModelOutput(self.run(embedded, position_ids, **kwargs))

    def padding_mask(self, attention_mask: Tensor | None, hidden: Tensor) -> Tensor | None:
        """Return which tokens are not padding, of a mask over frames: (B, L), (B, T, D) -> (B, T)."""
        return self.embed_tokens.padding_mask(attention_mask, hidden.shape[1])


class QkvAudioEncoderForCTC(QkvPreTrainedModel):
    """Recognise speech by CTC: `input_features -> QkvAudioEncoderModel -> lm_head -> logits (B, T, V)`.

    The blank is `pad_token_id`; the loss sums over all alignments, so labels need no times.

    Source: Graves et al. 2006, Connectionist Temporal Classification, https://doi.org/10.1145/1143844.1143891
    """

    config: QkvAudioEncoderConfig
    main_input_name = "input_features"
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: QkvAudioEncoderConfig) -> None:
        super().__init__(config)
        check_blank(config)
        self.model = QkvAudioEncoderModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @inputs_of(QkvAudioEncoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> CausalLMOutput:
        """Score words by token; `attention_mask` (B, L) is 0 at padded frames, `labels` (B, words) -100 at padding."""
        outputs = self.model(**inputs)
        logits = self.lm_head(self.dropout(outputs.last_hidden_state))
        mask = self.model.padding_mask(tensor_of(inputs, "attention_mask"), logits)
        mask = logits.new_ones(logits.shape[:2]) if mask is None else mask
        loss = ctc_loss(logits, labels, mask.long().sum(-1), self.config, num_items_in_batch)
        return CausalLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)
