"""Generate text after a prompt: token by token on a terminal, or for every row of a table."""

import sys
from argparse import Namespace

from transformers import TextStreamer, set_seed

from qkv.scripts.data.examples import InvalidRecord, attempt
from qkv.scripts.predict import predict_table, prepare
from qkv.scripts.prediction.generation import generate_texts
from qkv.scripts.prediction.predictor import reader_of


def run(arguments: Namespace) -> None:
    """Generate, and print the text, or write the rows of a table with theirs."""
    source, table = prepare(arguments, tasks=("text-generation", "translation"))
    options = arguments.options
    set_seed(options.get("seed", 0))
    if arguments.out is not None or table.path is not None or table.count > 1:
        predict_table(arguments, source, table)
        return
    prompt = attempt(reader_of(table, source, options), next(iter(table.rows())))
    if isinstance(prompt, InvalidRecord):
        raise ValueError(f"the prompt cannot be used: {prompt}")
    start = prompt if source.task == "text-generation" and isinstance(prompt, str) else ""
    if sys.stdout.isatty() and options.get("num_beams", 1) == 1:
        print(start, end="", flush=True)
        streamer = TextStreamer(source.tokenizer, skip_prompt=True, skip_special_tokens=True)
        generate_texts(source, [prompt], options, streamer)
    else:
        print(start + generate_texts(source, [prompt], options)[0])
