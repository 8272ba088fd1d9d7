"""Attention of a model while it runs its usual backend: weights, scores, norms, rollout, flow and relevance."""
