"""Publish a model on the Hub, or in a folder, so that people load it without qkv."""

from argparse import Namespace
from collections import Counter
from dataclasses import fields

from rich.console import Console
from rich.filesize import decimal
from rich.table import Column, Table

from qkv.scripts.common.tables import print_table
from qkv.scripts.publishing.hub.options import Published, PublishOptions
from qkv.scripts.publishing.hub.publish import publish


def run(arguments: Namespace) -> None:
    """Publish, and print a table of the written files, or of all files in a dry run."""
    chosen = vars(arguments)
    options = {field.name: chosen[field.name] for field in fields(PublishOptions) if field.name in chosen}
    console = Console(stderr=True, quiet=not Console(stderr=True).is_terminal)
    done = publish(arguments.source, arguments.target, **options, step=lambda step: console.print(f"{step} …"))
    if arguments.dry_run:
        table = Table(*(Column(title, overflow="fold") for title in ("file", "size", "SHA-256", "on the Hub")))
        for change in done.changes:
            table.add_row(change.name, decimal(change.size), change.sha256 or "", change.state)
        Console().print(table)
    print_table("dry run, nothing was written" if arguments.dry_run else "published", summary(done, arguments))


def summary(done: Published, arguments: Namespace) -> dict[str, str]:
    """Return the summary as rows."""
    there = [change for change in done.changes if change.state != "deleted"]
    form = "as it was built" if done.as_built else "native" if arguments.native else "self-contained"
    rows = {"model": f"{arguments.source}, {form}"}
    rows |= {"folder": str(done.folder)} if done.folder else {"repository": arguments.target, "url": str(done.url)}
    rows["identity"] = done.identity
    rows |= {"signed": f"with {arguments.sign}"} if arguments.sign else {}
    rows["files"] = f"{len(there)}, {decimal(sum(change.size for change in there))}"
    if done.folder:
        return rows
    counts = Counter(change.state for change in done.changes)
    sent = decimal(sum(change.size for change in there if change.state != "same"))
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    rows["changes"] = f"{states}; {sent} {'to send' if arguments.dry_run else 'sent'}"
    if arguments.dry_run:
        return {**rows, "compared with": done.commit or "nothing: there is no such repository that you may see"}
    return {**rows, "revision": str(done.commit)} | ({"tag": arguments.tag} if arguments.tag else {})
