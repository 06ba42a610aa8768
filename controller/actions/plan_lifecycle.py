"""Creates plans that are missing, deletes plans and Leases of Nodes that are gone, drops items that a pin overrules.

Reads the state and makes few writes: the empty plan of a node that has an agent by POST with nodeName only, the
removal of pinned indexes from `planned`, the deletion (uid and resourceVersion preconditions) of a plan whose Node is
gone for an hour and that has no fields written by users, and of an agent's Lease whose Node is gone and that was not
renewed for an hour, on our clock: where nodes come and go under ever new names, they would pile up. Each is retried
with a back-off of its own; one failure stops no other. Must never delete a Lease that is renewed: its agent lives,
whatever became of the Node.
"""

import contextlib
import logging
from collections.abc import Iterator
from functools import partial

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.actions.plan_writer import Writer, Written
from controller.actions.work_queue import RESEND_SECONDS, WorkItem, WorkQueue
from controller.api.plans import PlanReading
from crds.v1alpha1 import paths
from crds.v1alpha1.enablement import disabled
from crds.v1alpha1.names import CONTROLLER_MANAGER, agent_lease
from crds.v1alpha1.plan import plan_body
from kube import apply, errors
from kube.leases import lease_path

log = logging.getLogger(__name__)


class PlanLifecycle:
    """Run often: what is in order costs nothing but a check."""

    def __init__(
        self,
        environment: Environment,
        writer: Writer,
        *,
        namespace: str,
        plan_return_seconds: float,
        orphan_plan_seconds: float,
    ) -> None:
        """`namespace` has the Leases."""
        self._api, self._state = environment.api, environment.state
        self._writer, self._namespace = writer, namespace
        self._plan_return_seconds = plan_return_seconds
        self._orphan_plan_seconds = orphan_plan_seconds
        self._queue = WorkQueue(environment, stage=ErrorStage.LIFECYCLE, resend_seconds=RESEND_SECONDS)

    def run(self) -> bool:
        """Do what is due; True if anything was tried, or waits for the next turn."""
        return self._queue.run(self.due_of)

    def due_of(self, name: str) -> Iterator[WorkItem]:
        """What is due about this Node, its plan and the Lease of its agent."""
        yield from self._due_of_plan(name)
        lease = self._state.cluster.lease(name)
        if lease is None or self._state.cluster.node_exists(name):
            return
        if self._queue.pause_ended(name, self._orphan_plan_seconds - lease.unchanged_seconds):
            act = partial(self._delete_lease, name, lease.version)
            yield WorkItem(what=f"deletion of Lease {agent_lease(name)}", about=name, act=act)

    def _due_of_plan(self, name: str) -> Iterator[WorkItem]:
        reading, node = self._state.cluster.plan(name), self._state.cluster.node(name)
        enabled = node is not None and node.partitioning is not None
        # In a plan the agent of a disabled node reports what it waits for.
        needed = enabled or (node is not None and disabled(node.labels))
        if needed and not self._state.cluster.plan_exists(name):
            if self._queue.pause_ended(name, self._plan_return_seconds - self._state.cluster.plan_gone_for(name)):
                yield WorkItem(what=f"creation of plan {name}", about=name, act=partial(self._create, name))
        elif reading is None or reading.deleting:
            return
        elif reading.stale_items and enabled:
            yield WorkItem(what=f"removal of pinned items of plan {name}", about=name, act=partial(self._drop, reading))
        elif node is not None or reading.authored:
            return
        elif self._queue.pause_ended(name, self._orphan_plan_seconds - self._state.cluster.node_gone_for(name)):
            yield WorkItem(what=f"deletion of plan {name}", about=name, act=partial(self._delete, reading))

    def _create(self, name: str) -> None:
        body = plan_body({"name": name}, spec={"nodeName": name})
        try:
            created = apply.create(self._api, paths.PLANS, body, manager=CONTROLLER_MANAGER)
        except errors.AlreadyExists:
            return  # the watch brings it
        log.info("plan %s created: its node has an agent and had no plan", name)
        self._state.plan_answered(name, self._state.read_plan(created))

    def _drop(self, reading: PlanReading) -> None:
        outcome = self._writer.drop_pinned(reading)
        if outcome.written is Written.APPLIED:
            log.info("plan %s: GPUs %s are pinned, dropped from planned", reading.name, list(reading.stale_items))

    def _delete(self, reading: PlanReading) -> None:
        # Where another client has just written or deleted it, the watch says so.
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            apply.delete(self._api, paths.plan(reading.name), uid=reading.uid, resource_version=reading.version)
            log.info("plan %s deleted: its Node has been gone for long, and no user wrote anything in it", reading.name)

    def _delete_lease(self, name: str, version: str) -> None:
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            apply.delete(self._api, lease_path(self._namespace, agent_lease(name)), resource_version=version)
            log.info("Lease %s deleted: its Node is gone, and no agent has renewed it for long", agent_lease(name))
