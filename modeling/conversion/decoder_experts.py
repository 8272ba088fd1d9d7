"""Conversion of mixtures of experts: the codecs of `decoder_experts.yaml`; heads and others are of `decoder.py`.

In training, ours adds the loss of uneven loads whenever its weight is set, stock if `output_router_logits` is True. Its
loads are those of the experts that were chosen; stock chooses again by a softmax alone, for Ernie without the bias.
Noise on the inputs of routers, which stock adds in training, and predictions of several tokens are left out.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...configuration.configuration_pattern import words_of_layers
from . import decoder
from .config import SCALED, Codec, Value, Values
from .tables import read_architectures


def places(word: Value, ours: Values, kind: str) -> list[int]:
    """List the layers whose feed-forward network is of a kind."""
    names = words_of_layers(word, ours["num_hidden_layers"])
    return [index for index, name in enumerate(names) if name == kind]


def by_layer(name: str, is_mixture: Callable[[int, Values], bool], write: Callable[[Value, Values], Value]) -> Codec:
    """Map the feed-forward network of each layer, by a function of its number and their fields."""

    def read(_: Value, theirs: Values) -> str | list[str]:
        layers = range(theirs["num_hidden_layers"])
        return decoder.one_word(["moe" if is_mixture(index, theirs) else "glu" for index in layers])

    return Codec(name, read, write)


def is_mixture_of_qwen(index: int, theirs: Values) -> bool:
    """Return whether a layer of Qwen's is a mixture."""
    return index not in (theirs["mlp_only_layers"] or []) and (index + 1) % theirs["decoder_sparse_step"] == 0


def shared_experts(name: str) -> Codec:
    """Map the number of shared experts, which are one that is as many times as wide."""
    return Codec(
        name,
        lambda number, theirs: (number or 0) * theirs["moe_intermediate_size"],
        lambda width, ours: width // ours["moe_intermediate_size"],
    )


def first_dense(name: str) -> Codec:
    """Map the number of first layers that are no mixtures."""
    return by_layer(
        name, lambda index, theirs: index >= (theirs[name] or 0), lambda word, ours: len(places(word, ours, "glu"))
    )


DENSE_LAYERS = by_layer("mlp_only_layers", is_mixture_of_qwen, lambda word, ours: places(word, ours, "glu"))
NO_WINDOW_IS_ZERO = Codec("sliding_window", lambda window, _: window or None, lambda window, _: window or 0)
MUP_ENABLED = replace(SCALED, name="mup_enabled")


def is_mixture_of_ernie(index: int, theirs: Values) -> bool:
    """Return whether a layer of Ernie's is a mixture."""
    return theirs["moe_layer_start_index"] <= index <= theirs["moe_layer_end_index"]


def first_mixture(word: Value, ours: Values) -> int:
    """Return the number of the first layer that is a mixture."""
    return min(places(word, ours, "moe"), default=ours["num_hidden_layers"])


def last_mixture(_: Value, ours: Values) -> int:
    """Return the number of the last layer that is a mixture."""
    return max(places(ours["feed_forward"], ours, "moe"), default=ours["num_hidden_layers"] - 1)


MIXTURES_FROM = by_layer("moe_layer_start_index", is_mixture_of_ernie, first_mixture)
# The other end has no field of ours; it stands beside one that never changes.
MIXTURES_TO = Codec("moe_layer_end_index", lambda *_: "rope", last_mixture)

GROUPS = read_architectures(Path(__file__).with_suffix(".yaml"), vars(decoder) | globals())
