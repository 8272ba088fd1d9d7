"""Sweeps over the fields of a recipe: what varies, which values are tried next, and what came out."""
