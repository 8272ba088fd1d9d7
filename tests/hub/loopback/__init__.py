"""A Hub on loopback for tests: it speaks the Hub's HTTP API as the real clients use it, and fails when told to.

It agrees with the source of the clients and is driven through them only; where huggingface.co differs from what they
expect, it is not evidence. Standard library, PyYAML and pyarrow; it listens on 127.0.0.1 and ends with the process that started
it. Run it by hand with `python -m loopback --root FOLDER` in `tests/`.
"""
