"""Show which tokens attend to which in a model for an input: a page, or a figure."""

from argparse import Namespace
from pathlib import Path

from qkv.scripts.attention_view.arguments import FORMATS
from qkv.scripts.attention_view.view import attend_source
from qkv.scripts.common.phases import say
from qkv.scripts.common.words import either


def run(arguments: Namespace) -> None:
    """Write the page or the figure, and say where it is and which parts of the input are not in it."""
    if arguments.input is None:
        raise ValueError('give an input: a text between quotation marks, as in "twenty-one", a picture or a recording')
    out = path_of(arguments.out, arguments.format)
    options = arguments.options | {"revision": arguments.revision, "trust_remote_code": arguments.trust_remote_code}
    view = attend_source(arguments.source, arguments.input, options)
    for note in view.save(out):
        say(note)
    print(*filter(None, [view.answer, f"{out}: {out.stat().st_size:,} bytes"]), sep="\n")


def path_of(out: Path | None, form: str | None) -> Path:
    """Return the file that is written; ValueError for an ending of another format, or a missing folder."""
    path = Path(f"attention.{form or FORMATS[0]}") if out is None else out.expanduser()
    endings = [f".{each}" for each in ([form] if form else FORMATS)]
    if path.suffix.lower() not in endings:
        raise ValueError(f"--out={path} must end in {either(endings)}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--out={path}: there is no folder {path.absolute().parent}; make it, or name another")
    return path
