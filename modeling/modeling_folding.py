"""Models that fold a chain: input_ids -> residues, pairs -> structure module -> positions of atoms, again and again.

Shapes: B batch, L residues, D width of a residue, C width of a pair, A = 14 atoms of a residue, V bins.
"""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.esm.openfold_utils import OFProtein, atom14_to_atom37, make_atom14_masks, to_pdb
from transformers.utils.output_capturing import maybe_install_capturing_hooks

from ..configuration.configuration_folding import QkvFoldingConfig
from .base import can_return_tuple
from .checks.inputs import check_input_ids
from .heads.loss import Count
from .modeling_encoder import QkvEncoderModel
from .modeling_pair import QkvPairModel
from .normalization import LayerNorm
from .pair.block import PairOutput
from .pair.embedding import Recycled, count_passes, real_residues
from .pair.folding_loss import FoldingOutput, error_centers, expected_lddt, expected_tm, folding_loss
from .pair.frames import UNKNOWN, distance_bins_of
from .pair.structure import Structure, StructureModule

ATOM_TYPES, LDDT_BINS, ERROR_BINS = 37, 50, 64
RECYCLED_DISTANCES = (3.375, 21.375)  # Å


class LanguageFeatures(nn.Module):
    """Mix the layers of a frozen language model, and map them to residues.

    Source: Lin et al. 2023, ESMFold, supplement, §A.3, https://doi.org/10.1126/science.ade2574
    Shapes: tokens (B, L), mask (B, L) or None -> (B, L, D)
    """

    def __init__(self, config: QkvFoldingConfig) -> None:
        super().__init__()
        language: Any = config.language_model
        self.ids, self.ends = config.language_model_ids, (language.bos_token_id, language.eos_token_id)
        self.pad = language.pad_token_id
        self.encoder = QkvEncoderModel(language, add_pooling_layer=False)
        self.layer_weights = nn.Parameter(torch.zeros(language.num_hidden_layers + 1))
        self.norm = LayerNorm(config.pair_stack(), language.hidden_size)
        self.up_proj = nn.Linear(language.hidden_size, config.hidden_size)
        self.down_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.residue_head = nn.Linear(config.hidden_size, config.vocab_size)

    def freeze_unread(self) -> None:
        """Freeze the language model, and the head of masked residues, for which there are no labels here."""
        for part in (self.encoder, self.residue_head):
            part.requires_grad_(requires_grad=False)

    def forward(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        tokens = torch.tensor(self.ids, device=input_ids.device)[input_ids]
        real = torch.ones_like(input_ids) if mask is None else mask.long()
        tokens, length = F.pad(tokens.where(real.bool(), self.pad), (1, 1), value=self.pad), real.shape[1]
        ends = torch.stack((real.argmax(-1), 1 + length - real.flip(-1).argmax(-1)), dim=-1)
        tokens = tokens.scatter(1, ends, torch.tensor(self.ends, device=tokens.device).expand_as(ends))
        real = F.pad(real, (1, 1)).scatter(1, ends, 1)
        with torch.no_grad():
            layers = self.encoder(tokens, attention_mask=real, output_hidden_states=True).hidden_states
        features = torch.stack([each[:, 1:-1] for each in layers], dim=-1).to(self.layer_weights.dtype)
        return self.down_proj(self.up_proj(self.norm(features @ self.layer_weights.softmax(0))).relu())


def confidence_head(config: QkvFoldingConfig) -> nn.Sequential:
    """Score bins of lDDT for each type of atom: (B, L, D) -> (B, L, 37, V).

    Source: Jumper et al. 2021, supplement, algorithm 29, https://doi.org/10.1038/s41586-021-03819-2; without ReLU:
        Lin et al. 2023, ESMFold's code
    """
    width, inner, bins = config.structure_hidden_size, config.confidence_hidden_size, (ATOM_TYPES, LDDT_BINS)
    layers = nn.Linear(width, inner), nn.Linear(inner, inner), nn.Linear(inner, ATOM_TYPES * LDDT_BINS)
    return nn.Sequential(LayerNorm(config.pair_stack(), width), *layers, nn.Unflatten(-1, bins))


class FixedVocabularyMixin(QkvPairModel):
    """Refuse residues that are added, for which a language model has no numbers, before they are learned."""

    config: QkvFoldingConfig

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the table of residues; ValueError with a language model, which has no numbers for further ones."""
        known = self.config.vocab_size
        if self.config.language_model_ids and (new_num_tokens not in (None, known) or pad_to_multiple_of is not None):
            raise ValueError(
                f"language_model_ids has a number for each of vocab_size={known} tokens, got {new_num_tokens=} and "
                f"{pad_to_multiple_of=}; set vocab_size and language_model_ids in a new config"
            )
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)


class QkvFoldingModel(FixedVocabularyMixin):
    """Predict the atoms of a chain: AlphaFold 2 without templates, ESMFold by configuration.

    `input_ids -> blocks of residues and pairs -> structure module -> positions (B, L, A, 3)`, which a pass reads of the
    one before it, as numbers of distances. Tokens 0 to 19 are amino acids in the order of AlphaFold 2.

    Source: Jumper et al. 2021, AlphaFold 2, supplement, algorithms 2 and 20, https://doi.org/10.1038/s41586-021-03819-2;
        Lin et al. 2023, ESMFold, https://doi.org/10.1126/science.ade2574
    """

    _no_split_modules = ["PairBlock", "StructureModule"]

    def __init__(self, config: QkvFoldingConfig) -> None:
        super().__init__(config)
        self.language_features = LanguageFeatures(config) if config.language_model_config else None
        self.structure_module = StructureModule(config)
        self.distogram_head = nn.Linear(config.pair_hidden_size, config.num_distogram_bins)
        self.ptm_head = nn.Linear(config.pair_hidden_size, ERROR_BINS)
        self.lddt_head = confidence_head(config)
        self.post_init()

    @can_return_tuple
    def forward(  # type: ignore[override]  # it folds what residues it knows
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        num_recycles: int | None = None,
        **kwargs: Any,
    ) -> FoldingOutput:
        """Fold chains (B, L); `attention_mask` (B, L) is 0 at padding.

        Of `num_recycles + 1` passes the last has gradients. `labels` (B, L, 3 to 14, 3) are true positions in Å of N,
        CA, C and, in the order of atom14, the atoms after them; unknown ones are -100 three times.
        """
        check_input_ids(input_ids, self.config.vocab_size)
        mask = real_residues(input_ids, attention_mask)
        hidden = self.embed(input_ids, mask)
        given: Any = {"attention_mask": attention_mask, "position_ids": position_ids, "num_recycles": 0, **kwargs}
        recycled: Recycled | None = None
        bins: Tensor | None = None
        for left in reversed(range(count_passes(self.config, num_recycles))):
            with torch.no_grad() if left else nullcontext():
                outputs: Any = super().forward(inputs_embeds=hidden, recycled=recycled, distance_bins=bins, **given)
                recycled = outputs.last_hidden_state, outputs.pair_hidden_state
                structure = self.structure_module(*recycled, input_ids, mask)
            bins = self.bins_of(structure)
        return self.fold(outputs, structure, labels, mask, num_items_in_batch)

    def embed(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Embed amino acids, with features of the language model where there is one: (B, L) -> (B, L, D)."""
        hidden: Tensor = self.embed_tokens(input_ids)
        if self.language_features is None:
            return hidden
        if not torch.compiler.is_compiling():
            maybe_install_capturing_hooks(self)  # once for both models
        return hidden + self.language_features(input_ids, mask)

    def bins_of(self, structure: Structure) -> Tensor | None:
        """Return numbers of the distances of a structure, for the next pass; None where none are read."""
        count = self.config.num_distance_bins
        return distance_bins_of(structure.positions[-1].detach(), *RECYCLED_DISTANCES, count) if count else None

    def fold(
        self, outputs: PairOutput, structure: Structure, labels: Tensor | None, mask: Tensor | None, count: Count
    ) -> FoldingOutput:
        """Return the structure of the last layer, its confidence and, with labels, its loss."""
        pairs: Any = outputs.pair_hidden_state
        language: Any = self.language_features
        distances, errors, lddt = self.distogram_head(pairs), self.ptm_head(pairs), self.lddt_head(structure.states[-1])
        precise = torch.promote_types(errors.dtype, torch.float32)
        output = FoldingOutput(
            **outputs,
            positions=structure.positions[-1],
            frames=structure.frames[-1],
            angles=structure.angles[-1],
            plddt=expected_lddt(lddt.to(precise)),
            ptm=expected_tm(errors.to(precise), mask),
            predicted_aligned_error=errors.to(precise).softmax(-1) @ error_centers(errors.to(precise)),
            distogram_logits=(distances + distances.transpose(1, 2)) / 2,
            lddt_logits=lddt,
            ptm_logits=errors,
            lm_logits=None if language is None else language.residue_head(outputs.last_hidden_state),
        )
        if labels is not None:
            smoothing = float(self.config.label_smoothing)
            output.loss = folding_loss(structure, output, labels, mask, count, smoothing)
        return output

    @staticmethod
    def to_pdb(output: FoldingOutput, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[str]:
        """Write each chain as a PDB file, with pLDDT from 0 to 100, as AlphaFold has it, as temperature factors."""
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        protein = make_atom14_masks({"aatype": input_ids.clamp(max=UNKNOWN)})
        positions: Any = output.positions
        atoms = atom14_to_atom37(positions, protein)
        confidence: Any = output.plddt
        columns: Any = (protein["aatype"], atoms, protein["atom37_atom_exists"], 100 * confidence)
        files = []
        for mask, *chain in zip(real.bool(), *columns, strict=True):
            residues, positions, exist, plddt = (each[mask].float().cpu().numpy() for each in chain)
            numbers = torch.arange(1, len(residues) + 1).numpy()
            files.append(to_pdb(OFProtein(positions, residues.astype(int), exist, numbers, plddt)))
        return files
