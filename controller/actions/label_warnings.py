"""Warn about labels of nodes that cannot be understood, or contradict each other.

Takes the names of nodes that changed from the state, and writes a log line and an Event of the Node where what is wrong
with its labels is new. Never decides whether a node is enabled: `crds.v1alpha1.enablement` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from controller.actions.pod_events import Recorder
from controller.api.nodes import replicas
from controller.cache.agenda import Agenda
from controller.cache.state import State
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.names import EventReason
from kube.change_log import ChangeLog
from kube.events import ObjectReference

log = logging.getLogger(__name__)


class LabelWarnings:
    """Run often: a node that did not change costs nothing."""

    def __init__(self, recorder: Recorder, state: State, *, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._state = state
        self._log = ChangeLog(log)
        self._agenda = Agenda(clock=clock, every=state.names)
        state.listen(self._agenda.touch)

    def run(self) -> None:
        for name in self._agenda.take():
            node = self._state.node(name)
            problems = (enablement(node.labels).warning, replicas(node.labels)[1]) if node is not None else ()
            problem = "; ".join(filter(None, problems))
            news = self._log.warn(f"node {name}: {problem}" if problem else "", about=name)
            if node is not None and news:
                about = ObjectReference(api_version="v1", kind="Node", name=name, uid=node.uid)
                self._recorder.emit(about, "Warning", EventReason.PARTITIONING_LABELS, problem)
