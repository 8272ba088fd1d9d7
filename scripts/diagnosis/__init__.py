"""Checks of what qkv runs on: software, processor, accelerators and caches, each finding with how to mend it."""
