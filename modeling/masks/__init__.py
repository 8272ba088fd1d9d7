"""Attention masks: patterns as predicates, and the masks of a forward."""
