"""Create plans that are missing, delete plans of Nodes that are gone, and drop items that a pin overrules.

Reads the state and makes few writes: the empty plan of an enabled node by POST with nodeName only, the removal of
pinned indexes from `planned`, the deletion (uid and resourceVersion preconditions) of a plan whose Node is gone for an
hour and that has no fields written by users. Each is retried with a back-off of its own; one failure stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from controller.actions.environment import Environment
from controller.actions.plan_writer import Writer, Written
from controller.api import paths
from controller.api.plans import PlanReading
from controller.cache.agenda import Agenda
from crds.v1alpha1.names import API_VERSION, CONTROLLER_MANAGER, KIND
from kube import apply, errors
from kube.concurrency import SENDING_SECONDS, at_once
from kube.retry import RetryGate

log = logging.getLogger(__name__)

RESEND_SECONDS = 5.0
"""After a write that succeeded: by then the watch has brought it, and it is not due any more."""


class PlanLifecycle:
    """Run often: what is in order costs nothing but a check."""

    def __init__(
        self,
        environment: Environment,
        writer: Writer,
        *,
        plan_return_seconds: float,
        orphan_plan_seconds: float,
    ) -> None:
        self._environment = environment
        self._api, self._state, self._clock = environment.api, environment.state, environment.clock
        self._writer = writer
        self._plan_return_seconds = plan_return_seconds
        self._orphan_plan_seconds = orphan_plan_seconds
        self._retries: RetryGate[tuple[str, str]] = RetryGate(clock=self._clock)
        self._agenda = Agenda(clock=self._clock, every=self._state.names)
        self._state.listen(self._agenda.touch)

    def run(self) -> bool:
        """Do what is due; True if anything was tried, or waits for the next turn."""
        until = self._clock() + SENDING_SECONDS
        tried = at_once(lambda due: self._attempt(*due, until=until), list(self._due()))
        return any(tried)

    def _attempt(self, what: str, name: str, action: Callable[[], None], *, until: float) -> bool:
        if self._clock() >= until or not self._environment.leading():
            self._agenda.touch(name)
            return self._environment.leading()
        if tried := self._retries.may_send((what, name)):
            try:
                action()
            except errors.ApiError as error:
                if self._retries.failed((what, name), error):
                    self._environment.metrics.errors.labels(stage="lifecycle").inc()
                    log.warning("%s of plan %s: %s", what, name, error.message)
            else:
                self._retries.succeeded((what, name), pause_seconds=RESEND_SECONDS)
        self._agenda.at(name, self._retries.retry_at((what, name)))
        return tried

    def _due(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        for name in self._agenda.take():
            yield from self._judged(name)

    def _judged(self, name: str) -> Iterator[tuple[str, str, Callable[[], None]]]:
        reading, node = self._state.plan(name), self._state.node(name)
        enabled = node is not None and node.partitioning is not None
        if enabled and not self._state.plan_exists(name):
            if self._over(name, self._plan_return_seconds - self._state.plan_gone_for(name)):
                yield "creation", name, partial(self._create, name)
        elif reading is None or reading.deleting:
            return
        elif reading.stale_items and enabled:
            yield "removal of pinned items", name, partial(self._drop, reading)
        elif node is not None or reading.authored:
            return
        elif self._over(name, self._orphan_plan_seconds - self._state.node_gone_for(name)):
            yield "deletion", name, partial(self._delete, reading)

    def _over(self, name: str, seconds_left: float) -> bool:
        """The pause before this action; while it lasts, its end is put on the agenda."""
        if seconds_left > 0:
            self._agenda.at(name, self._clock() + seconds_left)
        return seconds_left <= 0

    def _create(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {"nodeName": name}}
        try:
            created = apply.create(self._api, paths.PLANS, body, manager=CONTROLLER_MANAGER)
        except errors.AlreadyExists:
            return  # the watch brings it
        log.info("plan %s created: its node is enabled and had none", name)
        self._state.plan_answered(name, self._state.read_plan(created))

    def _drop(self, reading: PlanReading) -> None:
        outcome = self._writer.drop_pinned(reading)
        if outcome.written is Written.APPLIED:
            log.info("plan %s: GPUs %s are pinned, dropped from planned", reading.name, list(reading.stale_items))

    def _delete(self, reading: PlanReading) -> None:
        try:
            apply.delete(
                self._api, paths.plan(reading.name), uid=reading.uid, resource_version=reading.resource_version
            )
        except (errors.NotFound, errors.Conflict):
            return  # another client has just written or deleted it
        log.info("plan %s deleted: its Node has been gone for long, and no user wrote anything in it", reading.name)
