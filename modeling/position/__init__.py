"""Position encodings: the words of `config.position`, each acting in one of the four hooks of `hooks.py`."""

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
