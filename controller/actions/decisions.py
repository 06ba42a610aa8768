"""The last finished pass as /decisions shows it: what became of each pending pod, and why.

Takes the result of a pass, returns a document for JSON, pods by namespace and name. Never decides anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from controller.model.results import Placed, PlanningResult, Supply, Unplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Before the first pass all of it is empty."""

    number: int = 0
    finished_at: str = ""
    pods: tuple[dict[str, str], ...] = ()

    def after(self, result: PlanningResult, *, finished_at: str) -> "Decisions":
        """With the next pass in place of this one."""
        entries = [*(_placed(pod) for pod in result.placed), *(_unplaced(pod) for pod in result.unplaced)]
        entries.sort(key=lambda entry: (entry["namespace"], entry["name"]))
        return Decisions(number=self.number + 1, finished_at=finished_at, pods=tuple(entries))

    def document(self, *, idle: bool, under_way: Iterable[str]) -> dict[str, Any]:
        """With what is true at the moment of the request."""
        return {
            "pass": self.number,
            "finishedAt": self.finished_at,
            "idle": idle,
            "underWay": sorted(under_way),
            "pods": list(self.pods),
        }


def _placed(pod: Placed) -> dict[str, str]:
    return _entry(pod, "placed" if pod.supply is Supply.EXISTING else "underWay", node=pod.node)


def _unplaced(pod: Unplaced) -> dict[str, str]:
    return _entry(pod, "unplaced", reason=pod.reason.value, message=pod.full)


def _entry(pod: Placed | Unplaced, outcome: str, **more: str) -> dict[str, str]:
    namespace, name = pod.key
    found = {"namespace": namespace, "name": name, "uid": pod.uid, "outcome": outcome}
    return {**found, "node": "", "reason": "", "message": "", **more}
