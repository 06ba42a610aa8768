"""What is due about each Node or plan: judged when it changed or its moment has come, sent a few at once, retried.

Takes, from its owner, a function that returns what is due about a name. Each is retried after a back-off of its
own; one failure stops no other. What cannot be sent in the turn's time waits for the next turn. Decides nothing itself.
"""

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.cache.delaying_queue import DelayingQueue
from kube import errors
from kube.change_log import ChangeLog
from kube.concurrency import SENDING_SECONDS, at_once
from kube.retry import RetryGate

log = logging.getLogger(__name__)

RESEND_SECONDS = 5.0
"""After a write that succeeded: by then the watch has brought it, and it is not due any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One request that is due."""

    what: str
    """As the log names it: `deletion of plan n1`. Retried under this name."""
    about: str
    """The Node or plan to judge again afterwards."""
    act: Callable[[], None]


Reconcile = Callable[[str], Iterable[WorkItem]]
"""What is due about a name."""


class WorkQueue:
    """One per owner; run often: what is in order costs nothing."""

    def __init__(self, environment: Environment, *, stage: ErrorStage, resend_seconds: float = 0.0) -> None:
        """`stage`: of failures in the metrics. `resend_seconds`: how long the watch may take to bring what was sent."""
        self._environment, self._clock = environment, environment.clock
        self._errors = environment.metrics.errors.labels(stage=stage.value)
        self._resend_seconds = resend_seconds
        self._retries: RetryGate[str] = RetryGate(clock=self._clock)
        self._tracebacks = ChangeLog(log)
        """One per name that cannot be judged."""
        self._delaying = DelayingQueue(clock=self._clock, every=environment.state.cluster.names)
        environment.state.listen(self._delaying.touch)

    def run(self, reconcile: Reconcile) -> bool:
        """Do what is due; True if anything was tried, or waits for the next turn."""
        until = self._clock() + SENDING_SECONDS
        return any(at_once(lambda item: self._attempt(item, until=until), self.due(reconcile)))

    def due(self, reconcile: Reconcile) -> list[WorkItem]:
        """Of the names that changed, or whose moment has come."""
        return [item for name in self._delaying.take() for item in self._judged(name, reconcile)]

    def pause_ended(self, name: str, seconds_left: float) -> bool:
        """The pause before an item; while it lasts, the name is judged again when it ends."""
        if seconds_left > 0:
            self._delaying.at(name, self._clock() + seconds_left)
        return seconds_left <= 0

    def _judged(self, name: str, reconcile: Reconcile) -> list[WorkItem]:
        """Whatever breaks about one name must not keep the others from their duties; it is judged again later."""
        try:
            found = list(reconcile(name))
        except Exception as error:
            self._errors.inc()
            if self._tracebacks.is_new(traceback.format_exc(), name):
                log.exception("cannot determine what is due for %s: %s", name, error)
            return []
        self._tracebacks.is_new("", name)
        return found

    def _attempt(self, item: WorkItem, *, until: float) -> bool:
        """What it changes is observed, and judged then."""
        if self._clock() >= until or not self._environment.leading():
            self._delaying.touch(item.about)
            return self._environment.leading()
        if tried := self._retries.may_send(item.what):
            try:
                item.act()
            except errors.ApiError as error:
                if self._retries.failed(item.what, error):
                    self._errors.inc()
                    log.warning("%s: %s", item.what, error.message)
            else:
                self._retries.succeeded(item.what, pause_seconds=self._resend_seconds)
        retry_at = self._retries.retry_at(item.what)
        if retry_at > self._clock():
            self._delaying.at(item.about, retry_at)
        return tried
