"""Findings are printed with what, why and how to mend, within the width."""

from qkv.scripts.diagnosis.findings import Finding, spelled


def test_findings_are_filled_and_what_is_broken_comes_first() -> None:
    findings = [
        Finding("note", "a", "b", "c"),
        Finding("broken", "word " * 20 + "end", "reason", "pip install --index-url https://example.org/" + "x" * 30),
    ]
    text = spelled(findings, 60)
    first, second = text.split("\n\n")
    assert first.startswith("broken: word") and second == "note: a.\n    why:  b.\n    mend: c."
    assert all(len(line) <= 60 or "https" in line for line in text.splitlines())
    assert "https://example.org/" + "x" * 30 in text and spelled([], 60) == ""
