"""The commands of the lab and their arguments, as those of the package in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path

from qkv.scripts.arguments import Program, add_recipe

ROUNDS = 10
DEVICES = ("cpu", "cuda")
PRECISIONS = ("float32", "bfloat16")


def benchmark(parser: ArgumentParser) -> None:
    """Time training, encoding, decoding and loading against what people would use instead.

    Every contender has the same weights, and must have the same outputs, loss and gradients before anything is timed.
    Then they take turns, so that each round compares them under the same conditions. Printed are medians, the ratio
    to transformers in the same round, its range, the share of what this machine can do, and peak memory.

    WORKLOAD is a name, a pattern or how names begin: `decode-small-1`, `*-base-*`, `mlm`. Without one all are run,
    which takes hours on a CPU; --list names them.

    Example: python -m qkv.scripts.lab benchmark mlm-train-small-128 decode-small --rounds 10 --json times.json
    """
    parser.add_argument("workloads", nargs="*", default=[], metavar="WORKLOAD", help="what is timed (all)")
    parser.add_argument("--contenders", nargs="+", default=[], metavar="NAME", help="who is timed (all that are here)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"laps of each ({ROUNDS})")
    parser.add_argument("--seconds", type=float, metavar="S", help="start no further lap after so long (on a GPU 30)")
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a batch (the workload's; a GPU wants more)")
    parser.add_argument("--device", choices=DEVICES, help="where (the GPU, if there is one)")
    parser.add_argument("--dtype", choices=PRECISIONS, help="precision (float32, on a GPU bfloat16)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and batches (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to a file, too")
    folder = "write record, page and plot there; workloads in it that were measured before stay"
    parser.add_argument("--page", type=Path, metavar="FOLDER", help=folder)
    parser.add_argument("--list", action="store_true", help="list workloads and contenders, and run nothing")


def compare(parser: ArgumentParser) -> None:
    """Train a recipe and its stock model, if there is one, from several seeds, and put both on the card.

    All see the same data and take as many steps, but for what --also says. Our model of the first seed is completed
    as by `qkv quickstart`: figures, card, and the folder loaded without qkv.

    Example: python -m qkv.scripts.lab compare docs-classify --also pre-trained init=runs/mlm --seeds 0 1
    """
    add_recipe(parser, "a recipe (qkv recipes lists them) or a YAML file; with --help: its fields")
    help = "name and key=value overrides of another model to compare with; may be repeated"
    parser.add_argument("--also", nargs="+", action="append", default=[], metavar=("NAME", "key=value"), help=help)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds to train each model from")
    parser.add_argument("--no-stock", action="store_true", help="leave out the model of stock transformers")


def compare_history(parser: ArgumentParser) -> None:
    """Compare an RNN, an RNN with attention and a Transformer, and test the claims about them.

    Measures quality, time, gradients and activations by length, and what attention with and without a window, linear
    attention and recurrence cost on up to 65,536 tokens. Writes a record, pictures, and a page with the documents'
    claims beside what was measured.

    Example: python -m qkv.scripts.lab compare-history --out runs/history
    """
    parser.add_argument("--out", type=Path, default=Path("runs/history"), help="folder of the results")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the data (0)")
    parser.add_argument(
        "--quick", action="store_true", help="take seconds instead of a quarter of an hour; the results mean nothing"
    )
    parser.add_argument("--steps", action="store_true", help="time training steps again, into the record in OUT")
    help = "measure the costs of long texts again, into the record in OUT"
    parser.add_argument("--lengths", action="store_true", help=help)
    parser.add_argument("--page", action="store_true", help="write page and figures again from the record in OUT")


def overhead(parser: ArgumentParser) -> None:
    """Time the steps of a training beside bare ones of torch on the same batches, and compare their weights.

    Example: python -m qkv.scripts.lab overhead docs-lm --rounds 30 workers=1
    """
    add_recipe(parser, "a recipe (qkv recipes lists them) or a YAML file; with --help: its fields")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"steps of each ({ROUNDS})")


def card(parser: ArgumentParser) -> None:
    """Write the model card of a finished run again, from its record alone.

    Example: python -m qkv.scripts.lab card runs/first
    """
    help = "a run folder, whose README.md it becomes, or a record file, beside which card.md is written"
    parser.add_argument("record", type=Path, nargs="?", help=help)
    parser.add_argument("--all", action="store_true", help="every record in model_cards")


def conform_stock(parser: ArgumentParser) -> None:
    """Check classes of transformers by `qkv conform`, and write model_cards/CONFORM.md.

    Without names, those of conform_stock.yaml that the record lacks.

    Example: python -m qkv.scripts.lab conform-stock BertForMaskedLM
    """
    parser.add_argument("classes", nargs="*", default=[], metavar="CLASS", help="checked again, too (all that lack)")
    parser.add_argument("--page", action="store_true", help="write the page again, from record and verdicts")


LAB = Program(
    "python -m qkv.scripts.lab",
    "qkv.scripts.lab",
    {
        "compare": compare,
        "compare-history": compare_history,
        "card": card,
        "benchmark": benchmark,
        "overhead": overhead,
        "conform-stock": conform_stock,
    },
)
