"""Tables and numbers are for people."""

from qkv.scripts.common.markdown import shown, table


def test_tables_and_numbers_are_for_people() -> None:
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert (shown("loss", 0.5), shown("accuracy", 0.5), shown("accuracy", None)) == ("0.5000", "50.00 %", "")
    assert shown("perplexity", 35.5) == "35.5000"
