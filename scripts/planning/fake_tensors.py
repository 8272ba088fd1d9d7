"""Stand-ins on fake tensors for operations whose shapes depend on data, or whose kernels a CPU alone has."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, autograd, distributed
from torch.distributed import _functional_collectives as collectives
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from qkv.modeling.fast_paths import varlen
from qkv.modeling.heads import language_modeling, loss, matching

aten = torch.ops.aten


def match_in_order(logits: Tensor, boxes: Tensor, objects: matching.Objects, config: Any) -> matching.Pairs:
    """Match object query i with object i: as many pairs as the cheapest matching, which scipy finds by numbers."""
    indices = [torch.arange(len(labels["boxes"])) for labels in objects]
    return list(zip(indices, indices, strict=True))


def gather_equal_batches(images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor, int]:
    """Gather the pairs of all processes without asking how many each has."""
    if not loss.together():
        return images, texts, 0
    group: Any = distributed.group.WORLD
    gathered = collectives.all_gather_tensor_autograd(torch.stack((images, texts), 1), 0, group)
    all_images, all_texts = gathered.unbind(1)
    return all_images, all_texts, 0


def fused_dropout(hidden: Tensor, p: float, *flags: bool, **named: bool) -> Tensor:
    """Drop units as GPUs do in training: in one kernel, which keeps a mask of a byte for each unit."""
    return torch.native_dropout(hidden, p, train=True)[0] if p else hidden


def index_all(values: Tensor, indices: list[Any]) -> Tensor | None:
    """Choose all values where a boolean mask chooses; None for other indices."""
    mask = len(indices) == 1 and indices[0].dtype == torch.bool and indices[0].shape == values.shape
    return values.flatten().clone() if mask else None


def ctc_loss(scores: Tensor, labels: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Return the shapes of CTC's loss by row, and of its forward variables by frame and label, blanks between them."""
    frames, rows, _ = scores.shape
    return scores.new_empty(rows), scores.new_empty(rows, frames, 2 * (labels.numel() // rows) + 1)


def ctc_loss_backward(gradient: Tensor, scores: Tensor, *others: Any) -> Tensor:
    """Return the shape of the gradient of all scores."""
    return torch.empty_like(scores)


def is_not_sharded(head: Any, decoder: Any, hidden: Tensor) -> bool:
    """Return True for the weight of a linear map that each device has whole, whose loss GPUs compute without logits."""
    return not isinstance(decoder.weight, DTensor)


class AttentionOfDocuments(autograd.Function):
    """The shapes of attention inside documents, and the tensors that its kernel keeps for the backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mixed, sums = torch.empty_like(query), query.new_empty(query.shape[:2], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, mixed, sums)
        return mixed

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(torch.empty_like, ctx.saved_tensors[:3]))


def attend_in_documents(query: Tensor, key: Tensor, value: Tensor, *sizes: Any, **options: Any) -> Tensor:
    """Take the place of `varlen_attn`."""
    return cast(Tensor, AttentionOfDocuments.apply(query, key, value))


# oneDNN, which no GPU has, would run an LSTM in one operator whose products cannot be counted.
STAND_INS: tuple[tuple[Any, str, Any], ...] = (
    (matching, "matched", match_in_order),
    (loss, "gather_pairs", gather_equal_batches),
    (torch.backends.mkldnn, "enabled", False),
    (functional, "dropout", fused_dropout),
    (language_modeling, "is_on_host", lambda hidden: False),
    (language_modeling, "is_weight_alone", is_not_sharded),
    (varlen, "VARLEN_KERNELS", {"cpu": varlen.VarlenKernel(attend_in_documents, (torch.bfloat16,), 0)}),
)
# Operators that look at numbers.
OPERATORS: dict[Any, Callable[..., Any]] = {
    aten.index.Tensor: index_all,
    aten._ctc_loss.Tensor: ctc_loss,
    aten._ctc_loss_backward.Tensor: ctc_loss_backward,
}


class StandInMode(TorchDispatchMode):
    """Replace operators that look at numbers."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            # It is dispatched again with this process's shard.
            return NotImplemented
        result = OPERATORS[function](*args, **(kwargs or {})) if function in OPERATORS else None
        return function(*args, **(kwargs or {})) if result is None else result


@contextmanager
def data_independent() -> Iterator[None]:
    """Let a training step of any model run on fake tensors."""
    with ExitStack() as restored:
        for module, name, stand_in in STAND_INS:
            restored.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, stand_in)
        with StandInMode():
            yield
