"""How pictures are read."""
