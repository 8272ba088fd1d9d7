"""Timing: the order alternates, the warm-up does not count, ratios are of one round."""

from qkv.scripts.lab.benchmarking.timing import in_turns, ratios


def test_the_order_alternates_and_the_warm_up_does_not_count() -> None:
    taken: list[str] = []

    def lap(name: str, step: object) -> float:
        taken.append(name)
        return float(len(taken))

    laps = in_turns(dict.fromkeys("abc", lambda: None), 3, lap)
    assert "".join(taken) == "abccbaabccba"
    assert laps == {"a": [6.0, 7.0, 12.0], "b": [5.0, 8.0, 11.0], "c": [4.0, 9.0, 10.0]}


def test_ratios_are_of_the_same_round() -> None:
    assert ratios([2.0, 9.0, 4.0], [1.0, 3.0, 8.0]) == [0.5, 2.0, 3.0]
    assert ratios([1.0, 1.0, 4.0, 4.0], [1.0, 1.0, 2.0, 1.0]) == [1.0, 1.5, 4.0]


def test_no_round_begins_after_a_limit_but_the_first() -> None:
    assert in_turns({"a": lambda: None}, 5, lambda *_: 1.0, limit=0) == {"a": [1.0]}
