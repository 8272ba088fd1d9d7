"""Predict parameters, memory and communication of a training before it runs."""
