"""A value of a pod that raises when planning reads it, as data that none of us foresaw would."""

from typing import Any, NoReturn


class Odd(tuple[Any, ...]):
    """A value that cannot be read."""

    def __iter__(self) -> NoReturn:
        raise OverflowError("int too large to convert to float")

    def __hash__(self) -> int:
        raise OverflowError("int too large to convert to float")

    def __eq__(self, other: object) -> bool:
        raise OverflowError("int too large to convert to float")


ODD = Odd(("odd",))
