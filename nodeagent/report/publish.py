"""Writes the plan's status: by server-side apply, forced, at most one a second, and only when it is new.

Takes the status of a pass, returns how long to wait if it could not be written now. Where only who holds what has
changed, three times as long lies between two writes: pods are bound one by one. It is compared with the live
object, not with our last write: the controller forces Ready=Unknown on a silent agent, and that must be answered
(`handback` decides when; until then everything but Ready is written). uid and resourceVersion go with every write, so
that a new plan of this name never gets the old one's status, and a Ready that we have not read yet is never
overwritten.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names, paths
from crds.v1alpha1.names import PartitionState
from crds.v1alpha1.plan import plan_body
from kube import apply
from kube.budget import RequestBudget
from kube.change_log import ChangeLog
from kube.errors import ApiError, Conflict, NotFound, Unavailable
from kube.latest import LatestVersion
from kube.retry import RetryGate
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.report.conditions import OURS
from nodeagent.report.handback import Beats, Handback

log = logging.getLogger(__name__)
FIELDS = ("observedGeneration", "summary", "node", "models", "gpus", "devicePlugin")
OF_USE = 3
"""So many times as long lies between two writes of which the second only reports who holds what."""
MOST_FAILURES = 3
"""So many writes in a row may fail before the heartbeat reports it."""
MOST_PROBLEM_CHARS = 512
FIRST_SECONDS, CAP_SECONDS = 2.0, 10.0
"""Pauses after a write that failed; the API server can request longer ones. The plan is out of date meanwhile."""


class StatusFailures:
    """What keeps the status from the API, for the heartbeat and the metrics. Written by `StatusWriter` alone."""

    def __init__(self) -> None:
        self.count = 0
        """Writes that failed since the last one that the API accepted."""
        self.problem = ""
        """Why, after `MOST_FAILURES` while heartbeats got through; the heartbeat carries it to the controller."""

    def annotations(self) -> dict[str, str]:
        """Of the Lease."""
        return {names.ANNOTATION_STATUS_PROBLEM: self.problem} if self.problem else {}


@dataclass
class StatusWriter:
    api: ApiClient
    node_name: str
    latest: LatestVersion[ObservedPlan]
    budget: RequestBudget
    _: KW_ONLY
    beats: Beats
    failures: StatusFailures
    clock: Callable[[], float]
    interval_seconds: float

    def __post_init__(self) -> None:
        self._handback, self._change_log = Handback(self.beats, clock=self.clock), ChangeLog(log)
        self._retries = RetryGate[str](clock=self.clock, first_seconds=FIRST_SECONDS, cap_seconds=CAP_SECONDS)
        self._written_at = -math.inf
        self._taken_before = 0
        """Heartbeats that were taken before the last failure."""

    def write(self, plan: ObservedPlan, status: Mapping[str, Any]) -> float | None:
        """None when the API holds it; else the seconds after which to call again. Raises ApiError."""
        handed_back = self._handback.may_write_ready(plan.status, reporting=not self.failures.problem)
        live = plan.status
        if not handed_back:
            status, live = without_ready(status), without_ready(live)
        later = None if handed_back else self.interval_seconds
        if same(status, live) and not plan.unanswered:
            return later
        now = self.clock()
        pause_seconds = self.interval_seconds * (OF_USE if same(_without_use(status), _without_use(live)) else 1)
        due_at = max(self._retries.retry_at(self.node_name), self._written_at + pause_seconds)
        if now < due_at:
            return due_at - now
        self._written_at = now
        return self.interval_seconds if not self._write(plan, status) else later

    def _write(self, plan: ObservedPlan, status: Mapping[str, Any]) -> bool:
        """False: the plan has changed or gone, and the watch brings what is there now."""
        metadata = {"name": self.node_name, "uid": plan.uid, "resourceVersion": plan.version}
        path, body = paths.plan(self.node_name), plan_body(metadata, status=status)
        try:
            with self.budget.request() as timeouts:
                written = apply.apply_status(self.api, path, body, manager=names.AGENT_MANAGER, timeouts=timeouts)
        except (NotFound, Conflict) as error:
            self._written_at = -math.inf  # the next pass, with what the watch brought, need not wait
            self.failures.count = 0 if isinstance(error, NotFound) else self.failures.count + 1
            if self.failures.count > 3 * MOST_FAILURES:
                self._failed(error)
            return False
        except ApiError as error:
            self.latest.accept(replace(plan, unanswered=plan.unanswered or isinstance(error, Unavailable)))
            self._failed(error)
            raise
        self.latest.accept(parse_plan(written))
        self._retries.succeeded(self.node_name)
        self._change_log.warn("")
        self.failures.count = 0
        if self.failures.problem:
            self.failures.problem = ""
            self.beats.beat_now()
        return True

    def _failed(self, error: ApiError) -> None:
        self._retries.failed(self.node_name, error)
        self._change_log.warn(f"status was not written: {error}")
        self.failures.count += 1
        # Without heartbeats the API server is away: to report a refusal then would only unsettle Ready at its return.
        heard, self._taken_before = self.beats.taken > self._taken_before, self.beats.taken
        if self.failures.count < MOST_FAILURES:
            return
        known = self.failures.problem
        if known or heard:
            self.failures.problem = str(error)[:MOST_PROBLEM_CHARS]
        if not known:
            self.beats.beat_now()


def without_ready(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without its condition Ready."""
    rest = [c for c in status.get("conditions") or () if c.get("type") != names.Condition.READY.value]
    return {**status, "conditions": rest}


def _without_use(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status that does not say which of the partitions that pods may have are held, and by whom."""
    held = (PartitionState.FREE, PartitionState.USED)

    def shown(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "state": part["state"] in held or part["state"], "pod": ""}

    gpus = [{**gpu, "partitions": [shown(p) for p in gpu.get("partitions", ())]} for gpu in status.get("gpus") or ()]
    return {**status, "summary": None, "gpus": gpus}


def same(status: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether the live status already has all of this, in the fields that are ours."""
    if any(status.get(field) != live.get(field) for field in FIELDS):
        return False
    theirs = {condition.get("type"): condition for condition in live.get("conditions") or ()}
    ours = {condition["type"]: condition for condition in status.get("conditions") or ()}
    return all(ours.get(kind) == theirs.get(kind) for kind in OURS)
