"""Attention as a page: captured weights of a model for an input, with names of tokens, patches, frames and objects."""
