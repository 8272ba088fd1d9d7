"""Extension of models to longer texts, and their perplexity by length."""
