"""Attention of a model while it runs its usual backend: layers, weights and scores, and their statistics."""
