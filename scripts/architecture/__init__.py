"""The architecture of a model from its config alone: a tree of modules with their costs, and a figure."""
