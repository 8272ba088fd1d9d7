"""The table of heads: the task, inputs, targets, pipeline and Auto class of each."""

from dataclasses import dataclass, field

from qkv.scripts.common.files import table
from qkv.scripts.common.words import did_you_mean


@dataclass(frozen=True)
class Head:
    """A head, by the end of its architecture's name.

    Args:
        ending: End of the names of its classes, such as `ForCausalLM`.
        auto_class: Auto class that loads it.
        task: Task that `qkv train` and `qkv predict` know it by; empty for heads that are not trained by recipes.
        hub: The Hub's name of its task, for cards; None where the Hub has none.
        inputs: Kind of its inputs: text, choice, pair (image and text), image, scene, audio, or ctc (audio, frame by
            frame).
        targets: Names of its targets, each one for every row (B), token (T), pair of tokens (P), patch (N) or
            atom of a residue (A).
        has_pipeline: Whether transformers has a pipeline of the name of its task.
    """

    ending: str
    auto_class: str
    task: str = ""
    hub: str | None = None
    inputs: str = "text"
    targets: dict[str, str] = field(default_factory=dict)
    has_pipeline: bool = True

    @property
    def medium(self) -> str:
        """Return the kind of file or column that inputs come from: text, image or audio."""
        media = {"image": "image", "scene": "image", "pair": "image", "audio": "audio", "ctc": "audio"}
        return media.get(self.inputs, "text")


TABLES = table(__file__)
HEADS = tuple(Head(**row) for row in TABLES["heads"])
WORDS: dict[str, str] = TABLES["words"]
IMPLIED: dict[str, str] = TABLES["implied"]


def head_for(task: str) -> Head:
    """Return the first head of a task, by its name or our word; ValueError for an unknown one."""
    known = {head.task: head for head in reversed(HEADS) if head.task}
    if WORDS.get(task, task) not in known:
        raise ValueError(f"task={task!r} is not known; {did_you_mean(task, sorted({*known, *WORDS}), 'tasks')}")
    return known[WORDS.get(task, task)]


def head_of(architecture: str) -> Head:
    """Return the head of an architecture."""
    return next(head for head in HEADS if architecture.endswith(head.ending))


# The Hub's name of the task by Auto class, in the order in which a class of several Auto classes is loaded: bases last.
BASES = ("AutoModel", "AutoModelForTextEncoding")
HUB_TASKS = {head.auto_class: head.hub for head in sorted(HEADS, key=lambda head: head.auto_class in BASES)}
