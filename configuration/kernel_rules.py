"""Rules of attention kernels that keep a state: nothing acts on single pairs of tokens, and order is order."""

from typing import Any

from .axes import BIAS_POSITIONS, RECURRENT_KERNELS, STATE_KERNELS


def check_kernel(config: Any) -> None:
    """Raise ValueError where the kernel of an attention config cannot do what its other fields ask for."""
    if config.kernel in RECURRENT_KERNELS:
        check_order(config)
    if config.kernel in STATE_KERNELS:
        check_state_kernel(config)


def check_state_kernel(config: Any) -> None:
    """Raise ValueError where a kernel that keeps a state is combined with what acts on single pairs of tokens."""
    kernel, patterns = f"kernel={config.kernel!r}", set(config.layer_patterns)
    if config.position in (*BIAS_POSITIONS, "xpos"):
        raise ValueError(
            f"{kernel} has no scores that position={config.position!r} could change with the distance; use 'rope', "
            "a position at the stack's input or kernel='softmax'"
        )
    if patterns != {"full"}:
        wrong = min(patterns - {"full"})
        raise ValueError(f"{kernel} keeps one state for all tokens, got pattern={wrong!r}; use pattern='full'")
    for name, default in (("attention_dropout", 0), ("attention_multiplier", None)):
        if getattr(config, name) != default:
            raise ValueError(f"{kernel} has no scores for {name}={getattr(config, name)}; leave it at {default}")


def check_order(config: Any) -> None:
    """Raise ValueError where a kernel whose tokens act one after another would read both ways, or an encoder."""
    kernel, right = f"kernel={config.kernel!r}", "'linear' or 'softmax'"
    if not config.causal:
        raise ValueError(f"{kernel} reads from left to right, which {type(config).__name__} does not; use {right}")
    if getattr(config, "cross_attention", False):
        raise ValueError(f"{kernel} has no cross-attention, got cross_attention=True; use {right}")
