"""Generate text after a prompt: token by token on a terminal, or for every row of a table."""

import sys
from argparse import Namespace
from typing import Any

from transformers import TextStreamer, set_seed

from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.words import either
from qkv.scripts.predict import check_columns, predict_table
from qkv.scripts.prediction.generation import stream_text
from qkv.scripts.prediction.inputs import read_input
from qkv.scripts.prediction.outputs import check_out, show, write_table
from qkv.scripts.prediction.predictor import reader_of
from qkv.scripts.prediction.source import Source, open_source

WRITERS = ("text-generation", "translation")  # the tasks whose models write texts


def run(arguments: Namespace) -> None:
    """Generate, and print the text, or write the rows of a table with theirs."""
    options = arguments.options
    if arguments.input is None:
        raise ValueError('give a prompt between quotation marks, as in "Once upon a time", a file or a table')
    check_out(arguments.out, arguments.input)
    source = open_source(arguments.source, arguments.revision, trust_remote_code=arguments.trust_remote_code)
    if source.task not in WRITERS:
        raise ValueError(
            f"{source.name} is for {source.task}, and generate for {either(WRITERS)}; its answers come from "
            f"qkv predict {source.name} INPUT"
        )
    table = read_input(arguments.input, source, options)
    reader_of(table, source, options)
    check_columns(table)
    with phase(f"loading {source.name}"):
        _ = source.model
    set_seed(options.get("seed", 0))
    if arguments.out is None and table.path is None and len(table.rows) == 1:
        print_text(source, table.rows[0]["text"], options)
        return
    columns = predict_table(table, source, options)
    if arguments.out is None:
        show(columns, table.rows, hint="--out rows.csv writes all")
        return
    write_table(arguments.out, columns, table.rows, table.path)
    say(f"{len(table.rows):,} rows with their texts are in {arguments.out}")


def print_text(source: Source, prompt: str, options: dict[str, Any]) -> None:
    """Print a prompt and its continuation, or a translation alone; on a terminal token by token."""
    start = prompt if source.task == "text-generation" else ""
    if sys.stdout.isatty() and options.get("num_beams", 1) == 1:
        print(start, end="", flush=True)
        stream_text(source, prompt, options, TextStreamer(source.tokenizer, skip_prompt=True, skip_special_tokens=True))
    else:
        print(start + stream_text(source, prompt, options, None))
