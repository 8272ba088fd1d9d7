"""The time and memory of an optimizer step, measured before the training, and what to do where it does not fit."""
