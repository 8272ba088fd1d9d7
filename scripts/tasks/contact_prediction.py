"""Prediction of contacts: which residues of a chain touch when it is folded, such as the base pairs of RNA."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.scripts.data.collate import IGNORED, pad_rows, pad_with_mask, padded_columns
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.text_columns import SecondaryStructures, partners_of
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, config_fields, count_truncated, tokenizer_for, truncate
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import APART, CONTACT
from qkv.scripts.tasks.task import Answer, Task, grid, predict

# An encoder's head leaves out the first and the last token; a model of pairs has a pair for each two tokens.
TEMPLATES = {"QkvEncoderForContactPrediction": ENCODER_TEMPLATE, "QkvPairForContactPrediction": "$A"}
DRAWN, PER_ROW = 8, 4  # chains of the test that are drawn
PICTURE = {
    "contacts.png": "Contact maps of chains of the test split: above the diagonal the pairs, below it the "
    "probabilities that are predicted"
}


class ContactPrediction(Task):
    """Predict contacts between the residues of chains, which are truncated to `text.length` tokens.

    Each residue is a token; of an encoder there are a start and an end token around them. Metrics are those of CASP, of
    pairs at least three apart: the share of contacts among the L/5, L/2 and L most probable pairs of L residues.
    Residues that were cut off are predicted without contacts.
    """

    kind = "contact-prediction"

    def __init__(self, recipe: Recipe, data: SecondaryStructures) -> None:
        self.chains, self.length = data, recipe.text.length
        self.ends = ends_of(recipe.model.architecture)
        self.tokenizer = tokenizer_for(recipe, data.texts.get("train", []), TEMPLATES[recipe.model.architecture])
        self.fills = {"input_ids": self.tokenizer.pad_token_id, "partners": IGNORED, "_whole": IGNORED}
        tokens = {name: truncate(self.tokenizer, own, self.length) for name, own in data.texts.items()}
        lengths = {name: own for name, (_, own) in tokens.items()}
        for name, own in data.texts.items():
            check_residues(own, lengths[name], self.ends)
        splits = {name: self.examples_of(ids, data.targets[name]) for name, (ids, _) in tokens.items()}
        config = config_fields(self.tokenizer, max_position_embeddings=self.length)
        cut = count_truncated(lengths, self.length)
        super().__init__(data, splits, self.tokenizer, config, metrics=("contacts",), truncated=cut)

    def examples_of(self, ids: Sequence[np.ndarray], structures: Sequence[str]) -> Columns:
        """Return the tokens of chains, and the place of each residue's partner, -1 without one."""
        whole = list(map(partners_of, structures))
        read = [own[: len(row) - self.ends] for row, own in zip(ids, whole, strict=True)]
        examples = padded_columns({"input_ids": (ids, self.fills["input_ids"]), "partners": (read, IGNORED)})
        if any(len(own) < len(every) for own, every in zip(read, whole, strict=True)):
            examples.columns["_whole"] = pad_rows(whole, IGNORED)
        return examples

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        batch = pad_with_mask(records, self.fills)
        labels = contacts_of(batch.pop("partners"))
        return {**batch, "labels": labels}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the map of probabilities and that of contacts of each chain."""
        answers, references = [], contacts_of(batch["_whole"]) if "_whole" in batch else batch["labels"]
        for scores, labels, read in zip(outputs.logits.float().sigmoid(), references, batch["labels"], strict=True):
            count, seen = (int((each.diagonal() != IGNORED).sum()) for each in (labels, read))
            predicted = np.zeros((count, count), dtype=np.float32)
            predicted[:seen, :seen] = scores[:seen, :seen].cpu().numpy()
            answers.append((predicted, labels[:count, :count].cpu().numpy()))
        return answers

    def shown(self, answer: Answer) -> Record:
        """Return the contacts of both maps among pairs that are scored, and the mean certainty of all such pairs."""
        predicted, reference = answer
        first, last = np.triu_indices(len(reference), APART)
        sure = np.maximum(predicted, 1 - predicted)[first, last]
        pairs = [np.stack((first, last), 1)[each[first, last] > CONTACT].tolist() for each in (reference, predicted)]
        return super().shown((pairs[1], pairs[0])) | {"score": float(sure.mean()) if len(sure) else 1.0}

    def products(self, model: Any, folder: Path) -> dict[str, str]:
        split = self.splits["test"]
        records = split.__getitems__(range(min(DRAWN, len(split))))
        draw_contacts(predict(self, model, records), folder / "contacts.png")
        return dict(PICTURE)


def contacts_of(partners: torch.Tensor) -> torch.Tensor:
    """Return whether two residues are partners (B, L, L), by the place of the partner of each (B, L)."""
    real = partners != IGNORED
    contacts = (partners[:, :, None] == torch.arange(partners.shape[1], device=partners.device)).long()
    return contacts.where(real[:, :, None] & real[:, None], IGNORED)


def ends_of(architecture: str) -> int:
    """Return how many tokens stand around the residues of a chain."""
    return len(TEMPLATES[architecture].split()) - 1


def check_residues(sequences: Sequence[str], lengths: Sequence[int], ends: int) -> None:
    """Raise ValueError unless the tokenizer makes a token of each residue, and `ends` tokens around a chain."""
    for sequence, length in zip(sequences, lengths, strict=True):
        if length != len(sequence) + ends:
            raise ValueError(
                f"the tokenizer makes {length} tokens of a chain of {len(sequence)} residues, of which contacts need "
                f"{len(sequence) + ends}: one for each residue, {ends} around them; set text.tokenizer=characters"
            )


def draw_contacts(answers: Sequence[Answer], path: Path) -> None:
    """Draw contact maps, which are symmetric: ground truth above the diagonal, predictions below it."""
    figure, axes = grid(len(answers), PER_ROW, 2.6)
    for axis, (predicted, contacts) in zip(axes, answers, strict=False):
        image = axis.imshow(np.triu(contacts) + np.tril(predicted), cmap="Blues", vmin=0, vmax=1)
        axis.axline((0, 0), slope=1, color="grey", linewidth=0.5)
    figure.colorbar(image, ax=figure.axes, label="probability of a contact", shrink=0.6)
    figure.savefig(path, dpi=150)
