"""Keep a failure that belongs to one node from ending the planning of all others.

`by_node` runs one step for every node and, once each has had its turn, raises NodePlanningError with the errors by
node; `without_failed` then plans again without these nodes. Never hides an error: each one is in the result, and one
that belongs to no node, or to every node of several, ends the pass as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from controller.model.results import NodeFailure, PlanningResult


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


def without_failed(attempt: Callable[[Collection[str]], PlanningResult], nodes: int) -> PlanningResult:
    """The result of the first attempt that succeeds; `attempt` takes the names of the nodes to leave out."""
    errors: dict[str, Exception] = {}
    while True:
        try:
            result = attempt(errors.keys())
        except NodePlanningError as failed:
            first = next(iter(failed.errors.values()))
            if errors.keys() & failed.errors.keys() or (1 < nodes <= len(errors) + len(failed.errors)):
                raise first from None
            errors |= failed.errors
        else:
            return (
                replace(result, failures=tuple(NodeFailure.of(*one) for one in sorted(errors.items())))
                if errors
                else result
            )
