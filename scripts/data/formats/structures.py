"""Read the chains of amino acids of PDB and mmCIF files.

Sources: https://www.wwpdb.org/documentation/file-format, https://mmcif.wwpdb.org
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transformers.models.esm.openfold_utils import residue_constants

from qkv.scripts.common.files import table
from qkv.scripts.data.examples import Record

BACKBONE = ("N", "CA", "C")
LETTERS = residue_constants.restype_3to1 | {"MSE": "M"}  # selenomethionine, by which many structures are solved
NAMES = residue_constants.restype_name_to_atom14_names | {"MSE": residue_constants.restype_name_to_atom14_names["MET"]}
FIELDS = table(__file__)
CELLS = re.compile(r"'[^']*'(?=\s)|\"[^\"]*\"(?=\s)|\S+")  # of a row of mmCIF
Atom = dict[str, str]  # its fields: `number` and `insertion` name the residue in its chain, `group` is ATOM or HETATM


def structure_rows(path: Path, lines: Iterable[str]) -> Iterator[Record]:
    """Yield each chain of amino acids of the first model: its name, letters and coordinates.

    Of alternate positions the first counts. Residues that the numbers leave out are X without coordinates, as unknown
    ones are; water, ligands and nucleic acids are left out.
    """
    chains: dict[str, dict[Any, tuple[Atom, dict[str, list[float]]]]] = defaultdict(dict)
    for atom in cif_atoms(lines) if path.suffix.lower() in (".cif", ".mmcif") else pdb_atoms(lines):
        _, atoms = chains[atom["chain"]].setdefault((int(atom["number"]), atom["insertion"]), (atom, {}))
        atoms.setdefault(atom["name"], [float(atom[axis]) for axis in "xyz"])
    for name, every in chains.items():
        letters, positions, last = "", list[Any](), None
        for first, atoms in every.values():
            if first["group"] == "HETATM" and not {*BACKBONE} <= atoms.keys():
                continue
            number, residue = int(first["number"]), first["residue"]
            missing = 0 if last is None else max(number - last - 1, 0)
            letters += "X" * missing + LETTERS.get(residue, "X")
            names = NAMES.get(residue, BACKBONE)
            positions += [[]] * missing + [[atoms.get(each) for each in names if each]]
            last = number
        if {*letters} - {"X"}:
            yield {"id": f"{path.stem}_{name}", "sequence": letters, "coordinates": json.dumps(positions)}


def pdb_atoms(lines: Iterable[str]) -> Iterator[Atom]:
    """Yield the atoms of the first model of a PDB file, by the columns of its lines."""
    for line in lines:
        if line.startswith("ENDMDL"):
            return
        if line.startswith(("ATOM", "HETATM")):
            yield {field: line[slice(*place)].strip() for field, place in FIELDS["pdb"].items()}


def cif_atoms(lines: Iterable[str]) -> Iterator[Atom]:
    """Yield the atoms of the first model of an mmCIF file, by the names of the columns of its atoms."""
    names, models = list[str](), set[str]()
    for line in lines:
        if line.startswith("_atom_site."):
            names.append(line.split()[0].partition(".")[2])
        elif names and line.startswith(("ATOM", "HETATM")):
            row = dict(zip(names, (cell.strip("'\"") for cell in CELLS.findall(line)), strict=True))
            models.add(row.get("pdbx_PDB_model_num", ""))
            if len(models) > 1:
                return
            insertion = row.get("pdbx_PDB_ins_code", "?").strip("?.")
            yield {field: row[name] for field, name in FIELDS["cif"].items()} | {"insertion": insertion}
