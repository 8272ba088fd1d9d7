"""Models of a chain and its pairs: input_ids -> residues, pairs -> blocks -> both -> head -> logits.

Shapes: B batch, L residues, S further sequences of an alignment, D width of a residue, C width of a pair, V vocabulary,
labels or bins of distances.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput, TokenClassifierOutput
from transformers.utils.generic import ModelOutput
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ..configuration.configuration_pair import QkvPairConfig
from .base import QkvPreTrainedModel, can_return_tuple, exactly_one, inputs_of, tensor_of
from .checks.inputs import check_embeddings
from .checks.keywords import check_keywords
from .frontends.tokens import TokenFrontend
from .heads.contact import symmetrize
from .heads.head import label_classifier, token_output
from .heads.loss import Count, binary_cross_entropy, cross_entropy, due_labels, real_places
from .kernel import check_takes_bias, wants_weights
from .normalization import NORMS
from .pair.block import PairBlock, PairClassifierOutput, PairOutput, pair_output
from .pair.embedding import (
    PairEmbedding,
    Recycled,
    Recycling,
    chain_of,
    check_alignment,
    check_bins,
    check_recycled,
    count_passes,
    place_residues,
    real_residues,
)


class QkvPairModel(QkvPreTrainedModel):
    """Blocks over residues and their pairs: AlphaFold 2's Evoformer, ESMFold's trunk by configuration.

    `input_ids -> residues, pairs -> blocks -> last_hidden_state (B, L, D), pair_hidden_state (B, L, L, C)`

    Every token is a residue and has pairs: there is no class token.
    A head that reads residues or pairs alone says so: the last states of the others are then not normalised, nor pairs
    updated for the last time, and a parameter without a gradient is never built.
    """

    config: QkvPairConfig
    _supports_flash_attn = False
    _supports_flex_attn = False
    _no_split_modules = ["PairBlock"]
    _can_record_outputs = {
        "hidden_states": OutputRecorder(PairBlock, index=0),
        "attentions": OutputRecorder(PairBlock, index=2),
    }

    def __init__(self, config: QkvPairConfig, *, reads_residues: bool = True, reads_pairs: bool = True) -> None:
        super().__init__(config)
        if config.auto_map.get("AutoModel", "").endswith("Prediction"):  # read from the folder of a head on pairs
            config.auto_map = {**config.auto_map, "AutoModel": config.auto_classes["AutoModel"]}
        self.embed_tokens = TokenFrontend(config)
        self.embed_pairs = PairEmbedding(config)
        self.recycling = Recycling(config) if config.num_recycles else None
        updates = [True] * (config.num_hidden_layers - 1) + [reads_pairs]
        self.blocks = nn.ModuleList(PairBlock(config, i, updates_pairs=each) for i, each in enumerate(updates))
        residue, pair = config.residue_stack(), config.pair_stack()
        self.norm = NORMS[residue.norm](residue) if config.final_norm and reads_residues else nn.Identity()
        self.pair_norm = NORMS[pair.norm](pair) if config.final_norm and reads_pairs else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        msa_ids: Tensor | None = None,
        msa_attention_mask: Tensor | None = None,
        distance_bins: Tensor | None = None,
        num_recycles: int | None = None,
        recycled: Recycled | None = None,
        **kwargs: object,
    ) -> PairOutput:
        """Represent residues (B, L) and all pairs of them; `attention_mask` (B, L) is 0 at padding.

        `msa_ids` (B, S, L) are further sequences aligned with the chain, `msa_attention_mask` (B, S) is 0 at those
        that fill up. `distance_bins` (B, L, L) are known distances, as numbers of bins. Of `num_recycles + 1` passes
        the last has gradients; the first goes on from `recycled`, residues (B, L, D) and pairs of an earlier call.
        """
        exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        check_keywords(type(self).forward, kwargs)
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        check_embeddings(hidden, self.config.hidden_size)
        mask, sequence_mask = real_residues(hidden, attention_mask), None
        check_bins(hidden, distance_bins, self.config.num_distance_bins)
        pair = self.embed_pairs(hidden, place_residues(hidden, position_ids), mask, distance_bins)
        if msa_ids is not None:
            hidden, sequence_mask = self.align(hidden, msa_ids, msa_attention_mask)
        check_recycled(self.config, hidden, pair, recycled)
        passes = count_passes(self.config, num_recycles)
        outputs = self.run(hidden, pair, recycled, passes, mask, sequence_mask, **kwargs)
        if msa_ids is not None:
            outputs.last_hidden_state, outputs.msa_hidden_state = outputs[0][:, 0], outputs[0][:, 1:]
        return outputs

    def run(
        self, hidden: Tensor, pair: Tensor, recycled: Recycled | None, passes: int, *masks: Tensor | None, **kwargs: Any
    ) -> PairOutput:
        """Run all blocks as often as there are passes; only the last one has gradients and is recorded."""
        kwargs = {**self.recorded(), **kwargs}
        backend = "eager" if wants_weights(self.config, kwargs) else str(self.config._attn_implementation)
        check_takes_bias(backend)
        kwargs["attention_implementation"] = backend
        unrecorded = {**kwargs, "output_attentions": False, "output_hidden_states": False}
        for _ in range(passes - 1):
            with torch.no_grad():
                outputs = self.run_blocks(hidden, pair, recycled, *masks, last=False, **unrecorded)
            recycled = chain_of(outputs.last_hidden_state), outputs.pair_hidden_state
        return self.run_blocks(hidden, pair, recycled, *masks, last=True, **kwargs)

    @capture_outputs
    def run_blocks(
        self, hidden: Tensor, pair: Tensor, recycled: Recycled | None, *masks: Tensor | None, last: bool, **kwargs: Any
    ) -> PairOutput:
        """Run all blocks, and the norms after the last pass; (B, L, D) or (B, S, L, D), (B, L, L, C) -> same."""
        if self.recycling is not None:
            hidden, pair = self.recycling(hidden, pair, recycled)
        for block in self.blocks:
            hidden, pair, _ = block(hidden, pair, *masks, **kwargs)
        if last:
            hidden, pair = self.norm(hidden), self.pair_norm(pair)
        return PairOutput(hidden, pair_hidden_state=pair)

    def align(self, hidden: Tensor, msa_ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Put further sequences under the first: (B, L, D), (B, S, L) -> (B, 1 + S, L, D), (B, 1 + S) or None."""
        check_alignment(self.config, hidden, msa_ids, mask)
        rows = torch.cat((hidden[:, None], self.embed_tokens(msa_ids)), dim=1)
        return rows, None if mask is None else torch.cat((torch.ones_like(mask[:, :1]), mask), dim=1).bool()


class PairHead(QkvPreTrainedModel):
    """The base of heads on residues or pairs, each of which gives the `output` of its class."""

    config: QkvPairConfig
    _supports_flash_attn = False
    _supports_flex_attn = False

    def __init__(self, config: QkvPairConfig, **reads: bool) -> None:
        super().__init__(config)
        self.model = QkvPairModel(config, **reads)

    def output(
        self, outputs: PairOutput, attention_mask: Tensor | None, labels: Tensor | None, count: Count
    ) -> ModelOutput:
        """Return scores and loss; `count` are the targets of the whole step."""
        raise NotImplementedError

    @inputs_of(QkvPairModel)
    @can_return_tuple
    def forward(self, labels: Tensor | None = None, num_items_in_batch: Count = None, **inputs: object) -> ModelOutput:
        """Score residues or pairs, with a loss if there are `labels`, which are -100 where none is due."""
        return self.output(self.model(**inputs), tensor_of(inputs, "attention_mask"), labels, num_items_in_batch)


class PairLevelHead(PairHead):
    """Score pairs by a linear map, the same in both orders: (B, L, L, C) -> (B, L, L, V)."""

    def __init__(self, config: QkvPairConfig, classes: int) -> None:
        super().__init__(config, reads_residues=False)
        self.classifier = nn.Linear(config.pair_hidden_size, classes)
        # A saved map has room for one class each, and no Auto class is for pairs.
        config.auto_map = {**config.auto_map, "AutoModel": f"modeling_pair.{type(self).__name__}"}
        self.post_init()

    def score(self, outputs: PairOutput) -> Tensor:
        """Return the mean of the scores of (i, j) and (j, i): (B, L, L, V)."""
        return symmetrize(self.classifier(outputs.pair_hidden_state).movedim(-1, 1)).movedim(1, -1) / 2


def real_pairs(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    """Return which pairs are of real residues (B, L, L), None without a mask (B, L)."""
    real = real_places(mask, scores)
    return None if real is None else real[:, :, None] & real[:, None]


class QkvPairForContactPrediction(PairLevelHead):
    """Predict which residues touch: `input_ids -> QkvPairModel -> classifier of pairs -> logits (B, L, L)`.

    `labels` (B, L, L) are 1 for pairs in contact, 0 for others.
    """

    def __init__(self, config: QkvPairConfig) -> None:
        super().__init__(config, 1)

    def output(
        self, outputs: PairOutput, attention_mask: Tensor | None, labels: Tensor | None, count: Count
    ) -> PairClassifierOutput:
        """Return contacts; pairs with padding have no loss."""
        logits = self.score(outputs).squeeze(-1)
        real = real_pairs(attention_mask, logits)
        options = ("mark pairs in contact 1, all others 0", self.config.label_smoothing)
        loss = binary_cross_entropy(logits, labels, real, count, *options)
        return pair_output(outputs, logits, loss)


class QkvPairForDistancePrediction(PairLevelHead):
    """Predict a distogram: `input_ids -> QkvPairModel -> classifier of pairs -> logits (B, L, L, V)` over distances.

    `labels` (B, L, L) are numbers of bins.

    Source: Jumper et al. 2021, supplement, §1.9.8, https://doi.org/10.1038/s41586-021-03819-2
    """

    def __init__(self, config: QkvPairConfig) -> None:
        # The base refuses a config of another family, which has none.
        super().__init__(config, getattr(config, "num_distogram_bins", 1))

    def output(
        self, outputs: PairOutput, attention_mask: Tensor | None, labels: Tensor | None, count: Count
    ) -> PairClassifierOutput:
        """Return scores of distances."""
        logits = self.score(outputs)
        labels = due_labels(labels, real_pairs(attention_mask, logits))
        return pair_output(outputs, logits, cross_entropy(logits, labels, count, self.config.label_smoothing))


class QkvPairForMaskedLM(PairHead):
    """Predict masked residues: `input_ids -> QkvPairModel -> lm_head -> logits (B, L, V)`.

    `labels` are (B, L), or (B, 1 + S, L) of a whole alignment.

    Source: Jumper et al. 2021, supplement, §1.9.9, https://doi.org/10.1038/s41586-021-03819-2
    """

    def __init__(self, config: QkvPairConfig) -> None:
        super().__init__(config, reads_pairs=False)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def output(
        self, outputs: PairOutput, attention_mask: Tensor | None, labels: Tensor | None, count: Count
    ) -> MaskedLMOutput:
        """Return scores of the vocabulary."""
        logits = scored = self.lm_head(outputs.last_hidden_state)
        real = real_places(attention_mask, logits)
        if labels is not None and labels.ndim == 3 and outputs.msa_hidden_state is not None:
            scored = torch.cat((logits[:, None], self.lm_head(outputs.msa_hidden_state)), dim=1)
            real = None if real is None else real[:, None].expand(scored.shape[:-1])
        loss = cross_entropy(scored, due_labels(labels, real), count, self.config.label_smoothing)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class QkvPairForTokenClassification(PairHead):
    """Label each residue: `input_ids -> QkvPairModel -> classifier -> logits (B, L, V)`; `labels` are (B, L)."""

    def __init__(self, config: QkvPairConfig) -> None:
        super().__init__(config, reads_pairs=False)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = label_classifier(config)
        self.post_init()

    def output(
        self, outputs: PairOutput, attention_mask: Tensor | None, labels: Tensor | None, count: Count
    ) -> TokenClassifierOutput:
        """Return scores of the labels."""
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        return token_output(outputs, logits, labels, attention_mask, count, self.config.label_smoothing)
