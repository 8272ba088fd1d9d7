"""Probes of the heads of a model, as statistics of captured attention."""
