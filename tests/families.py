"""Every official class that converts, at a tiny size: the rows of every test that compares with transformers."""

from typing import Any

import families_decoder
import families_encoder
import families_encoder_decoder
import families_image
from families_base import Family, Row

MODULES = (families_encoder, families_image, families_decoder, families_encoder_decoder)
FAMILIES: dict[str, Family] = {family.model_type: family for module in MODULES for family in module.FAMILIES}
ROWS = [
    *(row for family in FAMILIES.values() for row in family.rows()),
    *(row for module in MODULES for row in module.VARIANTS),
]
# Official classes without a counterpart of ours, and why.
LEFT_OUT: dict[str, str] = {}


def variant(architecture: str, head: str, name: str, wrong: dict[str, Any] | None = None, **fields: Any) -> Row:
    """A class of the architecture of that name at another config."""
    return FAMILIES[architecture].variant(head, name, wrong, **fields)
