"""Publish a model on the Hub, or in a folder, so that people load it without qkv."""

from argparse import Namespace
from collections import Counter
from dataclasses import fields

from huggingface_hub import constants
from huggingface_hub.utils.tqdm import enable_progress_bars
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from qkv.scripts.common.tables import print_table
from qkv.scripts.publishing.hub.options import Published, PublishOptions
from qkv.scripts.publishing.hub.publish import publish


def run(arguments: Namespace) -> None:
    """Publish, and print a table of what was written."""
    given = vars(arguments)
    options = {field.name: given[field.name] for field in fields(PublishOptions) if field.name in given}
    done = publish(arguments.source, arguments.target, **options, step=announce)
    if arguments.dry_run:
        Console().print(listed(done))
    print_table("dry run, nothing was written" if arguments.dry_run else "published", summary(done, arguments))


def announce(step: str) -> None:
    """Print the next step to a terminal, and let the library show its progress."""
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(f"{step} …", highlight=False)
        # At each step, for loading a model turns them off.
        if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
            enable_progress_bars()


def listed(done: Published) -> Table:
    """Return a table of all files and their states."""
    table = Table()
    for title in ("file", "size", "SHA-256", "on the Hub"):
        # A name that is cut off is of no use.
        table.add_column(title, overflow="fold")
    for change in done.changes:
        table.add_row(change.name, decimal(change.size), change.sha256 or "", change.state)
    return table


def summary(done: Published, arguments: Namespace) -> dict[str, str]:
    """Return the summary as rows."""
    held = [change for change in done.changes if change.state != "deleted"]
    form = "as it was built" if done.as_built else "native" if arguments.native else "self-contained"
    rows = {"model": f"{arguments.source}, {form}"}
    rows |= {"folder": str(done.folder)} if done.folder else {"repository": arguments.target, "url": str(done.url)}
    rows["identity"] = done.identity
    rows |= {"signed": f"with {arguments.sign}"} if arguments.sign else {}
    rows["files"] = f"{len(held)}, {decimal(sum(change.size for change in held))}"
    if done.folder:
        return rows
    counts = Counter(change.state for change in done.changes)
    sent = sum(change.size for change in held if change.state != "same")
    rows["changes"] = (
        ", ".join(f"{count} {state}" for state, count in counts.items())
        + f"; {decimal(sent)} "
        + ("to send" if arguments.dry_run else "sent")
    )
    if arguments.dry_run:
        return {**rows, "compared with": done.commit or "nothing: there is no such repository that you may see"}
    return {**rows, "revision": str(done.commit)} | ({"tag": arguments.tag} if arguments.tag else {})
