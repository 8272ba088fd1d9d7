"""Training recipes (YAML) and their schema."""
