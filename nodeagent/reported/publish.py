"""Writes the plan's status: by server-side apply, forced, at most one a second, and only when it says something new.

In goes the status of a pass, out comes how long to wait if it could not be written now. It is compared with the live
object, not with our last write: the controller forces Ready=Unknown on a silent agent, and that must be answered. The
plan's uid goes with every write, so that a plan that was created anew never gets the old one's status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from kube.errors import Conflict, NotFound
from nodeagent.observed.cell import Cell
from nodeagent.reported.conditions import OURS
from nodeagent.wanted.plan import PlanSeen, parse_plan

log = logging.getLogger(__name__)
FIELDS = ("observedGeneration", "summary", "node", "models", "gpus", "devicePlugin")


class StatusWriter:
    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        cell: Cell[PlanSeen],
        *,
        clock: Callable[[], float],
        interval_seconds: float,
    ) -> None:
        self._api = api
        self._name = node_name
        self._cell = cell
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._written_at: float | None = None

    def write(self, plan: PlanSeen, status: Mapping[str, Any]) -> float | None:
        """None when the API holds it; else the seconds after which to come again. Raises ApiError."""
        if same(status, plan.status):
            return None
        now = self._clock()
        if self._written_at is not None and now < self._written_at + self._interval_seconds:
            return self._written_at + self._interval_seconds - now
        self._written_at = now
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": self._name, "uid": plan.uid},
            "status": status,
        }
        path = f"/apis/{names.API_VERSION}/{names.PLURAL}/{self._name}"
        try:
            written = apply.apply_status(self._api, path, body, manager=names.AGENT_MANAGER, force=True)
        except (NotFound, Conflict) as error:
            # Deleted, or created anew in between: the watch brings what is there now.
            log.info("status was not written: %s", error)
            return self._interval_seconds
        self._cell.accept(parse_plan(written))
        return None


def same(status: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """The live status says all of this, in the fields that are ours."""
    if any(status.get(field) != live.get(field) for field in FIELDS):
        return False
    theirs = {condition.get("type"): condition for condition in live.get("conditions") or ()}
    ours = {condition["type"]: condition for condition in status.get("conditions") or ()}
    return all(ours.get(kind) == theirs.get(kind) for kind in OURS)
