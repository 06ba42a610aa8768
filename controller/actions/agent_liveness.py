"""Writes what the controller knows of each node's agent, and of DRA on the node, into the status of its plan.

Takes the ages of the agents' Leases and writes conditions by status apply under the controller's own manager:
AgentAlive always, ServedByDRA while it is True, and Ready=Unknown while the agent is silent, when its Node goes away,
and on a plan that no agent has answered yet. Ready belongs to an agent that is alive: it is never overwritten a second
time. The agent forces its own Ready when it is back; until then ours stays in what is applied, or the condition would
lose half of its fields. After a longer silence the taint gpuplan.dev/changing is removed from the node. Compares with
the live object before every write, and writes only where status or reason differ.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.actions.work_queue import WorkItem, WorkQueue
from controller.api.plans import ConditionReading, PlanReading
from controller.model.views import NodeView
from crds.v1alpha1 import paths
from crds.v1alpha1.names import (
    CHANGING_TAINT,
    CONTROLLER_MANAGER,
    LABEL_NODE_AGENT,
    READY_OF_CONTROLLER,
    TAINT_CHANGING,
    Condition,
    Reason,
)
from crds.v1alpha1.plan import plan_body
from kube import apply
from kube.patches import taint_patch
from kube.timestamps import api_time

log = logging.getLogger(__name__)

OUR_READY = (*READY_OF_CONTROLLER, Reason.AWAITING_AGENT)
"""Reasons of a Ready that the controller wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What a condition should report."""

    status: str
    reason: Reason
    message: str


LISTED = (
    "NVIDIA's DRA driver lists GPUs of this node (kubectl get resourceslices --field-selector "
    "spec.driver=gpu.nvidia.com,spec.nodeName={node}), so pods with resource claims may get what gpuplan hands out: "
    "keep the driver off this node (kubeletPlugin.affinity of its chart), or switch its GPUs off "
    "(resources.gpus.enabled=false); where it is gone, delete what it has left"
)
MAPPED = (
    "A DeviceClass maps {names} (kubectl get deviceclasses -o yaml), so kube-scheduler has DRA serve pods that request "
    "it while the Node counts none: take the name out of extendedResourceName"
)
LEFT = Liveness(
    status="Unknown", reason=Reason.NODE_DISABLED, message="The node is not enabled, and its agent has left it."
)


class AgentLiveness:
    """Run often: it writes only what the plans do not report yet."""

    def __init__(self, environment: Environment, *, agent_silent_seconds: float, taint_removal_seconds: float) -> None:
        self._api, self._state, self._now = environment.api, environment.state, environment.now
        self._silent_seconds = agent_silent_seconds
        self._taint_seconds = taint_removal_seconds
        self._queue = WorkQueue(environment, stage=ErrorStage.STATUS)

    def run(self) -> None:
        """Bring every plan's AgentAlive up to date; one failure stops no other."""
        self._queue.run(self.due_of)

    def due_of(self, name: str) -> Iterator[WorkItem]:
        """What is due about this plan and its Node."""
        reading, node = self._state.cluster.plan(name), self._state.cluster.node(name)
        if reading is None or reading.deleting:
            return
        if self._due_conditions(reading) is not None:
            yield WorkItem(what=f"AgentAlive of plan {name}", about=name, act=partial(self._write_conditions, name))
        silent_for = self._state.cluster.agent_silent_for(name)
        # The state itself touches the name when the agent counts as silent.
        if silent_for is None or not self._queue.pause_ended(name, self._taint_seconds - silent_for):
            return
        if node is not None and any(taint.key == TAINT_CHANGING for taint in node.taints):
            yield WorkItem(what=f"removal of a taint of node {name}", about=name, act=partial(self._untaint, name))

    def _due_conditions(self, reading: PlanReading) -> list[dict[str, Any]] | None:
        silent_for = self._state.cluster.agent_silent_for(reading.name)
        if silent_for is not None and _has_left(reading, self._state.cluster.node(reading.name)):
            # Its last Ready says why, and stays.
            return self._conditions(reading, LEFT, silent=False)
        liveness = self._liveness(reading, silent_for)
        silent = silent_for is not None and (
            liveness.reason in (Reason.AGENT_SILENT, Reason.CANNOT_REPORT) or silent_for >= self._silent_seconds
        )
        return self._conditions(reading, liveness, silent=silent)

    def _write_conditions(self, name: str) -> None:
        # Agents write all the time: what was due when the turn began may rest on a version that is gone.
        if (reading := self._state.cluster.plan(name)) and (conditions := self._due_conditions(reading)):
            self._apply(reading, conditions)

    def _liveness(self, reading: PlanReading, silent_for: float | None) -> Liveness:
        """What is known of the agent of one plan; `silent_for` is None while it is alive."""
        if not self._state.cluster.node_exists(reading.name):
            message = f"There is no Node {reading.name}: nothing is done until it joins the cluster."
            return Liveness(status="Unknown", reason=Reason.NODE_NOT_FOUND, message=message)
        if silent_for is None:
            return Liveness(status="True", reason=Reason.HEARTBEAT, message="The agent renews its Lease.")
        if silent_for < self._silent_seconds and (problem := self._state.cluster.agent_problem(reading.name)):
            message = (
                "The agent runs, but the API server refuses the status that it writes, so the status is out of date. "
                f"Report this with the message: {problem}"
            )
            return Liveness(status="False", reason=Reason.CANNOT_REPORT, message=message)
        was_silent = reading.alive is not None and reading.alive.reason == Reason.AGENT_SILENT
        if silent_for < self._silent_seconds and not was_silent:
            return Liveness(status="Unknown", reason=Reason.STARTING, message="The agent has not been heard yet.")
        message = (
            f"The agent has not renewed its Lease for {self._silent_seconds:g} s: "
            f"check the pod of gpuplan's node agent on {reading.name}."
        )
        return Liveness(status="False", reason=Reason.AGENT_SILENT, message=message)

    def _conditions(self, reading: PlanReading, liveness: Liveness, *, silent: bool) -> list[dict[str, Any]] | None:
        """What to apply; None: the plan reports it already."""
        held = reading.ready is not None and reading.ready.reason in OUR_READY
        write_ready = silent or _unknown_at_once(reading, liveness)
        why = _why_unknown(reading, liveness) if write_ready or held else Reason.AGENT_SILENT
        ready = Liveness(status="Unknown", reason=why, message=_ready_message(reading.name, why))
        dra, known = self._served_by_dra(reading.name)
        if (
            _same(reading.alive, liveness)
            and (not write_ready or _same(reading.ready, ready))
            and (not known or (_same(reading.served_by_dra, dra) if dra else reading.served_by_dra is None))
        ):
            return None
        conditions = [self._condition(Condition.AGENT_ALIVE, liveness, reading.alive)]
        if write_ready or held:
            about = {"observedGeneration": reading.generation}
            conditions.append(self._condition(Condition.READY, ready, reading.ready) | about)
        if dra is not None:
            conditions.append(self._condition(Condition.SERVED_BY_DRA, dra, reading.served_by_dra))
        return conditions

    def _served_by_dra(self, name: str) -> tuple[Liveness | None, bool]:
        """What ServedByDRA should report, if anything, and whether that is known."""
        found = self._state.cluster.served_by_dra(name)
        listed, mapped = found or (False, ())
        if not (listed or mapped):
            return None, found is not None
        reason = Reason.FOREIGN_OWNER if listed else Reason.MAPPED_TO_DRA
        message = LISTED.format(node=name) if listed else MAPPED.format(names=", ".join(mapped))
        return Liveness(status="True", reason=reason, message=message), True

    def _condition(self, kind: Condition, liveness: Liveness, live: ConditionReading | None) -> dict[str, Any]:
        """Without observedGeneration: a heartbeat is about no generation, and is not rewritten for each new one."""
        same = live is not None and live.status == liveness.status
        return {
            "type": kind.value,
            "status": liveness.status,
            "reason": liveness.reason.value,
            "message": liveness.message,
            "lastTransitionTime": live.last_transition_time if live is not None and same else api_time(self._now()),
        }

    def _apply(self, reading: PlanReading, conditions: list[dict[str, Any]]) -> None:
        metadata = {"name": reading.name, "uid": reading.uid, "resourceVersion": reading.version}
        body = plan_body(metadata, status={"conditions": conditions})
        answer = apply.apply_status(self._api, paths.plan(reading.name), body, manager=CONTROLLER_MANAGER, force=True)
        if conditions[0]["status"] != (reading.alive.status if reading.alive else ""):
            log.info("plan %s: AgentAlive=%s (%s)", reading.name, conditions[0]["status"], conditions[0]["reason"])
        self._state.plan_answered(reading.name, self._state.read_plan(answer))

    def _untaint(self, name: str) -> None:
        node = apply.get(self._api, paths.node(name))
        if operations := taint_patch(node, CHANGING_TAINT, present=False):
            apply.json_patch(self._api, paths.node(name), operations, manager=CONTROLLER_MANAGER)
            log.warning("node %s: taint %s of its silent agent removed", name, TAINT_CHANGING)


def _has_left(reading: PlanReading, node: NodeView | None) -> bool:
    """The agent of a disabled node has reported that the node is handed back, and nothing keeps it there."""
    gone = node is not None and node.partitioning is None and LABEL_NODE_AGENT not in node.labels
    return gone and reading.ready is not None and reading.ready.reason == Reason.NODE_DISABLED


def _unknown_at_once(reading: PlanReading, liveness: Liveness) -> bool:
    """Ready is Unknown before its agent is silent: nothing has written it yet, or the Node has just gone.

    Where the Node is gone and the agent still writes Ready, it is not overwritten again: two writers would fight.
    """
    if liveness.reason is Reason.NODE_NOT_FOUND:
        return reading.ready is None or reading.alive is None or reading.alive.reason != Reason.NODE_NOT_FOUND
    return liveness.reason is Reason.STARTING and reading.ready is None


def _why_unknown(reading: PlanReading, liveness: Liveness) -> Reason:
    """The reason of our Ready=Unknown; while the agent that has returned has not written Ready, the one it has."""
    if liveness.reason in READY_OF_CONTROLLER:
        return liveness.reason
    if liveness.reason is Reason.HEARTBEAT and reading.ready is not None and reading.ready.reason in OUR_READY:
        return Reason(reading.ready.reason)
    return Reason.AWAITING_AGENT if liveness.reason is Reason.STARTING else Reason.AGENT_SILENT


def _same(live: ConditionReading | None, liveness: Liveness) -> bool:
    return live is not None and (live.status, live.reason) == (liveness.status, liveness.reason)


def _ready_message(name: str, why: Reason) -> str:
    causes = {
        Reason.NODE_NOT_FOUND: f"There is no Node {name}",
        Reason.AWAITING_AGENT: f"The agent of node {name} has not been heard yet",
        Reason.CANNOT_REPORT: f"The agent of node {name} cannot write its status",
    }
    return f"{causes.get(why, f'The agent of node {name} is silent')}: what is ready there is not known."
