"""A stage of a pipeline: a stack in which engines put identities in place of the modules of other stages."""

from dataclasses import dataclass
from typing import cast

from torch import nn
from transformers.cache_utils import Cache

from ...configuration.configuration_stack import StackConfig


def is_elsewhere(module: nn.Module) -> bool:
    """Return True for a layer that another stage holds: transformers and vLLM put an identity in its place."""
    return isinstance(module, nn.Identity)


@dataclass
class StageCache:
    """A cache that answers for layers of other stages, which fill nothing here, as for one that this stage holds."""

    cache: Cache
    # {layer of another stage: layer of this one}, of the same pattern where there is one.
    stands_for: dict[int, int]

    def get_seq_length(self) -> int:
        """Return the number of cached tokens."""
        return self.cache.get_seq_length(next(iter(self.stands_for.values())))

    def get_mask_sizes(self, length: int, layer: int) -> tuple[int, int]:
        """Return the number of keys that a layer attends to, and the index of the first."""
        return self.cache.get_mask_sizes(length, self.stands_for.get(layer, layer))


def cache_of_stage(layers: nn.ModuleList, config: StackConfig, cache: Cache | None) -> Cache | None:
    """Return a cache that knows its length also where the first layer is elsewhere."""
    if cache is None or not is_elsewhere(layers[0]):
        return cache
    patterns = config.layer_patterns
    here = [index for index, layer in enumerate(layers) if not is_elsewhere(layer)]
    first = {patterns[index]: index for index in reversed(here)}
    elsewhere = set(range(len(patterns))) - set(here)
    stands_for = {index: first.get(patterns[index], here[0]) for index in sorted(elsewhere)}
    return cast(Cache, StageCache(cache, stands_for))
