"""Draw a model from its config as SVG: towers of boxes, read from the input at the bottom up.

Written by hand, for there are only boxes, lines and texts, which stay texts: they can be searched and restyled.
"""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from qkv.scripts.architecture.towers import Box, Layers, Role, Tower, towers_of
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.tables import scaled
from qkv.scripts.planning.planned_model import PlannedModel

# Fill and outline by role, as in modeling/architecture.svg.
COLOURS: dict[Role, tuple[str, str]] = {
    "input": ("#ffffff", "#9aa5b1"),
    "embedding": ("#fff7e0", "#d9a520"),
    "norm": ("#f3f4f6", "#9aa5b1"),
    "attention": ("#e3f0ff", "#2f6fb3"),
    "mlp": ("#f1e8ff", "#7a4fb5"),
    "recurrent": ("#e3f0ff", "#2f6fb3"),
    "head": ("#dff5e5", "#2b8a4b"),
}
STYLE = (
    'text{font-family:Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1f2933;text-anchor:middle}'
    ".t{font-size:16px;font-weight:bold}.n{font-size:13px;font-weight:bold;fill:#52606d}.b{font-size:13px}"
    ".s{font-size:11px;fill:#3e4c59}.a{fill:none;stroke:#3e4c59;stroke-width:1.3}"
    ".e{text-anchor:start}.f{fill:none;stroke:#9aa5b1;stroke-dasharray:5 4}"
)
ARROW = (
    '<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#3e4c59"/></marker></defs>'
)
# Pixels: a box, the gap above it, a tower with what is beside its boxes, the margin, a frame's own, the title's.
WIDTH, HEIGHT, THIN, GAP, TOWER, MARGIN, FRAME, TITLE = 236, 40, 24, 18, 330, 24, 14, 48
PLUS = 8  # the radius of a sum
# Characters that a box has room for in its second line, and the pixels of one in the title.
LONGEST, CHARACTER = 40, 10


def check_format(path: Path) -> None:
    """Raise ValueError for a file that is no SVG by its name."""
    if path.suffix.lower() != ".svg":
        raise ValueError(f"--out={path} must end in .svg, as the model is drawn in that format")


def draw(model: PlannedModel, parameters: int, path: Path) -> None:
    """Draw a model; the file appears whole."""
    name, count = Path(model.name).name or model.name, scaled(parameters, "").strip()
    title = f"{name}: {model.model_class.__name__}, {count} parameters"
    write_atomically(path, svg(title, towers_of(model.config, model.model_class)))


def svg(title: str, towers: list[Tower]) -> str:
    """Return the figure of towers side by side."""
    heights = [sum(height_of(item) + GAP for item in tower.items) for tower in towers]
    floor = TITLE + max(heights) + MARGIN
    width, height = max(TOWER * len(towers), CHARACTER * len(title)) + 2 * MARGIN, floor + MARGIN + 8
    left = (width - TOWER * len(towers)) / 2
    canvases = [Canvas(left + TOWER * (index + 0.5), floor).tower(tower) for index, tower in enumerate(towers)]
    parts = [part for canvas in canvases for part in canvas.parts]
    for before, after in zip(canvases, canvases[1:], strict=False):
        parts += connected(before, after)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">'
    )
    background = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    heading = f'<text x="{width / 2}" y="30" class="t">{escape(title)}</text>'
    return "\n".join([head, f"<style>{STYLE}</style>", ARROW, background, heading, *parts, "</svg>", ""])


def height_of(item: Box | Layers) -> int:
    """Return the height of a box, or of a frame with branches and sums."""
    if isinstance(item, Box):
        return HEIGHT if item.detail else THIN
    inside = sum(height_of(box) + GAP for branch in item.branches for box in branch)
    after = (2 * PLUS + GAP) * item.residual + (height_of(item.after) + GAP if item.after else 0)
    return inside + after * len(item.branches) + FRAME


@dataclass
class Canvas:
    """The drawing of a tower around the line at `x`, from `y` upwards; `memories` are the boxes that read another's."""

    x: float
    y: float
    parts: list[str] = field(default_factory=list)
    memories: list[float] = field(default_factory=list)

    def tower(self, tower: Tower) -> "Canvas":
        """Draw a tower from its input up."""
        if tower.name:
            self.parts.append(f'<text x="{self.x}" y="{self.y + 22}" class="n">{escape(tower.name)}</text>')
        for number, item in enumerate(tower.items):
            if number:
                self.rise()
            if isinstance(item, Box):
                self.box(item)
            else:
                self.layers(item)
        return self

    def rise(self) -> None:
        """Draw the arrow to what comes next."""
        self.parts.append(f'<path d="M{self.x} {self.y} V{self.y - GAP}" class="a" marker-end="url(#m)"/>')
        self.y -= GAP

    def box(self, box: Box) -> None:
        """Draw a box and its texts."""
        height, (fill, stroke) = height_of(box), COLOURS[box.role]
        self.y -= height
        self.parts.append(
            f'<rect x="{self.x - WIDTH / 2}" y="{self.y}" width="{WIDTH}" height="{height}" rx="6" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )
        self.parts.append(f'<text x="{self.x}" y="{self.y + 17}" class="b">{escape(box.text)}</text>')
        if box.detail:
            # A long line is squeezed into the box.
            fit = f' textLength="{WIDTH - 12}" lengthAdjust="spacingAndGlyphs"' if len(box.detail) > LONGEST else ""
            self.parts.append(f'<text x="{self.x}" y="{self.y + 33}" class="s"{fit}>{escape(box.detail)}</text>')
        if box.memory:
            self.memories.append(self.y + height / 2)

    def layers(self, layers: Layers) -> None:
        """Draw a frame with the branches of a layer, and how often it stands there."""
        bottom = self.y
        self.y -= FRAME / 2
        self.line(bottom)
        for number, branch in enumerate(layers.branches):
            start = self.y
            for place, box in enumerate(branch):
                if number or place or layers.residual:
                    self.rise()
                self.box(box)
            if layers.residual:
                self.sum(start)
            if layers.after:
                self.rise()
                self.box(layers.after)
        top = self.y - FRAME / 2
        self.line(top)
        left, width = self.x - WIDTH / 2 - 30, WIDTH + 44
        self.parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{bottom - top}" rx="10" class="f"/>')
        self.parts.append(f'<text x="{left + width + 6}" y="{bottom - 6}" class="n e">x{layers.times}</text>')
        self.y = top

    def line(self, end: float) -> None:
        """Draw a line from here to a height."""
        self.parts.append(f'<path d="M{self.x} {self.y} V{end}" class="a"/>')

    def sum(self, start: float) -> None:
        """Draw the residual connection from the start of a branch around it, and the sum where it comes back."""
        self.rise()
        middle, left = self.y - PLUS, self.x - WIDTH / 2 - 16
        self.parts.append(
            f'<path d="M{self.x} {start - 4} H{left} V{middle} H{self.x - PLUS}" class="a" marker-end="url(#m)"/>'
            f'<circle cx="{self.x}" cy="{middle}" r="{PLUS}" fill="#fff" class="a"/>'
            f'<path d="M{self.x - 4} {middle} h8 M{self.x} {middle - 4} v8" class="a"/>'
        )
        self.y -= 2 * PLUS


def connected(before: Canvas, after: Canvas) -> list[str]:
    """Draw what a tower gives to the one beside it: to each box that reads it, or else to its end."""
    edge, top = before.x + TOWER / 2 + 2, before.y - GAP
    paths = []
    for place in after.memories:
        end = after.x - WIDTH / 2
        paths.append(
            f'<path d="M{before.x} {before.y} V{top} H{edge} V{place} H{end}" class="a" marker-end="url(#m)"/>'
        )
    if not after.memories:  # both are read by the head, the last box of the other
        place = after.y + HEIGHT / 2
        paths.append(
            f'<path d="M{before.x} {before.y} V{place} H{after.x - WIDTH / 2}" class="a" marker-end="url(#m)"/>'
        )
    return paths
