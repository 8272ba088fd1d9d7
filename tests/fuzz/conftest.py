"""The page and the record of what damaged files ended in: `QKV_FUZZ=100000 pytest tests/fuzz --page FILE`."""

import pytest
from kinds import BASE, SECONDS

from pages import RecordedPage

HEAD = f"""# Damaged and hostile files

<!-- Written by `make fuzz`. Change tests/fuzz, never this file. -->

Files of every kind that is read, each changed at random: bytes flipped, cut, repeated and replaced, or values of its JSON.
Each has to be refused in one sentence of ours, or read as somebody else reads it (the standard library, Pillow, pyarrow,
PyYAML, transformers, or the bytes themselves); what is sealed passes only where nothing was changed. Reading starts no
program, asks no network and unpickles nothing. An input takes at most {SECONDS:g} s of the processor, and beside
{BASE // 2**20} MiB at most twice the memory of its file: its bytes, of a picture the pixels that it says it has, of a
sound its samples as numbers. [`{{record}}`]({{record}}) has the seed, and the numbers of the slowest and the largest input.

{{made_with}} {{processor}}.

| kind | inputs | different | refused | read | not changed | slowest, s | most memory, MiB | minutes |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
COUNTS = ("inputs", "different", "refused", "read", "not changed")
PAGE = RecordedPage(
    HEAD,
    ("torch", "transformers", "safetensors", "pillow", "pyarrow", "pyyaml"),
    lambda row: [*(f"{row[name]:,}" for name in COUNTS), f"{row['seconds']:.2f}", f"{row['memory MiB']:.1f}"],
)


@pytest.fixture(scope="session")
def page() -> RecordedPage:
    return PAGE


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record, with what an earlier session put there of other kinds, and the page from it."""
    PAGE.write(session)
