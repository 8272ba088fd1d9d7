"""Extension of models to longer texts."""
