"""Support of the tests of `qkv demo`."""
