"""Predict parameters, FLOPs, memory and communication of a training before it runs."""
