"""What the scheduler keeps of a pod, and what one attempt to place it came to.

Pure values: `read_pod` projects a watched pod, the rest carries answers between the scheduler's parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from controller.api import nodes, pods
from controller.api.reading import Unreadable
from controller.model.views import NodeView, PodView

FINISHED = ("Succeeded", "Failed")
_DECIDING = attrgetter(
    *("priority", "requests", "tolerations", "node_selector", "node_affinity", "host_ports", "features", "claims")
)
"""All of a pod that decides where it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod that is not finished. `reported` is why it is not scheduled, by its condition."""

    view: PodView
    generation: int = 0
    reported: str = ""

    @property
    def signature(self) -> object:
        return _DECIDING(self.view)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No node takes the pod: the sentence for people, and the plugins that refused."""

    message: str
    plugins: frozenset[str]


def read_pod(raw: Mapping[str, Any]) -> PodRecord | None:
    """None for a finished pod, which holds nothing. An unreadable one raises ValueError, with the reason."""
    status = raw.get("status") or {}
    if status.get("phase") in FINISHED:
        return None
    view = pods.read_pod(raw)
    if isinstance(view, Unreadable):
        raise ValueError(f"{view.kind} {view.name}: {view.reason}")
    return PodRecord(view=view, generation=raw["metadata"].get("generation") or 0, reported=_reported(status))


def read_node(raw: Mapping[str, Any]) -> NodeView:
    view = nodes.read_node(raw)
    if isinstance(view, Unreadable):
        raise ValueError(f"{view.kind} {view.name}: {view.reason}")
    return view


def _reported(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""
