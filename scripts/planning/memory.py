"""How much memory is in use at once? Every storage that is alive while it looks, by what it is for."""

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle


class Ledger(TorchDispatchMode):
    """Bytes of all storages made while it is on, and of those it is told of; `peak` is the moment they were most.

    It sees tensors that hold no numbers (FakeTensorMode) as it sees real ones, so what it says of the first is what
    the second would take. What an operator allocates and frees inside itself it does not see. Uses that are `ignored`
    count for nothing.
    """

    def __init__(self, ignored: Iterable[str] = ()) -> None:
        super().__init__()
        self.ignored = frozenset(ignored)
        self.kind = "activations"
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        # By the identity of a storage: what it is for, its bytes, and a reference that tells of its end.
        self.known: dict[int, tuple[str, int, Any]] = {}
        self.resize = torch.UntypedStorage.resize_

    def __enter__(self) -> "Ledger":
        ledger, resize = self, self.resize

        def resized(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            # FSDP2 gives up and takes back what it has gathered by the size of its storage.
            found = resize(storage, size)
            ledger.add(storage, "gathered")
            return found

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self.resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            # It will be back with what this process holds of them.
            return NotImplemented
        results = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if id(storage) not in self.known:
                    self.add(storage, self.kind)
        return results

    def add(self, storage: torch.UntypedStorage, kind: str) -> None:
        """Note a storage and what it is for, or that its size or its use has changed."""
        key = id(storage)
        self.drop(key)
        if kind in self.ignored:
            return
        self.known[key] = (kind, storage.nbytes(), weakref.finalize(storage, self.drop, key))
        self.now[kind] += storage.nbytes()
        if self.now.total() > self.peak.total():
            self.peak = self.now.copy()

    def drop(self, key: int) -> None:
        """Forget a storage."""
        kind, size, end = self.known.pop(key, ("", 0, None))
        if end is not None:
            end.detach()
        self.now[kind] -= size

    def note(self, tensors: Iterable[Tensor], kind: str) -> None:
        """Say what tensors are for."""
        for tensor in tensors:
            self.add(local(tensor).untyped_storage(), kind)

    def watch(self, model: nn.Module) -> list[RemovableHandle]:
        """Call gradients by their name as soon as they are complete; what is returned ends that."""

        def arrived(parameter: Tensor) -> None:
            if parameter.grad is not None:
                self.note([parameter.grad], "gradients")

        return [
            parameter.register_post_accumulate_grad_hook(arrived)
            for parameter in model.parameters()
            if parameter.requires_grad
        ]


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
