"""Keeps a failure that belongs to one node from ending the planning of all others.

`by_node` runs one step for every node and, once each has had its turn, raises NodePlanningError with the errors by
node; `controller.planning` then plans again without these nodes. Never hides an error.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Named(Protocol):
    """A node, or something that a node has one of."""

    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)
Answer = TypeVar("Answer")


class NodePlanningError(Exception):
    """What a step raised, by name of the node."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        super().__init__(", ".join(errors))
        self.errors = errors


def by_node(step: Callable[[int, Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """The answers of `step(position, item)`, in order."""
    answers: list[Answer] = []
    errors: dict[str, Exception] = {}
    for position, item in enumerate(items):
        try:
            answers.append(step(position, item))
        except Exception as error:  # noqa: BLE001  # raised below, or in the result
            errors[item.name] = error
    if errors:
        raise NodePlanningError(errors)
    return answers
