"""Report what was read for a training, and what was left out and why: on the screen, in the record and on the card."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHOWN = 12  # classes of a line


@dataclass
class ReadReport:
    """Findings of readers in own data. Counts are by reason, such as `label: missing`, or `boxes clipped`.

    Args:
        columns: Columns that were read.
        unused: Columns that were not.
        files: Files that were read, by ending.
        left_out: Rows and files that were left out.
        mended: Rows that were changed.
    """

    columns: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)

    def lines(self, data: Mapping[str, Any], skipped: Mapping[str, int], cut: str) -> dict[str, str]:
        """Return the lines of the table: `data` are the sizes and splits of a record, `skipped` counts bad records."""
        sizes = ", ".join(f"{name} {'streamed' if own is None else f'{own:,}'}" for name, own in data["sizes"].items())
        shared = (
            f"{name} shares {own['equal']:,} equal and {own['similar'] or 0:,} similar rows with train"
            for name, own in data.get("leaked", {}).items()
            if own["equal"] or own["similar"]
        )
        beyond = {"rows beyond text.evaluated": data.get("unscored", 0)}
        lines = {
            "examples": f"{sizes}; {data['split']}",
            "files": counted(self.files),
            "columns used": ", ".join(self.columns),
            "columns not used": ", ".join(self.unused),
            **{f"classes of {name}": counted(Counter(own)) for name, own in data.get("classes", {}).items()},
            **{f"tasks of {name}": counted(Counter(own)) for name, own in data.get("tasks", {}).items()},
            "images without objects": counted(Counter(data.get("without_objects", {}))),
            "questions without an answer": counted(Counter(data.get("unanswerable", {}))),
            "in two splits": "; ".join(shared),
            "left out": counted(self.left_out + Counter(skipped) + Counter(beyond)),
            "mended": counted(self.mended),
            "cut": cut,
        }
        return {name: text for name, text in lines.items() if text}


def counted(counts: Counter[str]) -> str:
    """Return counts by name, the greatest first."""
    shown = [f"{' '.join(name.split())} {count:,}" for name, count in counts.most_common(SHOWN)]
    return ", ".join(shown + [f"and {len(counts) - SHOWN:,} more"] * (len(counts) > SHOWN))
