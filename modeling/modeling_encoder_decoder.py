"""Encoder-decoders: input_ids or sound -> encoder -> memory; decoder_input_ids, memory -> decoder -> scores.

Shapes: B batch, T targets, S sources, D hidden_size, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils.generic import ModelOutput
from transformers.utils.output_capturing import OutputRecorder

from ..configuration.configuration_decoder import QkvDecoderConfig
from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .attention import Attention
from .base import QkvPreTrainedModel, can_return_tuple
from .head import last_token, scale_for_head
from .loss import IGNORED, Count, cross_entropy
from .modeling_decoder import QkvDecoderModel, StaticMasks
from .modeling_encoder import QkvEncoderModel


class QkvCrossDecoderModel(QkvDecoderModel):
    """The decoder half: a causal stack whose layers also read memory, and can show what they read."""

    config: QkvDecoderConfig
    _can_record_outputs = {
        **QkvDecoderModel._can_record_outputs,
        "cross_attentions": OutputRecorder(Attention, index=1, layer_name="cross_attn"),
    }


class OneVocabulary(QkvPreTrainedModel):
    """Source and target are of one vocabulary, in one table or in two."""

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> Any:
        """Both tables follow, and what the configs say of them."""
        encoder, decoder = self.config.encoder, self.config.decoder
        if not args and not kwargs:
            return self.get_input_embeddings()
        if encoder.vocab_size != decoder.vocab_size:
            raise ValueError(
                f"source and target have vocabularies of {encoder.vocab_size} and {decoder.vocab_size} tokens, so one "
                "new size cannot fit both; set vocab_size of encoder and decoder in a new config"
            )
        # Sound has no vocabulary: there the only table is the decoder's.
        if not self.config.share_embeddings and self.config.frontend == "tokens":
            self.get_decoder().resize_token_embeddings(*args, **kwargs)
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        encoder.vocab_size = decoder.vocab_size = embeddings.num_embeddings
        return embeddings


class SourceAndTarget(QkvPreTrainedModel):
    """Two halves with a table of embeddings each, which may be one and the same."""

    encoder: Any
    decoder: Any

    @property
    def share_embeddings(self) -> bool:
        """Whether the two tables are one."""
        config: Any = self.config
        return bool(config.share_embeddings)

    def tied_parameters(self) -> dict[str, str]:
        shared = self.share_embeddings
        return {"encoder.embed_tokens.weight": "decoder.embed_tokens.weight"} if shared else {}

    def get_input_embeddings(self) -> Any:
        # CODEPATH: Whisper and Speech2Text hear sound
        if self.config.frontend == "spectrogram":
            return self.decoder.embed_tokens
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        # CODEPATH: Whisper and Speech2Text hear sound
        if self.config.frontend == "spectrogram":
            self.decoder.embed_tokens = value
            return
        self.encoder.embed_tokens = value
        if self.share_embeddings:
            self.decoder.embed_tokens = value

    def encoded(self, encoder_outputs: Any, *inputs: Any, **kwargs: Any) -> Any:
        """The encoder's output: the one that is given, or that of its inputs."""
        if encoder_outputs is None:
            return self.encoder(*inputs, **kwargs)
        return encoder_outputs if isinstance(encoder_outputs, ModelOutput) else BaseModelOutput(*encoder_outputs)


class QkvEncoderDecoderModel(SourceAndTarget, OneVocabulary):
    """Two stacks joined by cross-attention: the 2017 Transformer, T5, BART, Marian by configuration.

    `input_ids -> encoder -> memory (B, S, D); decoder_input_ids -> decoder(memory) -> last_hidden_state (B, T, D)`
    """

    config: QkvEncoderDecoderConfig

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.encoder = QkvEncoderModel(config.encoder, add_pooling_layer=False)
        self.decoder = QkvCrossDecoderModel(config.decoder)
        self.main_input_name = self.encoder.main_input_name
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Any = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        input_features: Tensor | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """`encoder_outputs` from an earlier call spare the encoder; `attention_mask` is the source's."""
        kwargs = {**self.recorded(), **kwargs}
        given = {"inputs_embeds": inputs_embeds, "input_features": input_features}
        encoder_outputs = self.encoded(encoder_outputs, input_ids, attention_mask, **given, **kwargs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError("give decoder_input_ids, decoder_inputs_embeds, or labels from which they are made")
        keep = self.encoder.padding_mask(attention_mask, encoder_outputs[0])
        memory = {"encoder_hidden_states": encoder_outputs[0], "encoder_attention_mask": keep}
        cache = self.cache(past_key_values, use_cache=use_cache)
        target = (decoder_input_ids, decoder_attention_mask, decoder_position_ids, cache, decoder_inputs_embeds)
        outputs = self.decoder(*target, use_cache=use_cache, **memory, **kwargs)
        return both_sides(encoder_outputs, outputs)

    def cache(self, past_key_values: Cache | None, *, use_cache: bool | None) -> Cache | None:
        """A cache for both kinds of attention; cross-attention's fills at the first step."""
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if past_key_values is not None or not use_cache or (self.decoder.gradient_checkpointing and self.training):
            return past_key_values
        return EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache())


def both_sides(encoder: ModelOutput, decoder: Any) -> Seq2SeqModelOutput:
    """One output from those of the two stacks."""
    return Seq2SeqModelOutput(
        last_hidden_state=decoder.last_hidden_state,
        past_key_values=decoder.past_key_values,
        decoder_hidden_states=decoder.hidden_states,
        decoder_attentions=decoder.attentions,
        cross_attentions=decoder.cross_attentions,
        encoder_last_hidden_state=encoder[0],
        encoder_hidden_states=encoder.get("hidden_states"),
        encoder_attentions=encoder.get("attentions"),
    )


def shift_right(ids: Tensor, config: Any) -> Tensor:
    """What a decoder reads to write these tokens: a start token and all but the last of them, (B, T) -> (B, T)."""
    ids = ids.masked_fill(ids == IGNORED, config.pad_token_id)
    start = ids.new_full((ids.shape[0], 1), config.decoder_start_token_id)
    if config.start_with_last_token:
        start = last_token(ids[..., None], ids != config.pad_token_id)
    return torch.cat((start, ids[:, :-1]), dim=1)


class Writer(StaticMasks, OneVocabulary):
    """What every model has that writes a text: scores of words, in one table with the decoder's embeddings or not."""

    config: QkvEncoderDecoderConfig
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.model = QkvEncoderDecoderModel(config)
        decoder = config.decoder
        self.lm_head = nn.Linear(decoder.output_width, decoder.vocab_size, bias=decoder.lm_head_bias)
        self.post_init()

    def tied_parameters(self) -> dict[str, str]:
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"} if self.config.tie_word_embeddings else {}

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """`shift_right`, under the name that `DataCollatorForSeq2Seq` calls."""
        return shift_right(labels, self.config)

    def scored(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Count) -> Seq2SeqLMOutput:
        """The scores of words, and their loss where there are labels."""
        logits = self.lm_head(scale_for_head(outputs.last_hidden_state, self.config.decoder))
        loss = cross_entropy(logits, labels, num_items_in_batch, self.config.label_smoothing)
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **others)


class QkvEncoderDecoderForConditionalGeneration(Writer, GenerationMixin):
    """Translate, summarise, text to text: `input_ids, decoder_input_ids -> model -> lm_head -> logits (B, T, V)`."""

    reads = "tokens"

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Any = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """`labels` (B, T) are the targets, -100 where none is due; decoder inputs are made from them when missing."""
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        source, target = (input_ids, attention_mask), (decoder_input_ids, decoder_attention_mask, decoder_position_ids)
        embeds = (inputs_embeds, decoder_inputs_embeds)
        outputs = self.model(*source, *target, encoder_outputs, past_key_values, *embeds, use_cache, **kwargs)
        return self.scored(outputs, labels, num_items_in_batch)
