"""Raw JSON of pods and nodes -> slim views, once per watch event.

In goes an object as the API server sent it, out comes its frozen view. An object that cannot be understood becomes an
`Unreadable` with the reason, and of a bound pod with what it holds all the same; the watch goes on. Nothing here reads
a clock or another object; plans are read in `parse_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from controller import parse_scheduling
from controller.gangs import gang_of
from controller.pod_requests import amounts, held_requests, mixed_container, most_mps_per_container, pod_requests
from controller.scheduling import Taint
from controller.triggers import FINISHED
from controller.views import NodeView, PodView
from crds.v1alpha1 import names
from partitioning.resources import classify, is_misnamed

Raw = Mapping[str, Any]
View = TypeVar("View")

MODES = ("mig", "mps", "auto")
FOREIGN_MODES = ("mig", "mps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object that is left out, and why."""

    kind: str
    name: str
    reason: str
    uid: str = ""
    node: str = ""
    """Of a pod that is bound."""
    finished: bool = False
    """A pod that holds nothing any more."""
    held: PodView | None = None
    """Of a bound pod, if its requests alone can be read: those, and nothing that would need the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enablement:
    """What a node's labels say: `mode` is None where it is not enabled; `remark` is for the node's owner."""

    mode: str | None
    remark: str = ""


def read_pod(raw: Raw) -> PodView | Unreadable:
    """The view of a pod."""
    found = readable("pod", raw, _pod)
    return _holding(raw, found) if isinstance(found, Unreadable) else found


def read_node(raw: Raw) -> NodeView | Unreadable:
    """The view of a node."""
    return readable("node", raw, _node)


def readable(kind: str, raw: Raw, read: Callable[[Raw], View]) -> View | Unreadable:
    """The one place where a broken object is turned into a value."""
    try:
        return read(raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = f"field {error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        return Unreadable(kind=kind, name=_title(raw), reason=f"{what} ({type(error).__name__})")


def enablement(labels: Mapping[str, str]) -> Enablement:
    """Our label wins; of the labels of other systems those that name a mode we know count, if they agree."""
    ours = labels.get(names.LABEL_PARTITIONING)
    foreign = {
        label: labels[label] for label in names.FOREIGN_PARTITIONING_LABELS if labels.get(label) in FOREIGN_MODES
    }
    others = ", ".join(f"{label}={value}" for label, value in foreign.items())
    if ours is not None:
        if ours not in MODES:
            return Enablement(
                mode=None,
                remark=f"label {names.LABEL_PARTITIONING}={ours} is not understood: use one of {', '.join(MODES)}",
            )
        rivals = any(value != ours for value in foreign.values())
        return Enablement(
            mode=ours, remark=f"label {names.LABEL_PARTITIONING}={ours} is followed, not {others}" if rivals else ""
        )
    if len(set(foreign.values())) > 1:
        return Enablement(
            mode=None, remark=f"labels {others} disagree: set {names.LABEL_PARTITIONING} to say which one counts"
        )
    return Enablement(mode=next(iter(foreign.values()), None))


# --------------------------------------------------------------------------------------------------- pods


def _pod(raw: Raw) -> PodView:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    node = spec.get("nodeName") or ""
    totals = held_requests(raw) if node else pod_requests(raw)
    requests = tuple(sorted((resource, number) for resource, number in totals.items() if number))
    gang = gang_of(raw)
    owner: Raw = next((entry for entry in metadata.get("ownerReferences") or () if entry.get("controller")), {})
    return PodView(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        node=node,
        nominated_node=status.get("nominatedNodeName") or "",
        nomination_ours=_nomination_ours(metadata),
        phase=status.get("phase") or "Pending",
        priority=spec.get("priority") or 0,
        created=epoch_seconds(metadata.get("creationTimestamp")),
        requests=requests,
        gpu=tuple((resource, number) for resource, number in requests if classify(resource) is not None),
        most_mps_per_container=most_mps_per_container(spec),
        mixed_container=() if node else mixed_container(spec),
        misnamed=() if node else tuple(resource for resource, _ in requests if is_misnamed(resource)),
        host_ipc=bool(spec.get("hostIPC")),
        scheduler_name=spec.get("schedulerName") or "default-scheduler",
        tolerations=parse_scheduling.tolerations(spec),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        node_affinity=parse_scheduling.node_affinity(spec),
        host_ports=parse_scheduling.host_ports(spec),
        labels=parse_scheduling.labels(metadata),
        affinity=parse_scheduling.affinity_terms(raw, "podAffinity"),
        anti_affinity=parse_scheduling.affinity_terms(raw, "podAntiAffinity"),
        spread=parse_scheduling.spread_constraints(raw),
        volumes=parse_scheduling.claim_uses(raw),
        features=parse_scheduling.features_needed(spec),
        scheduling_gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        unschedulable=any(_is_unschedulable(condition) for condition in status.get("conditions") or ()),
        deleting=bool(metadata.get("deletionTimestamp")),
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
        gang=gang.name,
        gang_size=gang.size,
        claims=bool(spec.get("resourceClaims")),
    )


def _holding(raw: Raw, found: Unreadable) -> Unreadable:
    """With the node of a pod that holds something there, whatever else is wrong with it."""
    where = readable("pod", raw, _place)
    if isinstance(where, Unreadable):
        return found
    found = replace(found, uid=where.uid, node=where.node, finished=where.phase in FINISHED)
    held = readable("pod", raw, lambda raw: replace(where, **_held(raw)))
    return replace(found, held=held) if where.node and isinstance(held, PodView) else found


def _place(raw: Raw) -> PodView:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status")
    node, phase = spec.get("nodeName") or "", status.get("phase") if isinstance(status, Mapping) else None
    texts = {"namespace": metadata.get("namespace", ""), "name": metadata["name"], "uid": metadata["uid"], "node": node}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("names must be texts")
    return PodView(**texts, phase=phase if isinstance(phase, str) else "Pending")


def _held(raw: Raw) -> dict[str, Any]:
    requests = tuple(sorted((resource, number) for resource, number in held_requests(raw).items() if number))
    return {"requests": requests, "gpu": tuple(pair for pair in requests if classify(pair[0]) is not None)}


def _is_unschedulable(condition: Raw) -> bool:
    return (
        condition.get("type") == "PodScheduled"
        and condition.get("status") == "False"
        and condition.get("reason") == "Unschedulable"
    )


def _nomination_ours(metadata: Raw) -> bool:
    """Ownership is kept by the API server, so that a controller that was restarted knows its own nominations."""
    return any(
        entry.get("manager") == names.CONTROLLER_MANAGER
        and "f:nominatedNodeName" in ((entry.get("fieldsV1") or {}).get("f:status") or {})
        for entry in metadata.get("managedFields") or ()
    )


# -------------------------------------------------------------------------------------------------- nodes


def _node(raw: Raw) -> NodeView:
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = dict(metadata.get("labels") or {})
    return NodeView(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=labels,
        taints=tuple(
            Taint(key=entry["key"], value=entry.get("value") or "", effect=entry.get("effect") or "")
            for entry in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=amounts(status.get("allocatable")),
        ready=not metadata.get("deletionTimestamp")
        and all(
            condition.get("status") == "True"
            for condition in status.get("conditions") or ()
            if condition.get("type") == "Ready"
        ),
        partitioning=enablement(labels).mode,
        product=labels.get(names.LABEL_PRODUCT, ""),
        gpu_count=_whole_number(labels.get(names.LABEL_COUNT)),
        gpu_memory_mib=_whole_number(labels.get(names.LABEL_MEMORY)),
        features=tuple(sorted(status.get("declaredFeatures") or ())),
    )


def _whole_number(text: str | None) -> int:
    """A label's number; labels are free text, and a wrong one must not cost us the node."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


# ------------------------------------------------------------------------------------------------- shared


def epoch_seconds(timestamp: str | None) -> int:
    """RFC 3339 -> whole seconds since 1970; 0 where there is none."""
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0


def _title(raw: Raw) -> str:
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping):
        return "?"
    namespace, name = metadata.get("namespace"), metadata.get("name", "?")
    return f"{namespace}/{name}" if namespace else str(name)
