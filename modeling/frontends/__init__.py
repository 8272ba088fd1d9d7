"""Frontends: how an input becomes a sequence of vectors."""

from collections.abc import Callable

from torch import nn

from .patches import PatchFrontend
from .spectrogram import SpectrogramFrontend
from .tokens import TokenFrontend

FRONTENDS: dict[str, Callable[..., nn.Module]] = {
    "tokens": TokenFrontend,
    "patches": PatchFrontend,
    "spectrogram": SpectrogramFrontend,
}
