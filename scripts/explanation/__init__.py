"""The explanations of `qkv explain`, read from the docstrings and tables of what each word stands for."""
