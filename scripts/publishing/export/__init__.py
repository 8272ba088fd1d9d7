"""Export the code that a published model needs as self-contained files."""
