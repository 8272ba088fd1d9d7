"""Encoders that write down what they hear: input_features -> SpectrogramFrontend -> Stack -> scores.

Shapes: B batch, L frames, M mel bins, T tokens, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

from ..configuration.configuration_encoder import QkvEncoderConfig
from .base import QkvPreTrainedModel, can_return_tuple
from .check_sound import refuse_no_blank
from .loss import connectionist
from .modeling_encoder import QkvEncoderModel


class QkvEncoderForCTC(QkvPreTrainedModel):
    """Score a word or none at each moment: `input_features -> QkvEncoderModel -> lm_head -> logits (B, T, V)`.

    None, the blank, is `pad_token_id`; the loss sums over all alignments, so nobody has to say when a word is spoken.
    """

    config: QkvEncoderConfig
    reads = "spectrogram"
    main_input_name = "input_features"
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        refuse_no_blank(config)
        self.model = QkvEncoderModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_features: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """`attention_mask` (B, L) marks real frames; `labels` (B, words) are -100 where a row has no more."""
        given = {"input_features": input_features, "inputs_embeds": inputs_embeds}
        outputs = self.model(attention_mask=attention_mask, **given, **kwargs)
        logits = self.lm_head(self.dropout(outputs.last_hidden_state))
        keep = self.model.padding_mask(attention_mask, logits)
        real = logits.new_ones(logits.shape[:2]) if keep is None else keep
        loss = connectionist(logits, labels, real.long().sum(-1), self.config, num_items_in_batch)
        return CausalLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
