"""Probes of a model: what its heads attend to, what its layers hold and predict, and how it tells positions apart."""
