"""Decoders and their heads: input_ids -> embeddings -> causal Stack -> head -> logits.

Shapes: B batch, T tokens, S keys, D hidden_size, V vocabulary or labels.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation.continuous_batching import ContinuousBatchingManager
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutputWithPast,
    TokenClassifierOutput,
)
from transformers.modeling_utils import slice_logits_to_keep
from transformers.utils.generic import ModelOutput, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ..configuration.configuration_decoder import QkvDecoderConfig
from .base import QkvPreTrainedModel, can_return_tuple, exactly_one, inputs_of, tensor_of
from .checks.keywords import cache_field
from .execution import way_of
from .generation import QkvGenerationMixin
from .heads.head import label_classifier, last_token, question_answering_output, scale_for_head, token_output
from .heads.language_modeling import score_vocabulary, skips_logits
from .heads.loss import Count, classification, next_tokens
from .heads.routing import recording_routes, with_router_losses
from .heads.transform import HeadTransform
from .kernel import check_backend
from .masks.masking import GivenMask
from .position.hooks import Embedded
from .stack import Stack


class QkvDecoderModel(Stack):
    """Causal stack over tokens: GPT-2, OPT, BLOOM, GPT-NeoX, Llama, Mistral, Qwen by configuration.

    `input_ids -> embeddings -> Stack -> last_hidden_state (B, T, D), past_key_values`
    """

    config: QkvDecoderConfig
    _can_record_outputs = {
        **Stack._can_record_outputs,
        "router_logits": OutputRecorder(nn.Module, layer_name="mlp.gate"),
    }

    def __init__(self, config: QkvDecoderConfig) -> None:
        super().__init__(config)
        if config.score_correction_bias:
            self._keep_in_fp32_modules_strict = ["e_score_correction_bias"]
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: GivenMask = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: object,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Encode one of `input_ids` and `inputs_embeds`; `attention_mask` covers cached tokens too."""
        exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        hidden = self.run(Embedded(inputs_embeds, attention_mask), position_ids, past_key_values, **kwargs)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden, **cache_field(past_key_values if use_cache else None)
        )


def other_fields(outputs: ModelOutput) -> dict[str, Any]:
    """Return all of a model's output but its last hidden state and logits of routers, for the output of its head."""
    return {name: value for name, value in outputs.items() if name not in ("last_hidden_state", "router_logits")}


class QkvDecoderForCausalLM(QkvPreTrainedModel, QkvGenerationMixin):
    """Predict the next token and generate: `input_ids -> QkvDecoderModel -> lm_head -> logits (B, T, V)`."""

    config: QkvDecoderConfig
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan: Any = {"lm_head": (["hidden_states"], ["logits"])}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: QkvDecoderConfig) -> None:
        super().__init__(config)
        self.model = QkvDecoderModel(config)
        self.transform = HeadTransform(config) if config.lm_head_transform else None
        self.lm_head = nn.Linear(config.output_width, config.vocab_size, bias=config.lm_head_bias)
        self.has_experts = "moe" in config.layer_feed_forwards
        self.post_init()

    def tied_parameters(self) -> dict[str, str]:
        return {"lm_head.weight": "model.embed_tokens.weight"} if self.config.tie_word_embeddings else {}

    def generate(self, inputs: Tensor | None = None, *args: object, **kwargs: object) -> Any:
        """Left-pad the prompts, generate as transformers does, and restore the original padding.

        Recorded attentions and hidden states are those of the left-padded rows.
        """
        parent: Any = super()
        mask = kwargs.get("attention_mask")
        if (
            not isinstance(mask, Tensor)
            or mask.ndim != 2
            or any(isinstance(value, Cache) for value in kwargs.values())
            or bool(mask[:, -1].all())
        ):
            return parent.generate(inputs, *args, **kwargs)
        order = mask.bool().int().argsort(dim=1, stable=True)
        names = {"inputs", "input_ids", "inputs_embeds", "attention_mask", "position_ids"}
        given = {**kwargs, "inputs": inputs}.items()
        rows = {name: value for name, value in given if name in names and isinstance(value, Tensor)}
        padded = {name: torch.stack([row[to] for row, to in zip(v, order, strict=True)]) for name, v in rows.items()}
        output = parent.generate(padded.pop("inputs", None), *args, **{**kwargs, **padded})
        prompt = rows.get("inputs", rows.get("input_ids"))
        if prompt is not None:
            sequences = output if isinstance(output, Tensor) else output.sequences
            sequences[:, : prompt.shape[1]] = prompt.repeat_interleave(len(sequences) // len(prompt), dim=0)
        return output

    def init_continuous_batching(self, *args: object, **kwargs: object) -> ContinuousBatchingManager:
        """Start continuous batching, after checking that the backend keeps the bias of position encodings."""
        check_backend(self.config, self.config._attn_implementation, paged=True)
        start: Callable[..., ContinuousBatchingManager] = super().init_continuous_batching
        return start(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: GivenMask = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Count = None,
        skip_logits: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Predict the next tokens; `labels` (B, T) are the inputs themselves, -100 where no prediction is due.

        The model shifts `labels`; `shift_labels` are shifted before. They have no place in the signature, because
        Trainer evaluates no batch that lacks one of the inputs named like labels. In training with labels only the loss
        is computed, without logits and cache, unless `skip_logits=False`. As `num_items_in_batch` Trainer counts all
        labels but the first of a row: label the first token behind padding on the left -100, which nothing predicts.
        """
        packing = (position_ids, kwargs.get("cu_seq_lens_q"), attention_mask)
        targets = next_tokens(labels, kwargs.pop("shift_labels", None), *packing)
        skip = skips_logits(self, targets, kwargs, skip_logits=skip_logits)
        inputs = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        use_cache = False if skip else use_cache
        kwargs = recording_routes(self, targets, kwargs) if self.has_experts else kwargs
        outputs = way_of(self.model)(*inputs, use_cache=use_cache, **kwargs)  # by name, or its decorators pass it twice
        hidden = scale_for_head(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep), self.config)
        hidden = hidden if self.transform is None else self.transform(hidden)
        options = {"num_items_in_batch": num_items_in_batch, "label_smoothing": self.config.label_smoothing}
        options["softcap"] = self.config.final_logit_softcapping
        loss, logits = score_vocabulary(self.lm_head, hidden, targets, skip_logits=skip, **options)
        output = CausalLMOutputWithPast(loss=loss, logits=logits, **other_fields(outputs))
        return with_router_losses(self, output, outputs, (targets, attention_mask, num_items_in_batch))


class QkvDecoderForSequenceClassification(QkvPreTrainedModel):
    """Classify a text by its last token: `input_ids -> QkvDecoderModel -> score -> logits (B, V)`."""

    config: QkvDecoderConfig

    def __init__(self, config: QkvDecoderConfig) -> None:
        super().__init__(config)
        self.model = QkvDecoderModel(config)
        self.score = label_classifier(config, bias=False)
        self.post_init()

    @inputs_of(QkvDecoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> SequenceClassifierOutputWithPast:
        """Score rows by their last token, found by `attention_mask` or `pad_token_id`; `labels` as for encoders."""
        outputs = self.model(**inputs)
        real = self.real_tokens(tensor_of(inputs, "input_ids"), tensor_of(inputs, "attention_mask"))
        logits = self.score(last_token(outputs.last_hidden_state, real))
        loss = classification(logits, labels, self.config, num_items_in_batch)
        return SequenceClassifierOutputWithPast(loss=loss, logits=logits, **other_fields(outputs))

    def real_tokens(self, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor | None:
        """Return a mask (B, T) that is 0 at padding, or None without padding."""
        if attention_mask is not None and attention_mask.ndim == 2:
            return attention_mask
        if input_ids is None or self.config.pad_token_id is None:
            return None
        return input_ids != self.config.pad_token_id


class QkvDecoderForTokenClassification(QkvPreTrainedModel):
    """Label each token from the tokens up to it: `input_ids -> QkvDecoderModel -> score -> logits (B, T, V)`."""

    config: QkvDecoderConfig

    def __init__(self, config: QkvDecoderConfig) -> None:
        super().__init__(config)
        self.model = QkvDecoderModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = label_classifier(config)
        self.post_init()

    @inputs_of(QkvDecoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> TokenClassifierOutput:
        """Classify each token; `labels` (B, T) are -100 where none is due."""
        outputs = self.model(**inputs)
        logits = self.score(self.dropout(outputs.last_hidden_state))
        mask = tensor_of(inputs, "attention_mask")
        return token_output(outputs, logits, labels, mask, num_items_in_batch, self.config.label_smoothing)


class QkvDecoderForQuestionAnswering(QkvPreTrainedModel):
    """Find the answer in a text: `input_ids -> QkvDecoderModel -> start_logits, end_logits (B, T)`."""

    config: QkvDecoderConfig

    def __init__(self, config: QkvDecoderConfig) -> None:
        super().__init__(config)
        self.model = QkvDecoderModel(config)
        self.qa_outputs = nn.Linear(config.output_width, 2)
        self.post_init()

    @inputs_of(QkvDecoderModel)
    @can_return_tuple
    def forward(
        self,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Count = None,
        **inputs: object,
    ) -> QuestionAnsweringModelOutput:
        """Score answers; `start_positions` and `end_positions` (B,) outside the text are ignored."""
        outputs = self.model(**inputs)
        logits = self.qa_outputs(outputs.last_hidden_state)
        answers, mask = (start_positions, end_positions), tensor_of(inputs, "attention_mask")
        options = (num_items_in_batch, self.config.label_smoothing)
        return question_answering_output(outputs, logits, answers, mask, *options)
