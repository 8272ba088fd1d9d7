"""The commands of the lab and their arguments, as those of the package in scripts/arguments.py."""

from qkv.scripts.arguments import Program
from qkv.scripts.common.files import table

LAB = Program("python -m qkv.scripts.lab", "qkv.scripts.lab", table(__file__))
