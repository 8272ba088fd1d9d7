"""Infer from the columns of own data what can be learned from them."""
