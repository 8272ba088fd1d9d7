"""Attention as a page: what is captured of a model for an input, with names of tokens, patches, frames and objects."""
