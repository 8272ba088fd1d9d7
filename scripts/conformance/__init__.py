"""Behavioural checks of any transformers model: `qkv conform`, `qkv.conform` and `qkv.parametrize_with_checks`."""
