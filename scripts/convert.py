"""Turn an official checkpoint into a qkv model, or a qkv model into a stock transformers one."""

from argparse import Namespace

from rich.console import Console
from rich.table import Table

from qkv.modeling.conversion.convert import is_ours
from qkv.modeling.conversion.files import located, named
from qkv.scripts.common.files import check_empty, staged
from qkv.scripts.common.tables import file_rows, print_table
from qkv.scripts.conversion.certificate import LIMITS, Certificate, problems
from qkv.scripts.conversion.checkpoint import convert_checkpoint


def run(arguments: Namespace) -> None:
    """Convert, and print the certificate and the files; RuntimeError, and nothing written, when the check fails."""
    check_empty(arguments.target)
    source = located(arguments.source, arguments.revision)
    kind, other = ("qkv", "stock") if is_ours(source) else ("stock", "qkv")
    if arguments.to == kind or (arguments.to not in (None, "qkv") and kind == "stock"):
        raise ValueError(f"{arguments.source} is a {kind} checkpoint already; leave --to out to convert it")
    with staged(arguments.target) as folder:
        certificate = convert_checkpoint(
            source,
            folder,
            dtype=arguments.dtype,
            max_shard_size=arguments.max_shard_size,
            model_type=None if arguments.to == other else arguments.to,
            command=arguments.words if arguments.check else None,
        )
        if certificate and problems(certificate) and not arguments.force:
            raise RuntimeError(
                f"{arguments.target} is not written, for it is another model: {'; '.join(problems(certificate))}; "
                "--force writes it all the same"
            )
    if certificate:
        Console().print(table(certificate))
    title = f"{named(source)[1]} -> {named(arguments.target)[1]}"
    print_table(title, {**(summary(certificate) if certificate else {}), **file_rows(arguments.target)})


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
    rows["verdict"] = "one model" if certificate["passed"] else "DIFFERENT: " + "; ".join(problems(certificate))
    return rows
