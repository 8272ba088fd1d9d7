"""The arguments of `qkv benchmark`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path

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

    Example: qkv benchmark mlm-train-small-128 decode-small --rounds 10 --json times.json
    """
    parser.add_argument("workloads", nargs="*", default=[], metavar="WORKLOAD", help="what is timed (all)")
    parser.add_argument("--contenders", nargs="+", default=[], metavar="NAME", help="who is timed (all that are here)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"laps of each ({ROUNDS})")
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a batch (the workload's; a GPU wants more)")
    parser.add_argument("--device", choices=DEVICES, help="where (the GPU, if there is one)")
    parser.add_argument("--dtype", choices=PRECISIONS, help="precision (float32, on a GPU bfloat16)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and batches (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to a file, too")
    folder = "write record, page and plot there; workloads in it that were measured before stay"
    parser.add_argument("--page", type=Path, metavar="FOLDER", help=folder)
    parser.add_argument("--list", action="store_true", help="list workloads and contenders, and run nothing")
