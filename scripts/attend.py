"""Write the page that shows which tokens attend to which in a model for an input."""

from argparse import Namespace

from qkv.scripts.attention_view.view import attend, page_path
from qkv.scripts.common.phases import say


def run(arguments: Namespace) -> None:
    """Write the page, and say where it is and which parts of the input are not in it."""
    if arguments.input is None:
        raise ValueError('give an input: a text between quotation marks, as in "twenty-one", a picture or a recording')
    out = page_path(arguments.out)
    options = arguments.options | {"revision": arguments.revision, "trust_remote_code": arguments.trust_remote_code}
    options |= {key: numbers_of(key, options[key]) for key in ("layers", "heads") if key in options}
    view = attend(arguments.source, arguments.input, **options)
    for note in view.save(out):
        say(note)
    print(*filter(None, [view.answer, f"{out}: {out.stat().st_size:,} bytes"]), sep="\n")


def numbers_of(key: str, text: str) -> list[int]:
    """Return the numbers in a text such as 0,5,-1; ValueError for any other text."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{key}={text} are no numbers between commas; write for example {key}=0,-1") from None
