"""The arguments of `qkv demo`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path

PORT = 7860  # that of Gradio, and of a Space unless its header says otherwise
HOST = "127.0.0.1"


def demo(parser: ArgumentParser) -> None:
    """Serve a web page on which a person tries a model, and sees its attention.

    SOURCE is a run, a model folder or a Hub id. The page takes what the model reads: a text, a drawing or an image, a
    recording from a file or the microphone. It needs nothing from the network, and is served to this machine alone
    unless `--host` says otherwise; whoever reaches another host may use the model. `--space` writes a folder instead,
    that a Space of the Hub runs.

    Example: qkv demo runs/first --port 8000
    """
    parser.add_argument("source", metavar="SOURCE", help="a run, a model folder or a Hub id")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"of the page ({PORT}); 0 is any free one")
    parser.add_argument("--host", default=HOST, help=f"address to listen on ({HOST}); 0.0.0.0 is everybody")
    help = "write a folder for a Space of the Hub instead, new or empty"
    parser.add_argument("--space", type=Path, metavar="FOLDER", help=help)
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code of a model")
