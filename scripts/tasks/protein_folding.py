"""Folding of proteins: the positions of all atoms of a chain, by its amino acids."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from transformers.models.esm.openfold_utils import residue_constants

from qkv.configuration.configuration_folding import RESIDUES
from qkv.scripts.data.collate import IGNORED, pad_rows, pad_with_mask
from qkv.scripts.data.corpus import FoldedChains
from qkv.scripts.data.examples import Batch, Columns, InvalidRecord, Record
from qkv.scripts.data.formats.structures import BACKBONE
from qkv.scripts.data.text_columns import as_object, check_chain, read_chains
from qkv.scripts.data.tokenization import config_fields, count_truncated, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.fold_scores import fold_counts, superposed
from qkv.scripts.tasks.task import Answer, Task, predict

ATOMS, ALPHA = 14, 1  # of a residue, in the order of AlphaFold 2: N, CA, C, O, then the side chain's; CA among them
DRAWN = 4  # chains of the test that are drawn
PICTURE = {
    "structures.png": "Chains of the test split as they are (grey) and as they are predicted, coloured by pLDDT from 0 "
    "to 100; dots are CA of residues"
}


class ProteinFolding(Task):
    """Predict the atoms of chains, truncated to `text.length` residues; those cut off are neither learned nor scored.

    Metrics are of CA: lDDT, the deviation after superposition (RMSD), and beside them the confidence, pLDDT.
    """

    kind = "protein-folding"

    def __init__(self, recipe: Recipe, data: FoldedChains) -> None:
        self.tokenizer, length = tokenizer_for(recipe, []), recipe.text.length
        check_residue_tokens(self.tokenizer)
        lengths = {name: list(map(len, own)) for name, own in data.texts.items()}
        splits = {name: self.examples_of(data, name, length) for name in data.texts}
        config, cut = config_fields(self.tokenizer), count_truncated(lengths, length)
        super().__init__(data, splits, self.tokenizer, config, metrics=("folds",), truncated=cut)

    def examples_of(self, data: FoldedChains, split: str, length: int) -> Columns:
        """Return the tokens of chains, and the positions of the atoms that their amino acids have."""
        ids = [own[:length] for own in tokenize(self.tokenizer, data.texts[split], add_special_tokens=False)]
        tokens = pad_rows(ids, self.tokenizer.pad_token_id)
        labels = np.full((*tokens.shape, ATOMS, 3), IGNORED, np.float32)
        for row, own, *chain in zip(labels, ids, data.texts[split], data.targets[split], strict=True):
            row[: len(own)] = np.nan_to_num(atoms_of(*chain)[: len(own)], nan=IGNORED)
        labels[residue_constants.restype_atom14_mask[tokens.clamp(max=len(RESIDUES) - 1)] == 0] = IGNORED
        return Columns({"input_ids": tokens, "labels": torch.from_numpy(labels)}, [len(own) for own in ids])

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Make a batch whose labels have as many atoms as some residue of it has."""
        batch = pad_with_mask(records, {"input_ids": self.tokenizer.pad_token_id})
        labels = batch["labels"][:, : batch["input_ids"].shape[1]]
        atoms = (labels != IGNORED).any(-1).flatten(0, 1).any(0).sum()
        return {**batch, "labels": labels[:, :, : max(int(atoms), 3)]}

    def count(self, batch: Batch) -> int:
        """Return the number of coordinates of known atoms."""
        return 3 * int((batch["labels"] != IGNORED).any(-1).sum())

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return CA of each chain with pLDDT, beside their true positions, NaN for unknown ones."""
        columns = (outputs.positions[:, :, ALPHA], outputs.plddt[:, :, ALPHA], batch["labels"][:, :, ALPHA])
        answers = []
        for real, *chain in zip(batch["attention_mask"].bool(), *columns, strict=True):
            positions, plddt, true = (each[real].float().cpu().numpy() for each in chain)
            true[(true == IGNORED).all(-1)] = np.nan
            answers.append(({"ca": positions, "plddt": plddt}, true))
        return answers

    def shown(self, answer: Answer) -> Record:
        """Return the positions of CA, the scores of the chain, and pLDDT as its certainty."""
        predicted, reference = answer
        _, lddt, rmsd, plddt = fold_counts(*answer).tolist()
        columns = {"reference": np.nan_to_num(reference).tolist(), "prediction": {"ca": predicted["ca"].tolist()}}
        return columns | {"lddt_ca": lddt, "rmsd": rmsd, "score": plddt}

    def products(self, model: Any, folder: Path) -> dict[str, str]:
        split = self.splits["test"]
        records = split.__getitems__(range(min(DRAWN, len(split))))
        draw_structures(predict(self, model, records), folder / "structures.png")
        return dict(PICTURE)


def read_folded(recipe: Recipe) -> FoldedChains:
    """Read chains and the positions of their atoms."""
    return FoldedChains(
        **read_chains(recipe, "coordinates", atoms_of, lambda each: each if isinstance(each, str) else json.dumps(each))
    )


def check_protein(value: Any) -> str:
    """Return a chain; InvalidRecord where it is not written in capital letters, a residue each."""
    chain = check_chain(value)
    if not re.fullmatch("[A-Z]+", chain):
        raise InvalidRecord(f"{chain[:20]!r}, expected amino acids as capital letters, such as MKTAYIAKQR")
    return chain


def atoms_of(sequence: Any, coordinates: Any) -> NDArray[np.float32]:
    """Return positions in Å (L, 14, 3), NaN for unknown ones: a list for each residue, of [x, y, z] or null by atom.

    InvalidRecord for another form, and where no residue has its whole backbone.
    """
    chain, residues = check_protein(sequence), as_object(coordinates)
    if not isinstance(residues, list) or len(residues) != len(chain):
        count = len(residues) if isinstance(residues, list) else "no"
        raise InvalidRecord(f"{len(chain)} residues, but coordinates of {count}")
    positions = np.full((len(chain), ATOMS, 3), np.nan, np.float32)
    try:
        for own, atoms in zip(positions, residues, strict=True):
            for place, atom in enumerate(atoms or ()):
                own[place] = np.nan if atom is None else np.asarray(atom, np.float32).reshape(3)
    except (TypeError, ValueError, IndexError):
        form = f"a list for each residue of up to {ATOMS} atoms, each [x, y, z] or null"
        raise InvalidRecord(f"coordinates that are not {form}") from None
    if not np.isfinite(positions[:, : len(BACKBONE)]).all((1, 2)).any():
        raise InvalidRecord(f"no residue has positions of {', '.join(BACKBONE)}")
    return positions


def check_residue_tokens(tokenizer: Any) -> None:
    """Raise ValueError unless a tokenizer numbers amino acids as models that fold have them."""
    if tokenizer.convert_tokens_to_ids([*RESIDUES]) != [*range(len(RESIDUES))]:
        raise ValueError(
            f"the tokenizer numbers amino acids otherwise than models that fold, {RESIDUES} from 0; set "
            "text.tokenizer=residues"
        )


def draw_structures(answers: Sequence[Answer], path: Path) -> None:
    """Draw chains in space: the true one in grey, over it the prediction, coloured by its confidence."""
    figure = Figure(figsize=(3.2 * len(answers), 3.4), layout="constrained")
    for number, (predicted, true) in enumerate(answers, start=1):
        axis: Any = figure.add_subplot(1, len(answers), number, projection="3d")
        known = ~np.isnan(true).any(-1)
        points = superposed(predicted["ca"][known], true[known])
        axis.plot(*true[known].T, color="0.7", linewidth=5)
        axis.plot(*points.T, color="0.2", linewidth=1)
        dots = axis.scatter(*points.T, c=100 * predicted["plddt"][known], cmap="RdYlBu", vmin=0, vmax=100)
        axis.set_title(f"lDDT {100 * fold_counts(predicted, true)[1]:.0f}", fontsize=9)
        axis.set_axis_off()
        axis.set_aspect("equal")
    figure.colorbar(dots, ax=figure.axes, label="pLDDT", shrink=0.6)
    figure.savefig(path, dpi=110)
