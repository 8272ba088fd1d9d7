"""Kinds of task and of input that a card names, by the Hub's words."""

from qkv.scripts.common.heads import HUB_TASKS
from qkv.scripts.common.resources import table

TABLES = table(__file__)
# Fields of configs, by which the kind of input is known.
FRONTENDS: dict[str, str] = TABLES["frontends"]
IMAGE_FEATURES: str = TABLES["image features"]
KINDS = sorted({task for task in HUB_TASKS.values() if task} | {IMAGE_FEATURES, *TABLES["other tasks"]})
