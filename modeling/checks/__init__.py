"""Checks of inputs: each raises a ValueError of one sentence, before torch fails somewhere deep inside."""
