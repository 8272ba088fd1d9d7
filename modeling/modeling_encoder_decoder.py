"""Encoder-decoders over text: input_ids -> encoder -> memory; decoder_input_ids, memory -> decoder -> logits.

Shapes: B batch, T targets, S sources, D hidden_size, V vocabulary.
"""

from typing import Any, ClassVar, cast

from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils.generic import ModelOutput
from transformers.utils.output_capturing import OutputRecorder

from ..configuration.configuration_decoder import QkvDecoderConfig
from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig, Seq2SeqConfig
from .attention import Attention
from .base import QkvPreTrainedModel, can_return_tuple, inputs_of
from .checks.inputs import check_source_mask
from .checks.keywords import CACHE, cache_field
from .execution import way_of
from .generation import QkvGenerationMixin
from .heads.head import scale_for_head
from .heads.language_modeling import score_vocabulary, skips_logits
from .heads.loss import Count
from .heads.target import LabelledTarget
from .masks.masking import GivenMask
from .modeling_decoder import QkvDecoderModel, other_fields
from .modeling_encoder import QkvEncoderModel

# An encoder's output of an earlier call, which may have become a tuple.
EncoderOutputs = ModelOutput | tuple[Any, ...] | None


class QkvCrossDecoderModel(QkvDecoderModel):
    """The decoder: a causal stack whose layers also attend to the encoder's output, with weights on request."""

    config: QkvDecoderConfig
    _can_record_outputs = {
        **QkvDecoderModel._can_record_outputs,
        "cross_attentions": OutputRecorder(Attention, index=1, layer_name="cross_attn"),
    }


class SharedVocabularyMixin(QkvPreTrainedModel):
    """Resize the vocabulary of source and target together, in one table or in two."""

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize both tables, and `vocab_size` of both configs; without a decoder its size stays, if it is another."""
        encoder, decoder = (getattr(self.config, side, self.config) for side in ("encoder", "decoder"))
        if new_num_tokens is None and pad_to_multiple_of is None:
            return super().resize_token_embeddings()
        apart, both = encoder.vocab_size != decoder.vocab_size, self.config.is_encoder_decoder
        if apart and both:
            raise ValueError(
                f"source and target have vocabularies of {encoder.vocab_size} and {decoder.vocab_size} tokens, so one "
                "new size cannot fit both; set vocab_size of encoder and decoder in a new config"
            )
        if both and not self.config.share_embeddings:
            self.get_decoder().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        before = decoder.vocab_size
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        encoder.vocab_size = embeddings.num_embeddings
        decoder.vocab_size = before if apart else embeddings.num_embeddings
        return embeddings


class SharedTablesMixin(QkvPreTrainedModel):
    """Shard tables of which two are one with the model itself: sharded one by one, each would move the other's weight.

    transformers does so for the table of source tokens and the head, which are not what encoder-decoders tie.
    """

    def init_parallel_plans(self) -> None:
        super().init_parallel_plans()
        tied = {name.rpartition(".")[0] for pair in self.tied_parameters().items() for name in pair}
        self._fsdp_plan = {name: style for name, style in (self._fsdp_plan or {}).items() if name not in tied}


class EncoderDecoderBase(SharedTablesMixin):
    """Run an encoder, or take its output from an earlier call."""

    encoder: Any
    decoder: Any

    def encode(self, encoder_outputs: EncoderOutputs, *inputs: object, **kwargs: object) -> ModelOutput:
        """Return `encoder_outputs`, or compute them from these inputs."""
        if encoder_outputs is None:
            return self.encoder(*inputs, **kwargs)
        return encoder_outputs if isinstance(encoder_outputs, ModelOutput) else BaseModelOutput(*encoder_outputs)


class SourceAndTarget(EncoderDecoderBase):
    """An encoder and a decoder over tokens, with a table of embeddings each, which may be one and the same."""

    def tied_parameters(self) -> dict[str, str]:
        return {"encoder.embed_tokens.weight": "decoder.embed_tokens.weight"} if self.config.share_embeddings else {}

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_embeddings:
            self.decoder.embed_tokens = value


class StackEncoderDecoder(EncoderDecoderBase):
    """Two stacks joined by cross-attention: memory (B, S, D) -> decoder -> last_hidden_state (B, T, D)."""

    config: Seq2SeqConfig

    def decode(
        self,
        encoder_outputs: ModelOutput,
        memory_mask: Tensor | None,
        target: tuple[Tensor | None, GivenMask, Tensor | None, Tensor | None],
        past_key_values: Cache | None,
        *,
        use_cache: bool | None,
        **kwargs: object,
    ) -> Seq2SeqModelOutput:
        """Run the decoder on `target`: its ids, padding mask, position ids and embeddings."""
        ids, padding_mask, position_ids, embeddings = target
        if ids is None and embeddings is None:
            raise ValueError("give decoder_input_ids, decoder_inputs_embeds, or labels from which they are made")
        memory = {"encoder_hidden_states": encoder_outputs[0], "encoder_attention_mask": memory_mask}
        inputs = (ids, padding_mask, position_ids, self.cache(past_key_values, use_cache=use_cache), embeddings)
        return both_sides(encoder_outputs, way_of(self.decoder)(*inputs, use_cache=use_cache, **memory, **kwargs))

    def cache(self, past_key_values: Cache | None, *, use_cache: bool | None) -> Cache | None:
        """Return a cache for self- and cross-attention; the latter fills at the first step."""
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if past_key_values is not None or not use_cache or (self.decoder.gradient_checkpointing and self.training):
            return past_key_values
        return EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache())


class QkvEncoderDecoderModel(StackEncoderDecoder, SourceAndTarget, SharedVocabularyMixin):
    """Two stacks joined by cross-attention: the 2017 Transformer, T5, BART, Marian by configuration.

    `input_ids -> encoder -> memory (B, S, D); decoder_input_ids -> decoder(memory) -> last_hidden_state (B, T, D)`
    """

    config: QkvEncoderDecoderConfig

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.encoder = QkvEncoderModel(config.encoder, add_pooling_layer=False)
        self.decoder = QkvCrossDecoderModel(config.decoder)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: GivenMask = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: EncoderOutputs = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: object,
    ) -> Seq2SeqModelOutput:
        """Run both stacks; `encoder_outputs` of an earlier call spare the encoder, `attention_mask` is the source's."""
        token_types = cast("Tensor | None", kwargs.pop("token_type_ids", None))
        kwargs = {**self.recorded(), **kwargs}
        source = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
        source |= {"global_attention_mask": global_attention_mask, "token_type_ids": token_types}
        if encoder_outputs is None:
            check_source_mask(attention_mask)
        encoder_outputs = self.encode(encoder_outputs, **source, **kwargs)
        target = (decoder_input_ids, decoder_attention_mask, decoder_position_ids, decoder_inputs_embeds)
        return self.decode(encoder_outputs, attention_mask, target, past_key_values, use_cache=use_cache, **kwargs)


def both_sides(encoder: ModelOutput, decoder: BaseModelOutputWithPastAndCrossAttentions) -> Seq2SeqModelOutput:
    """Join the outputs of the two stacks."""
    return Seq2SeqModelOutput(
        last_hidden_state=decoder.last_hidden_state,
        **cache_field(decoder.get(CACHE)),
        decoder_hidden_states=decoder.hidden_states,
        decoder_attentions=decoder.attentions,
        cross_attentions=decoder.cross_attentions,
        encoder_last_hidden_state=encoder[0],
        encoder_hidden_states=encoder.get("hidden_states"),
        encoder_attentions=encoder.get("attentions"),
    )


class Seq2SeqLMBase(LabelledTarget, SharedTablesMixin):
    """Score the next token of a text, from an encoder-decoder's last hidden state.

    In training with labels only the loss is computed, without logits and cache, unless `skip_logits=False`.
    """

    config: Seq2SeqConfig
    # The encoder-decoder that the head stands on.
    model_class: ClassVar[type[QkvPreTrainedModel]]
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        decoder = config.decoder
        self.lm_head = nn.Linear(decoder.output_width, decoder.vocab_size, bias=decoder.lm_head_bias)
        self.post_init()

    def tied_parameters(self) -> dict[str, str]:
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"} if self.config.tie_word_embeddings else {}

    def predict(
        self, labels: Tensor | None, num_items_in_batch: Count, skip_logits: bool | None, inputs: dict[str, object]
    ) -> Seq2SeqLMOutput:
        """Predict `labels` (B, T), -100 where none is due; decoder inputs are made from them when missing.

        Without logits and a cache, such as PEFT's prefix, rows end at their last label. Padding, 0 in
        `decoder_attention_mask`, predicts nothing.
        """
        skip = skips_logits(self, labels, inputs, skip_logits=skip_logits)
        labels = None if labels is None else self.with_target(labels, inputs, cut=skip)
        outputs = self.model(**inputs | ({"use_cache": False} if skip else {}))
        hidden = scale_for_head(outputs.last_hidden_state, self.config.decoder)
        options = {"num_items_in_batch": num_items_in_batch, "label_smoothing": self.config.label_smoothing}
        loss, logits = score_vocabulary(self.lm_head, hidden, labels, skip_logits=skip, **options)
        return Seq2SeqLMOutput(loss=loss, logits=logits, **other_fields(outputs))


class QkvEncoderDecoderForConditionalGeneration(Seq2SeqLMBase, SharedVocabularyMixin, QkvGenerationMixin):
    """Translate, summarise, text to text: `input_ids, decoder_input_ids -> model -> lm_head -> logits (B, T, V)`."""

    config: QkvEncoderDecoderConfig
    model_class: ClassVar[type[QkvPreTrainedModel]] = QkvEncoderDecoderModel

    @inputs_of(QkvEncoderDecoderModel)
    @can_return_tuple
    def forward(
        self,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        skip_logits: bool | None = None,
        **inputs: object,
    ) -> Seq2SeqLMOutput:
        """Predict `labels` (B, T), -100 where none is due; decoder inputs are made from them when missing."""
        return self.predict(labels, num_items_in_batch, skip_logits, inputs)
