"""Heads on the last hidden state, their losses, and the matching of predicted and labelled objects."""
