"""The arguments of `qkv plan`, known without torch."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Literal, get_args

from qkv.scripts.common.words import positive

Strategy = Literal["ddp", "fsdp2", "tp"]
Precision = Literal["fp32", "bf16"]


def plan(parser: ArgumentParser) -> None:
    """Predict the parameters of a model, and the memory and traffic of each device in its training.

    One step runs on fake tensors, so no weights are allocated and no device is needed. Memory is the peak of the step's
    tensors, without the workspaces of kernels, the context of a device and fragmentation.

    Example: qkv plan llama_3_2_1b --world-size 8,64,512 --strategy ddp,fsdp2,tp --batch 4 --length 2048
    """
    parser.add_argument("subject", metavar="RECIPE|PRESET|FOLDER", help="the model to plan")
    help = "a field of the recipe or of the config, and its value"
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=help)
    parser.add_argument("--world-size", default="1", metavar="N,…", help="number of devices (1), or several numbers")
    words = f"sharing of the work by devices (ddp): {', '.join(get_args(Strategy))}, or several of these"
    parser.add_argument("--strategy", default="ddp", metavar="WORD,…", help=words)
    parser.add_argument("--batch", type=positive, metavar="N", help="micro-batch size per device (the recipe's, or 1)")
    parser.add_argument("--length", type=positive, metavar="N", help="tokens of a text (up to 1024)")
    parser.add_argument("--precision", choices=get_args(Precision), help="fp32 or bf16 (the recipe's, or bf16)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
