"""Turn an official checkpoint into a qkv model, or a qkv model into a stock transformers one."""

import json
import os
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from qkv.modeling.conversion.convert import is_ours, open_checkpoint, read, write
from qkv.modeling.conversion.files import COMPANIONS, CONFIG, INDEX, located, named, read_json, weight_files
from qkv.scripts.common.tables import file_rows, print_table
from qkv.scripts.publishing.export.folder import check_empty, staged
from qkv.scripts.publishing.integrity.certificate import LIMITS, Certificate, certify, hashes, problems

CERTIFICATE = "certificate.json"
VOCABULARIES = (
    "tokenizer.json vocab.json vocab.txt tokenizer.model spiece.model sentencepiece.bpe.model source.spm".split()
)
STEPS = 4


def run(arguments: Namespace) -> None:
    """Convert and print what was made; RuntimeError, and nothing written, when the check fails."""
    check_empty(arguments.target)
    source = located(arguments.source, arguments.revision)
    direction = "stock" if is_ours(source) else "qkv"
    if arguments.to not in (None, direction):
        raise ValueError(f"{arguments.source} is a {arguments.to} checkpoint already; leave --to out to convert it")
    with progress(STEPS + arguments.check * (len(LIMITS) + 2)) as step, staged(arguments.target) as folder:
        certificate = fill(folder, source, arguments, step)
    if certificate:
        Console().print(table(certificate))
    title = f"{named(source)[1]} -> {named(arguments.target)[1]}"
    print_table(title, {**(summary(certificate) if certificate else {}), **file_rows(arguments.target)})


def fill(folder: Path, source: Path, arguments: Namespace, step: Callable[[str], None]) -> Certificate | None:
    """Write all files of the new checkpoint, and return the certificate where --check asks for one."""
    size = arguments.max_shard_size or shard_size(source)
    step("read")
    if arguments.dtype:
        # The certificate compares like with like: the source in the precision that is asked for.
        original, source = source, folder.parent / "recast"
        open_checkpoint(original, dtype=getattr(torch, arguments.dtype)).save_pretrained(source)
        companions(original, source)
    model: Any = open_checkpoint(source)
    step("convert")
    model = write(model, copies=False) if is_ours(source) else read(model, copies=False)
    step("write")
    model.save_pretrained(folder, max_shard_size=size)
    del model
    companions(source, folder)
    if not is_ours(source):
        name_processors(folder, read_json(source / CONFIG))
    certificate = None
    if arguments.check:
        certificate = certify(source, folder, step=step)
        if problems(certificate) and not arguments.force:
            raise RuntimeError(
                f"{arguments.target} is not written, for it is another model: {'; '.join(problems(certificate))}; "
                "--force writes it all the same"
            )
    step("hash")
    if certificate:
        certificate |= {"command": arguments.words, "files": hashes(folder)}
        (folder / CERTIFICATE).write_text(json.dumps(certificate, indent=2) + "\n", encoding="utf-8")
    return certificate


def shard_size(source: Path) -> int:
    """Return the size of the source's largest shard; no limit where its weights are one file."""
    if not (source / INDEX).is_file():
        return 2**63
    return max(os.path.getsize(source / name) for name in weight_files(source))


def companions(source: Path, target: Path) -> None:
    """Copy tokenizer and processor files, known by their names; no code."""
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def name_processors(target: Path, config: dict[str, Any]) -> None:
    """Write the classes of tokenizer and image processor into their config files.

    Where these do not name them, the Auto classes go by the model type, which is another after the conversion.
    """
    model_type = config["model_type"]
    tokenizer = config.get("tokenizer_class") or TOKENIZER_MAPPING_NAMES.get(model_type)
    if any((target / name).is_file() for name in VOCABULARIES):
        add_missing(target / "tokenizer_config.json", tokenizer_class=tokenizer)
    processor = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type, {}).get("torchvision")
    path = target / "preprocessor_config.json"
    if path.is_file() and "feature_extractor_type" not in read_json(path):
        add_missing(path, image_processor_type=processor)


def add_missing(path: Path, **fields: str | None) -> None:
    """Add fields to a JSON file that may not exist, unless it has them or they are None."""
    values = read_json(path) if path.is_file() else {}
    added = {name: value for name, value in fields.items() if value and name not in values}
    if added:
        path.write_text(json.dumps({**values, **added}, indent=2) + "\n", encoding="utf-8")


@contextmanager
def progress(steps: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on standard error; call what is yielded with the next step."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=steps, completed=-1)
        yield lambda what: bar.update(task, description=what, advance=1)


def table(certificate: Certificate) -> Table:
    """Return the certificate as a table."""
    limits = [f"{name} (limit {limit:.0e})" if limit else name for name, limit in certificate["limits"].items()]
    shown = Table("output", *limits, "mean, float64", title="largest differences, as parts of the largest number")
    for layer, measured in certificate["layers"].items():
        relative = [f"{measured[name]['max'] / (measured[name]['scale'] or 1):.1e}" for name in LIMITS]
        shown.add_row(layer, *relative, f"{measured['float64']['mean']:.1e}")
    return shown


def summary(certificate: Certificate) -> dict[str, str]:
    """Return the verdict of a certificate as rows."""
    counted = "{class}: {parameters:,} parameters in {parameter tensors} tensors, {buffers} buffers"
    rows = {name: counted.format(**certificate[name]) for name in ("source", "target")}
    for kind, equal in certificate.get("generation", {}).items():
        rows[f"{kind} generation"] = "the same tokens" if equal else "OTHER TOKENS"
    way_back = certificate["way back"]
    rows["way back"] = f"{len(way_back['different'])} of {way_back['tensors']} tensors differ"
    return {
        **rows,
        "verdict": "one model" if certificate["passed"] else "DIFFERENT: " + "; ".join(problems(certificate)),
    }
