"""Delete the Leases of agents whose Nodes are gone: where nodes come and go under ever new names, they would pile up.

Takes from the state which Leases there are and since when each is unchanged, on our clock. One whose Node is gone, and
which was not renewed for an hour, is deleted with its resourceVersion as precondition; failures are retried with a
back-off of their own. Must never delete a Lease that is renewed: its agent lives, whatever became of the Node.
"""

import contextlib
import logging
from collections.abc import Iterator
from functools import partial

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.actions.work_queue import RESEND_SECONDS, WorkItem, WorkQueue
from crds.v1alpha1.names import agent_lease
from kube import apply, errors
from kube.leases import lease_path

log = logging.getLogger(__name__)


class LeaseRemoval:
    """Run often: what is in order costs nothing but a check."""

    def __init__(self, environment: Environment, *, namespace: str, after_seconds: float) -> None:
        """`namespace` has the Leases."""
        self._api, self._cluster = environment.api, environment.state.cluster
        self._namespace, self._after_seconds = namespace, after_seconds
        self._queue = WorkQueue(environment, stage=ErrorStage.LIFECYCLE, resend_seconds=RESEND_SECONDS)

    def run(self) -> bool:
        """Do what is due; True if anything was tried, or waits for the next turn."""
        return self._queue.run(self.due_of)

    def due_of(self, name: str) -> Iterator[WorkItem]:
        """What is due about the Lease of this Node's agent."""
        lease = self._cluster.lease(name)
        if lease is None or self._cluster.node_exists(name):
            return
        if self._queue.pause_ended(name, self._after_seconds - lease.unchanged_seconds):
            act = partial(self._delete, name, lease.version)
            yield WorkItem(what=f"deletion of Lease {agent_lease(name)}", about=name, act=act)

    def _delete(self, name: str, version: str) -> None:
        # Where another client has just written or deleted it, the watch says so.
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            apply.delete(self._api, lease_path(self._namespace, agent_lease(name)), resource_version=version)
            log.info("Lease %s deleted: its Node is gone, and no agent has renewed it for long", agent_lease(name))
