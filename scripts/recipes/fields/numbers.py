"""The numbers of recipes: whole or not, and the values that they may take."""

from dataclasses import dataclass
from math import isinf
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """The values that a number may take: from `least` on, or above it; a share stays below 1, for a reason."""

    least: float = 0
    above: bool = False
    share: str = ""

    def check(self, key: str, value: float) -> None:
        """Raise ValueError for a number out of range."""
        if isinf(value):
            raise ValueError(f"{key}={value} must be finite")
        if value < self.least or (self.above and value == self.least):
            bound = "0 or more" if self.least == 0 else f"at least {self.least:g}"
            raise ValueError(f"{key}={value} must be {'above 0' if self.above else bound}")
        if self.share and value >= 1:
            raise ValueError(f"{key}={value} {self.share}")


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range()]
NonNegative = Annotated[float, Range()]
Positive = Annotated[float, Range(above=True)]
