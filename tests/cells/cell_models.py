"""A tiny model for every cell: a stack of a family with a position encoding, an attention pattern and a kernel."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, get_args

import torch
from slow_stack import QUERY_KEYS, Memory, Row, run_slowly
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

import qkv
import tables
from comparison import exact
from qkv.configuration.axes import (
    DisentangledPositionName,
    ImagePositionName,
    KernelName,
    ObjectQueryPositionName,
    PatchPositionName,
    PatternName,
)
from sampling import SEED as SEED
from tiny import jitter

AXES_OF_POSITIONS = (PatchPositionName, DisentangledPositionName, ImagePositionName, ObjectQueryPositionName)
POSITIONS = tuple(dict.fromkeys(word for axis in AXES_OF_POSITIONS for word in get_args(axis)))
PATTERNS, KERNELS = get_args(PatternName), get_args(KernelName)
TABLE = tables.beside(__file__)
SHAPE, REACH, VOCABULARY, PATCH = (TABLE[name] for name in ("shape", "reach", "vocabulary", "patch"))
LENGTHS, PROMPT, NEW = (11, 7), 8, 3
# Height and width of an image in pixels, and of a smaller one that is padded to its size.
PIXELS, FEWER_PIXELS = tuple(TABLE["pixels"]), (4, 6)
Batch = dict[str, Tensor]


class Cell(NamedTuple):
    """A stack, and the words that its config is given."""

    stack: str
    position: str
    pattern: str
    kernel: str


class Part(NamedTuple):
    """A stack of a model: its part of the config and its module, "" where it is the whole, and what it reads.

    `given` and `mask` are names of inputs, `memory` the part whose output it reads as well.
    """

    config: str
    module: str
    given: str
    mask: str = ""
    memory: str = ""


@dataclass(frozen=True)
class Family:
    """A model, its stacks in the order in which they run, and its config; `own` are fields of one part beside its words."""

    model: str
    parts: tuple[Part, ...]
    batches: tuple[Callable[[], Batch], ...]
    fields: dict[str, Any]
    own: dict[str, dict[str, Any]] = field(default_factory=dict)

    def batch(self) -> Batch:
        """Return two rows for the model."""
        return {name: value for make in self.batches for name, value in make().items()}

    @property
    def model_class(self) -> Any:
        return getattr(qkv, self.model)

    def configure(self, part: str, words: dict[str, Any]) -> PreTrainedConfig:
        """The config whose part has these words; ValueError where it is refused."""
        config_class = self.model_class.config_class
        known = (config_class.sub_configs[part] if part else config_class).known_fields()
        given = {**{name: value for name, value in REACH.items() if name in known}, **words}
        if not part:
            return config_class(**SHAPE, **self.fields, **given)
        parts = {**self.own, part: {**self.own.get(part, {}), **given}}
        return config_class(**SHAPE, **self.fields, **parts)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def marks(*lengths: int) -> Tensor:
    """Which tokens of two rows are real: (2, T)."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def text(prefix: str = "") -> Batch:
    """Rows of random tokens, of which the second ends earlier."""
    ids = torch.randint(2, VOCABULARY, (2, max(LENGTHS)))
    return {f"{prefix}input_ids": ids, f"{prefix}attention_mask": marks(*LENGTHS)}


def sound() -> Batch:
    """Spectrograms of which a convolution of stride 2 makes so many tokens."""
    frames = [2 * length - 1 for length in LENGTHS]
    return {"input_features": noise(2, max(frames), 3), "attention_mask": marks(*frames)}


def images() -> Batch:
    return {"pixel_values": noise(2, 3, *PIXELS)}


def padded_images() -> Batch:
    height, width = FEWER_PIXELS
    mask = torch.ones(2, *PIXELS, dtype=torch.long)
    mask[1, height:], mask[1, :, width:] = 0, 0
    return {**images(), "pixel_mask": mask}


BATCHES: dict[str, Callable[[], Batch]] = {
    "text": text,
    "decoder_text": partial(text, "decoder_"),
    "sound": sound,
    "images": images,
    "padded_images": padded_images,
}


def family(model: str, parts: list[list[str]], batch: list[str], **options: Any) -> Family:
    """Make a family of a row of the table."""
    return Family(model, tuple(itertools.starmap(Part, parts)), tuple(BATCHES[name] for name in batch), **options)


FAMILIES = {name: family(**row) for name, row in TABLE["families"].items()}
# Each stack of each family by its name, with what it is a part of.
STACKS = {
    f"{name}: {part.config}" if part.config else name: (family, part.config)
    for name, family in FAMILIES.items()
    for part in family.parts
}


def cells(stack: str) -> list[Cell]:
    """All cells of a stack."""
    return list(itertools.starmap(Cell, itertools.product([stack], POSITIONS, PATTERNS, KERNELS)))


def configure(cell: Cell) -> PreTrainedConfig:
    """The config of a cell; ValueError where it is refused."""
    family, part = STACKS[cell.stack]
    return family.configure(part, {"position": cell.position, "pattern": cell.pattern, "kernel": cell.kernel})


def build(cell: Cell, config: PreTrainedConfig) -> PreTrainedModel:
    """A model with random weights, every one of them its own, in double precision."""
    return jitter(STACKS[cell.stack][0].model_class(config)).double().eval()


def module_of(model: PreTrainedModel, part: Part) -> Any:
    return model.get_submodule(part.module)


def hidden_states(family: Family, model: PreTrainedModel, batch: Batch) -> dict[str, Tensor]:
    """Compute the last hidden states of every stack, by its module."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, inputs, output: outputs.__setitem__(name, output.last_hidden_state)

    handles = [module_of(model, part).register_forward_hook(keep(part.module)) for part in family.parts]
    with exact():
        model(**batch)
    for handle in handles:
        handle.remove()
    return outputs


def row_of(part: Part, batch: Batch, row: int) -> Tensor:
    """What a stack is given of one row, without padding: (1, ...)."""
    given = batch[part.given][row : row + 1]
    if part.mask == "pixel_mask":
        mask = batch[part.mask][row]
        return given[..., : int(mask[:, 0].sum()), : int(mask[0].sum())]
    return given[:, : int(batch[part.mask][row].sum())] if part.mask else given


def real_tokens(part: Part, batch: Batch, row: int, hidden: Tensor) -> Tensor:
    """The hidden states of a row that are not padding: (2, T, D) -> (1, tokens, D)."""
    if not part.mask:
        return hidden[row : row + 1]
    real = batch[part.mask][row].bool()
    if part.mask == "pixel_mask":
        real = real[::PATCH, ::PATCH].flatten()
    elif part.given == "input_features":
        real = real[::2]
    return hidden[row : row + 1, real]


def memory_of(stack: Any, hidden: Tensor, pixels: Tensor) -> Memory:
    """What cross-attention reads of a row: the output of the encoder and, in a detector, where its tokens lie."""
    if stack.config.position not in QUERY_KEYS:
        return Memory(hidden, torch.zeros_like(hidden))
    grid = (pixels.shape[-2] // PATCH, pixels.shape[-1] // PATCH)
    return Memory(hidden, QUERY_KEYS[stack.config.position](stack, Row(torch.arange(hidden.shape[1])[None], grid)))


def stack_errors(family: Family, model: PreTrainedModel, batch: Batch, outputs: dict[str, Tensor]) -> list[float]:
    """How far the hidden states of every stack (2, T, D) are from those of the slow loops, row by row."""
    errors = []
    for row in range(2):
        memories: dict[str, Memory] = {}
        for part in family.parts:
            memory, stack = memories.get(part.memory), module_of(model, part)
            given = memory.hidden if memory is not None and not part.given else row_of(part, batch, row)
            expected = run_slowly(stack, given, memory)
            actual = real_tokens(part, batch, row, outputs[part.module])
            assert actual.shape == expected.shape
            errors.append(float((actual - expected).abs().max()))
            memories[part.config] = memory_of(stack, actual, given)
    return errors
