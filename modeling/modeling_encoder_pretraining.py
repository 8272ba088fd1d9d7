"""Heads of text encoders for pre-training: words, next sentence, replaced tokens; and for contacts.

Shapes: B batch, T tokens, L tokens between the first and the last of a row, V vocabulary.
"""

from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput, TokenClassifierOutput
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput
from transformers.utils.output_capturing import maybe_install_capturing_hooks

from ..configuration.configuration_encoder import QkvEncoderConfig
from .base import QkvPreTrainedModel, can_return_tuple, inputs_of, tensor_of
from .heads.contact import find_residues, select_pairs
from .heads.language_modeling import score_vocabulary, skips_logits
from .heads.loss import IGNORED, Count, binary_cross_entropy, due_labels, negative_log_likelihood, real_places
from .heads.transform import MaskedLMHead, PlainMaskedLMHead, ReplacedTokenHead
from .kernel import wants_weights
from .modeling_encoder import QkvEncoderModel


# trf-ignore: TRF013  each model calls post_init, last
class MaskedLMBase(QkvPreTrainedModel):
    """Score the hidden tokens of a text: a text encoder, with a pooler or without, and the head on it."""

    config: QkvEncoderConfig
    _tp_plan = {"lm_head.decoder": "colwise_gather_output"}

    def __init__(self, config: QkvEncoderConfig, *, add_pooling_layer: bool = False) -> None:
        super().__init__(config)
        self.model = QkvEncoderModel(config, add_pooling_layer=add_pooling_layer)
        self.lm_head = (MaskedLMHead if config.lm_head_transform else PlainMaskedLMHead)(config)

    def tied_parameters(self) -> dict[str, str]:
        return {"lm_head.decoder.weight": "model.embed_tokens.weight"} if self.config.tie_word_embeddings else {}

    def score(
        self, hidden: Tensor, labels: Tensor | None, mask: object, num_items_in_batch: Count, *, skip_logits: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return (loss or None, logits or None) of hidden states (B, T, D), of which a mask (B, S) marks real ones."""
        options = {"num_items_in_batch": num_items_in_batch, "label_smoothing": self.config.label_smoothing}
        labels = due_labels(labels, real_places(mask, hidden))
        return score_vocabulary(self.lm_head, hidden, labels, skip_logits=skip_logits, **options)

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings


class QkvEncoderForMaskedLM(MaskedLMBase):
    """Predict masked tokens: `input_ids -> QkvEncoderModel -> MaskedLMHead -> logits (B, T, V)`."""

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        skip_logits: bool | None = None,
        **inputs: object,
    ) -> MaskedLMOutput:
        """Predict masked tokens; `labels` (B, T) hold them and -100 elsewhere.

        In training with labels only the loss is computed, of masked tokens alone, unless `skip_logits=False`.
        """
        skip = skips_logits(self, labels, inputs, skip_logits=skip_logits)
        outputs = self.model(**inputs)
        mask = inputs.get("attention_mask")
        loss, logits = self.score(outputs.last_hidden_state, labels, mask, num_items_in_batch, skip_logits=skip)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class QkvEncoderForPreTraining(MaskedLMBase):
    """Masked tokens and next sentence together, as BERT was pre-trained: two heads on one encoder.

    Source: Devlin et al. 2019, BERT, §3.1, https://arxiv.org/abs/1810.04805
    """

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config, add_pooling_layer=True)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        num_items_in_batch: Count = None,
        skip_logits: bool | None = None,
        **inputs: object,
    ) -> BertForPreTrainingOutput:
        """Score whether the second segment follows the first: then `next_sentence_label` (B,) is 0.

        In training with both labels no `prediction_logits` are computed unless `skip_logits=False`.
        """
        skip = next_sentence_label is not None and skips_logits(self, labels, inputs, skip_logits=skip_logits)
        outputs = self.model(**inputs)
        words, mask = labels if next_sentence_label is not None else None, inputs.get("attention_mask")
        loss, scores = self.score(outputs.last_hidden_state, words, mask, num_items_in_batch, skip_logits=skip)
        relation = self.seq_relationship(outputs.pooler_output)
        if loss is not None and labels is not None and next_sentence_label is not None:
            # The count of the step is one of tokens: each part's sentences weigh as much as its masked tokens do.
            share = 1.0 if num_items_in_batch is None else (labels != IGNORED).sum() / num_items_in_batch
            smoothing = self.config.label_smoothing
            loss = loss + share * negative_log_likelihood(relation, next_sentence_label, None, smoothing)
        return BertForPreTrainingOutput(loss, scores, relation, outputs.hidden_states, outputs.attentions)


class QkvEncoderForReplacedTokenDetection(QkvPreTrainedModel):
    """Detect replaced tokens: `input_ids -> QkvEncoderModel -> ReplacedTokenHead -> logits (B, T)`.

    The loss is that of every token, where masked language modelling has that of masked ones alone.

    Source: Clark et al. 2020, ELECTRA, §2, https://arxiv.org/abs/2003.10555
    """

    config: QkvEncoderConfig

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.model = QkvEncoderModel(config, add_pooling_layer=False)
        self.classifier = ReplacedTokenHead(config)
        # A saved map has room for one class each, and the one it comes with predicts words.
        own = "modeling_encoder.QkvEncoderForReplacedTokenDetection"
        config.auto_map = {**config.auto_map, "AutoModelForPreTraining": own}
        self.post_init()

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> TokenClassifierOutput:
        """Detect replaced tokens; `labels` (B, T) are 1 for replaced, 0 for original ones, -100 for padding."""
        outputs = self.model(**inputs)
        logits = self.classifier(outputs.last_hidden_state)
        real = real_places(inputs.get("attention_mask"), logits)
        options = (num_items_in_batch, "mark original 0, replaced 1", self.config.label_smoothing)
        loss = binary_cross_entropy(logits, labels, real, *options)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class QkvEncoderForContactPrediction(QkvPreTrainedModel):
    """Predict which residues of a protein touch: `input_ids -> QkvEncoderModel -> contact head -> logits (B, L, L)`.

    Residues are the tokens between the first and the last real one of a row, so that entry (i, j) is of residues i and
    j with any padding; L is T - 2. Logits are symmetric, and mean nothing past the residues of a shorter row.

    With `contact_head="attention"` the encoder is a trained one, which stays as it is: only the regression learns.
    """

    config: QkvEncoderConfig

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        if config.contact_head is None:
            raise ValueError("contact_head=None predicts no contacts; set it to 'attention' or 'outer_product'")
        self.model = QkvEncoderModel(config, add_pooling_layer=False)
        # A saved map has room for one class each, and no Auto class is for contacts alone.
        config.auto_map = {**config.auto_map, "AutoModel": "modeling_encoder.QkvEncoderForContactPrediction"}
        self.post_init()
        if self.model.contact_head.reads_attention:
            maybe_install_capturing_hooks(self.model)  # which a first forward that is compiled cannot

    def freeze_unread(self) -> None:
        head = self.model.contact_head
        if head.reads_attention:
            self.model.requires_grad_(requires_grad=False)
        for parameter in head.parameters():
            parameter.requires_grad_(parameter.is_floating_point())  # quantized weights are not

    @inputs_of(QkvEncoderModel)
    @can_return_tuple
    def forward(
        self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object
    ) -> TokenClassifierOutput:
        """Predict contacts; `labels` (B, L, L) are 1 for pairs in contact, 0 for others, -100 where none is due."""
        head, asked = self.model.contact_head, wants_weights(self.config, inputs)
        outputs = self.model(**inputs | {"output_attentions": asked or head.reads_attention})
        residues, places = find_residues(tensor_of(inputs, "attention_mask"), outputs.last_hidden_state)
        logits = select_pairs(head(outputs.last_hidden_state, outputs.attentions, residues), places)
        real = residues.gather(1, places)
        pairs, mend = real[:, :, None] & real[:, None], "mark pairs in contact 1, all others 0"
        loss = binary_cross_entropy(logits, labels, pairs, num_items_in_batch, mend, self.config.label_smoothing)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions if asked else None)
