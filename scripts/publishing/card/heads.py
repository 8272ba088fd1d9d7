"""The Hub's name of the task of each head, by the Auto class that loads it."""

from qkv.scripts.common.resources import table

TABLES = table(__file__)
# The first Auto class that knows an official class is the one it is loaded with.
HEADS: dict[str, str | None] = TABLES["heads"]
# Fields of configs, by which the kind of input is known.
FRONTENDS: dict[str, str] = TABLES["frontends"]
IMAGE_FEATURES: str = TABLES["image features"]
KINDS = sorted({task for task in HEADS.values() if task} | {IMAGE_FEATURES, *TABLES["other tasks"]})
