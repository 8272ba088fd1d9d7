"""The numbers of recipes, and the values that they may take."""

from dataclasses import dataclass
from math import inf
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """The values of a number: from `least` on, or above it, and less than `below`."""

    least: float = 0
    above: bool = False
    below: float = inf

    def check(self, key: str, value: float) -> None:
        """Raise ValueError for a number out of range, or infinite."""
        if not self.least <= value < self.below or (self.above and value == self.least):
            end = "finite" if self.below == inf else f"below {self.below:g}"
            raise ValueError(f"{key}={value} must be {'above' if self.above else 'at least'} {self.least:g} and {end}")


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range()]
NonNegative = Annotated[float, Range()]
Positive = Annotated[float, Range(above=True)]
Share = Annotated[float, Range(below=1)]
PositiveShare = Annotated[float, Range(above=True, below=1)]
