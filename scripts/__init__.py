"""Commands: one file each, what they share in the folders beside them."""
