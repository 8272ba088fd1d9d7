"""A clock for what goes by the time."""


class FakeClock:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
