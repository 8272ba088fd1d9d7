"""The fields that people type: what each means, its other names, and the help of a recipe."""
