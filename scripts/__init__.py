"""Commands: one file each, with shared code in the folders beside them."""
