"""Structures: chains of PDB and mmCIF as other programs write them, and positions in tables; odd ones are told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from errors import raises_sentence
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.formats.readers import read_rows
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.tasks.protein_folding import atoms_of
from qkv.scripts.tasks.registry import load

# Two models; chain A with an alternate place, an insertion, a gap, selenomethionine and a ligand, chain B of DNA.
ATOMS = [
    ("ATOM", "N", "", "ALA", "A", 5, "", (1.0, 2.0, 3.0)),
    ("ATOM", "CA", "A", "ALA", "A", 5, "", (2.0, 2.0, 3.0)),
    ("ATOM", "CA", "B", "ALA", "A", 5, "", (9.0, 9.0, 9.0)),
    ("ATOM", "C", "", "ALA", "A", 5, "", (-3.25, 2.0, 3.0)),
    ("ATOM", "CB", "", "ALA", "A", 5, "", (4.0, 2.0, 3.0)),
    ("ATOM", "CA", "", "GLY", "A", 5, "A", (5.0, 2.0, 3.0)),
    ("HETATM", "N", "", "MSE", "A", 8, "", (6.0, 1.0, 3.0)),
    ("HETATM", "CA", "", "MSE", "A", 8, "", (6.0, 2.0, 3.0)),
    ("HETATM", "C", "", "MSE", "A", 8, "", (6.0, 3.0, 3.0)),
    ("HETATM", "O", "", "HOH", "A", 90, "", (7.0, 2.0, 3.0)),
    ("ATOM", "P", "", "DA", "B", 1, "", (8.0, 2.0, 3.0)),
]
EXPECTED = [[[1, 2, 3], [2, 2, 3], [-3.25, 2, 3], None, [4, 2, 3]], [None, [5, 2, 3], None, None], [], []]


def as_pdb(atoms: list[Any]) -> str:
    lines = [
        f"{kind:6}{number:5} {name:^4}{alternate or ' '}{residue:>3} {chain}{place:4}{insertion or ' '}   "
        f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00 20.00"
        for number, (kind, name, alternate, residue, chain, place, insertion, (x, y, z)) in enumerate(atoms)
    ]
    return "\n".join(["HEADER    TEST", "MODEL        1", *lines, "ENDMDL", "MODEL        2", *lines, "ENDMDL", "END"])


def as_cif(atoms: list[Any]) -> str:
    names = "group_PDB id label_atom_id label_alt_id label_comp_id auth_asym_id auth_seq_id pdbx_PDB_ins_code"
    names += " Cartn_x Cartn_y Cartn_z pdbx_PDB_model_num"
    lines = [
        f'{kind} {number} "{name}" {alternate or "."} {residue} {chain} {place} {insertion or "?"} {x} {y} {z} {model}'
        for model in (1, 2)
        for number, (kind, name, alternate, residue, chain, place, insertion, (x, y, z)) in enumerate(atoms)
    ]
    return "\n".join(["data_TEST", "loop_", *(f"_atom_site.{name}" for name in names.split()), *lines, "#"])


@pytest.mark.parametrize(("ending", "write"), [("pdb", as_pdb), ("ent", as_pdb), ("cif", as_cif), ("mmcif", as_cif)])
def test_chains_are_read(ending: str, write: Any, tmp_path: Path) -> None:
    path = tmp_path / f"1abc.{ending}"
    path.write_text(write(ATOMS))
    ((number, row),) = read_rows(path)
    assert number == 1 and row["id"] == "1abc_A" and row["sequence"] == "AGXXM"
    positions = json.loads(row["coordinates"])
    assert positions[:4] == EXPECTED and positions[4][:4] == [[6, 1, 3], [6, 2, 3], [6, 3, 3], None]
    made = atoms_of(row["sequence"], row["coordinates"])
    assert made.shape == (5, 14, 3) and np.isfinite(made).all(-1).sum(-1).tolist() == [4, 1, 0, 0, 3]


@pytest.mark.parametrize("write", [as_pdb, as_cif])
def test_files_without_a_chain_and_damaged_ones_are_told(write: Any, tmp_path: Path) -> None:
    path = tmp_path / ("a.pdb" if write is as_pdb else "a.cif")
    path.write_text(write(ATOMS[-2:]))
    ((_, row),) = read_rows(path)
    assert isinstance(row, InvalidRecord)
    path.write_text(write(ATOMS).replace("-3.25", "x.25 "))
    with raises_sentence("x.25", "PDB or mmCIF"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("sequence", "coordinates", "reason"),
    [
        ("AG", [[[0, 0, 0]]], "2 residues, but coordinates of 1"),
        ("A", None, "coordinates of no"),
        ("A", [[[0, 0]]], "each [x, y, z] or null"),
        ("A", [[[0, 0, 0]] * 15], "up to 14 atoms"),
        ("A", [[[0, 0, 0], None, [0, 0, 1]]], "N, CA, C"),
        ("ag", [[], []], "'ag'"),
    ],
)
def test_positions_that_are_none_are_told(sequence: str, coordinates: Any, reason: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        atoms_of(sequence, json.dumps(coordinates))
    assert reason in str(caught.value)


def test_a_folder_of_structures_is_the_task_of_folding(tmp_path: Path, no_cache: Path) -> None:
    letters = ("ALA", "GLY", "SER", "VAL")
    for number in range(24):
        residues = [letters[number >> 2 * place & 3] for place in range(3)] + ["TRP"] * (number % 5 + 1)
        atoms = [
            ("ATOM", name, "", residue, "A", place, "", (place * 3.8, float(at), number / 8))
            for place, residue in enumerate(residues)
            for at, name in enumerate(("N", "CA", "C"))
        ]
        (tmp_path / f"{number}.pdb").write_text(as_pdb(atoms))
    recipe, inferred = infer(str(tmp_path))
    assert inferred["task"] == "protein-folding" and recipe.model.architecture == "QkvFoldingModel"
    task = load(recipe)
    assert sum(int(size) for size in task.sizes().values()) == 24 and task.data.read.files == {".pdb": 24}
    batch = task.collate(task.train.__getitems__([0, 1]), None)
    assert batch["labels"].shape == (2, batch["input_ids"].shape[1], 3, 3)
