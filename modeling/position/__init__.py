"""Position encodings: what `config.position` can say, each acting in one of the four places of `hooks.py`."""

from .absolute import ABSOLUTE_POSITIONS
from .detection import DETECTION_POSITIONS
from .hooks import Position
from .relative import RELATIVE_POSITIONS

POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    **ABSOLUTE_POSITIONS,
    **RELATIVE_POSITIONS,
    **DETECTION_POSITIONS,
}
