"""Feed-forward networks, dense ones and mixtures of experts."""

from ..feed_forward import GLU, MLP
from .mixture import MixtureOfExperts

FEED_FORWARDS = {"mlp": MLP, "glu": GLU, "moe": MixtureOfExperts}
