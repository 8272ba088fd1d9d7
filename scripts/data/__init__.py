"""Load, read, validate, tokenize, collate and stream data sets."""
