"""To explain why pods wait takes a pass no more than its looks, whatever they request or select."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.explanation import explain
from controller.model.snapshot import Snapshot
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server


def selecting(number: int, nodes: int) -> Snapshot:
    """Pods that select a label of their own, which no node has."""
    pending = [
        pod(f"odd-{one:03}", "1g.5gb", selector={f"key-{one}": "none"}, namespace="odd") for one in range(number)
    ]
    return cluster(*(server(f"node-{one:02}", mig()) for one in range(nodes)), pending=pending)


def combining(number: int, nodes: int) -> Snapshot:
    """Pods that request numbers of their own of three profiles, which no node has together."""
    wants = [(("1g.5gb", 1 + one % 20), ("2g.10gb", 1 + one // 20), ("3g.20gb", 4)) for one in range(number)]
    pending = [pod(f"odd-{one:03}", *want, namespace="odd") for one, want in enumerate(wants)]
    return cluster(*(server(f"node-{one:02}", *map(mig, range(8))) for one in range(nodes)), pending=pending)


@pytest.mark.parametrize(("odd", "asked", "most"), [(selecting, "causes_of", 2_000), (combining, "could_hold", 100)])
def test_to_explain_why_unlike_pods_wait_takes_a_pass_no_more_than_its_looks(
    odd: Callable[[int, int], Snapshot], asked: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another namespace reads why its pod waits all the same."""
    calls: list[object] = []
    monkeypatch.setattr(explain, "LOOKS", 2_000)
    monkeypatch.setattr(explain, asked, recording(getattr(explain, asked), calls))
    few = odd(400, 10)
    good = pod("good", "1g.5gb", selector={"key": "good"}, namespace="good")
    result = plan(replace(few, pending=(*few.pending, good)))

    assert len(calls) <= most
    (message,) = [one.message for one in result.unplaced if one.key[0] == "good"]
    assert "key=good" in message
    assert sum("no work left to find out why" in one.message for one in result.unplaced) > 100


def recording(function: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def called(*args: object, **more: object) -> Any:
        calls.append(args)
        return function(*args, **more)

    return called
