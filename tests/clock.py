"""A clock that only the test moves, for everything that takes one."""


class Clock:
    """Seconds in `now`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
