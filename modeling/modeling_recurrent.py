"""Recurrent encoder-decoders: input_ids -> encoder -> memory; decoder_input_ids, memory -> decoder -> scores.

Shapes: B batch, T targets, S sources, M memory_size, P readout_size, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput

from ..configuration.configuration_recurrent import QkvRecurrentConfig
from .base import can_return_tuple, inputs_of
from .checks.keywords import CACHE
from .generation import QkvGenerationMixin
from .heads.loss import Count, cross_entropy
from .heads.target import LabelledTarget
from .modeling_decoder import other_fields
from .modeling_encoder_decoder import (
    EncoderOutputs,
    SharedTablesMixin,
    SharedVocabularyMixin,
    SourceAndTarget,
    both_sides,
)
from .recurrent.recurrent_stack import (
    QkvRecurrentDecoder,
    QkvRecurrentEncoder,
    QkvRecurrentPreTrainedModel,
    RecurrentCache,
)


class QkvRecurrentModel(SourceAndTarget, SharedVocabularyMixin, QkvRecurrentPreTrainedModel):
    """Two recurrent networks joined by a context: the seq2seq of 2014, and with attention that of 2015.

    `input_ids -> encoder -> memory (B, S, M); decoder_input_ids -> decoder(memory) -> last_hidden_state (B, T, P)`
    """

    config: QkvRecurrentConfig

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.encoder = QkvRecurrentEncoder(config)
        self.decoder = QkvRecurrentDecoder(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EncoderOutputs = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: object,
    ) -> Seq2SeqModelOutput:
        """Run both networks; `encoder_outputs` of an earlier call spare the encoder; training keeps no cache."""
        encoder_outputs = self.encode(encoder_outputs, input_ids, attention_mask, inputs_embeds, **kwargs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError("give decoder_input_ids, decoder_inputs_embeds, or labels from which they are made")
        cache = self.cache(past_key_values, use_cache=use_cache)
        target = (decoder_input_ids, decoder_attention_mask, cache, decoder_inputs_embeds)
        memory = {"encoder_hidden_states": encoder_outputs[0], "encoder_attention_mask": attention_mask}
        outputs = both_sides(encoder_outputs, self.decoder(*target, **memory, **kwargs))
        # Without attention there is nothing to show, which is not a tuple of nothing.
        shown: dict[str, Any] = {
            name: value for name, value in outputs.items() if not isinstance(value, tuple) or value
        }
        return Seq2SeqModelOutput(**shown)

    def cache(self, past_key_values: Cache | None, *, use_cache: bool | None) -> Cache | None:
        """Return the cache, a new one if `use_cache` asks for it."""
        due = self.config.use_cache and not self.training if use_cache is None else use_cache
        return RecurrentCache(self.config.num_hidden_layers) if due and past_key_values is None else past_key_values


class QkvRecurrentForConditionalGeneration(
    QkvGenerationMixin, SharedVocabularyMixin, LabelledTarget, SharedTablesMixin, QkvRecurrentPreTrainedModel
):
    """Translate as in 2014 and 2015: `input_ids, decoder_input_ids -> model -> lm_head -> logits (B, T, V)`."""

    config: QkvRecurrentConfig
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.model = QkvRecurrentModel(config)
        self.lm_head = nn.Linear(int(config.readout_size), config.vocab_size)
        self.post_init()

    def tied_parameters(self) -> dict[str, str]:
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"} if self.config.tie_word_embeddings else {}

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, object], *args: object, **kwargs: object
    ) -> Any:
        """Prepare a recurrent cache, where transformers would make one for keys and values."""
        implementation = generation_config.cache_implementation
        if generation_config.use_cache is False or model_kwargs.get(CACHE) is not None:
            return
        if implementation not in (None, "dynamic", "static"):
            raise ValueError(
                f"cache_implementation={implementation!r} is for keys and values, a recurrent state has a size of its "
                "own; leave it out"
            )
        model_kwargs[CACHE] = RecurrentCache(self.config.num_hidden_layers)

    @inputs_of(QkvRecurrentModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> Seq2SeqLMOutput:
        """Predict `labels` (B, T), -100 where none is due; decoder inputs are made from them when missing."""
        labels = None if labels is None else self.with_target(labels, inputs)
        outputs = self.model(**inputs)
        logits = self.lm_head(outputs.last_hidden_state)
        loss = cross_entropy(logits, labels, num_items_in_batch, self.config.label_smoothing)
        return Seq2SeqLMOutput(loss=loss, logits=logits, **other_fields(outputs))
