"""Keywords of a forward: the cache by either of its names, and no tensor or cache that nothing reads.

transformers 5.24 renamed `past_key_values` to `cache`.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

Keywords = dict[str, object]
Wrapped = TypeVar("Wrapped", bound=Callable[..., object])
OLD_NAME, NEW_NAME = "past_key_values", "cache"
# The name that the installed transformers reads in outputs and hands over; forwards of ours name the old one.
CACHE = NEW_NAME if NEW_NAME in BaseModelOutputWithPast.__dataclass_fields__ else OLD_NAME


def rename_cache(keywords: Keywords, name: str) -> Keywords:
    """Return the keywords with the cache under this name, whichever of the two it has.

    The paged cache of continuous batching is also called `cache`, is no `Cache`, and keeps its name.
    """
    other = OLD_NAME if name == NEW_NAME else NEW_NAME
    if other not in keywords or isinstance(keywords[other], PagedAttentionCache):
        return keywords
    renamed = {key: value for key, value in keywords.items() if key != other}
    if renamed.get(name) is None:
        return {**renamed, name: keywords[other]}
    if keywords[other] is None:
        return renamed
    raise TypeError(f"got both {name!r} and {other!r}, two names of the cache; give one of them")


def either_cache_name(function: Wrapped) -> Wrapped:
    """Let a function that names `past_key_values` take its cache as `cache`, too."""
    if OLD_NAME not in signature(function).parameters:
        return function

    @wraps(function)
    def renamed(*args: object, **kwargs: object) -> object:
        return function(*args, **(rename_cache(kwargs, OLD_NAME) if NEW_NAME in kwargs else kwargs))

    return renamed  # type: ignore[return-value]


def cache_field(cache: object) -> dict[str, Any]:
    """Return the field of an output that holds the cache, by the name that the installed transformers reads."""
    return {CACHE: cache}


def layer_cache(cache: Cache | None, options: Keywords) -> Cache | None:
    """Return the cache that layers write; from transformers 5.24 on, that of continuous batching, too.

    Before, transformers' attention functions wrote it, and found it among the options.
    """
    paged = options.pop(NEW_NAME) if CACHE == NEW_NAME and options.get(NEW_NAME) is not None else None
    return paged or cache  # type: ignore[return-value]  # a paged one is no `Cache`


# Keywords that stacks read, beside the names in their signatures.
STACK_OPTIONS = frozenset(
    "encoder_hidden_states encoder_attention_mask encoder_position_embeddings global_attention_mask global_tokens "
    "seq_idx".split()
)
# Tensors that go through to attention functions: where documents packed in a row begin. Continuous batching and the
# functions of serving engines take more, which only they know.
ATTENTION_OPTIONS = frozenset({"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"})


@cache
def intended_name(forward: Callable[..., object], name: str) -> str | None:
    """Return the input that an unknown name misspells, if it is close to one."""
    known = {*signature(forward).parameters, "encoder_hidden_states", "encoder_attention_mask", "labels"}
    close = [] if name in known else get_close_matches(name, sorted(known), n=1, cutoff=0.85)
    return close[0] if close else None


def check_keywords(forward: Callable[..., object], options: Mapping[str, object], backend: str | None = None) -> None:
    """Raise on a name close to that of an input, and on a tensor or a cache that nothing reads.

    Left unread, each would give other numbers without a word. Flags of other names pass. Without the `backend` of a
    stack, the model reads none of the keywords of stacks.
    """
    for name, value in options.items():
        right = None if torch.compiler.is_compiling() else intended_name(forward, name)
        if right is not None:
            raise ValueError(f"there is no input {name!r}; did you mean {right!r}?")
        unread = holds_numbers(value) and not is_one_segment(name, value)
        if unread and (backend is None or not is_read_by_stack(name, options, backend)):
            raise TypeError(
                f"{forward.__qualname__}() got an unexpected keyword {name!r} with a {type(value).__name__}, which "
                "nothing reads; leave it out, or use the name of an input"
            )


def is_read_by_stack(name: str, options: Mapping[str, object], backend: str) -> bool:
    """Return True for a keyword that stacks or attention functions read: any with a paged cache or a serving engine."""
    # The boundaries of keys are read only together with the boundaries of queries.
    known = name in STACK_OPTIONS or (name in ATTENTION_OPTIONS and options.get("cu_seq_lens_q") is not None)
    return known or isinstance(options.get("cache"), PagedAttentionCache) or is_engine(backend)


def is_engine(backend: str) -> bool:
    """Return True for an attention function that is neither ours nor one of transformers."""
    attend = ALL_ATTENTION_FUNCTIONS.get(backend)
    return attend is not None and not getattr(attend, "__module__", "").startswith("transformers.")


def is_one_segment(name: str, value: object) -> bool:
    """Return True for the token types, all 0, that tokenizers return for models that have none."""
    return name == "token_type_ids" and isinstance(value, Tensor) and (torch.compiler.is_compiling() or not value.any())


def holds_numbers(value: object) -> bool:
    """Return True for a tensor, a cache, or a container of either."""
    if isinstance(value, Mapping):
        return any(holds_numbers(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(holds_numbers(each) for each in value)
    return isinstance(value, Tensor | Cache) or hasattr(value, "get_seq_length")
