"""Publish a model on the Hub, or in a folder, so that people load it without qkv."""

from argparse import Namespace
from dataclasses import fields

from rich.console import Console
from rich.filesize import decimal

from qkv.scripts.common.tables import print_table
from qkv.scripts.publishing.hub.options import Published, PublishOptions
from qkv.scripts.publishing.hub.publish import publish


def run(arguments: Namespace) -> None:
    """Publish, and print a summary."""
    chosen = vars(arguments)
    options = {field.name: chosen[field.name] for field in fields(PublishOptions) if field.name in chosen}
    console = Console(stderr=True, quiet=not Console(stderr=True).is_terminal)
    done = publish(arguments.source, arguments.target, **options, step=lambda step: console.print(f"{step} …"))
    print_table("published", summary(done, arguments))


def summary(done: Published, arguments: Namespace) -> dict[str, str]:
    """Return the summary as rows."""
    form = "as it was built" if done.as_built else "native" if arguments.native else "self-contained"
    rows = {"model": f"{arguments.source}, {form}"}
    rows |= {"folder": str(done.folder)} if done.folder else {"repository": arguments.target, "url": str(done.url)}
    rows |= {"identity": done.identity, "files": f"{len(done.files)}, {decimal(sum(done.files.values()))}"}
    rows |= {"signed": f"with {arguments.sign}"} if arguments.sign else {}
    rows |= {"revision": done.commit} if done.commit else {}
    return rows | ({"tag": arguments.tag} if arguments.tag else {})
