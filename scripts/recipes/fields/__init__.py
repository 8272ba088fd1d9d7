"""The names, ranges and help of the fields of recipes."""
