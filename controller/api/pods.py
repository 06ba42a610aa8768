"""Parses raw JSON of pods into PodViews, once per watch event.

Takes an object as the API server sent it and returns its frozen view. A pod that cannot be understood becomes an
`Unreadable` with the reason and, if it is bound, with what it holds. Reads neither a clock nor another object.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controller.api import scheduling_rules
from controller.api.pod_groups import gang_of
from controller.api.pod_requests import (
    held_requests,
    mixed_container,
    most_mps_per_container,
    most_units,
    mps_users,
    overriding_container,
    pod_requests,
)
from controller.api.reading import Raw, Unreadable, epoch_seconds, readable
from controller.model.views import PodView
from crds.v1alpha1 import names
from kube.pods import FINISHED
from partitioning.resources import classify, is_misnamed


def read_pod(raw: Raw) -> PodView | Unreadable:
    """The view of a pod."""
    found = readable("pod", raw, _pod)
    return _holding(raw, found) if isinstance(found, Unreadable) else found


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
        priority=int(spec.get("priority") or 0),
        created=epoch_seconds(metadata.get("creationTimestamp")),
        pending_since=0 if node else _pending_since(metadata),
        requests=requests,
        gpu=tuple((resource, number) for resource, number in requests if classify(resource) is not None),
        most_mps_per_container=most_mps_per_container(spec),
        most_units=0 if node else most_units(spec),
        mixed_container=() if node else mixed_container(spec),
        overriding_container="" if node else overriding_container(spec),
        misnamed=() if node else tuple(resource for resource, _ in requests if is_misnamed(resource)),
        mps_users=() if node else mps_users(spec),
        scheduler_name=spec.get("schedulerName") or "default-scheduler",
        tolerations=scheduling_rules.tolerations(spec),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        node_affinity=scheduling_rules.node_affinity(spec),
        host_ports=scheduling_rules.host_ports(spec),
        labels=scheduling_rules.labels(metadata),
        affinity=scheduling_rules.affinity_terms(raw, "podAffinity"),
        anti_affinity=scheduling_rules.affinity_terms(raw, "podAntiAffinity"),
        spread=scheduling_rules.spread_constraints(raw),
        volumes=scheduling_rules.claim_uses(raw),
        features=scheduling_rules.features_needed(spec),
        scheduling_gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        unschedulable=any(_is_unschedulable(condition) for condition in status.get("conditions") or ()),
        deleting=bool(metadata.get("deletionTimestamp")),
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
        gang=gang.name,
        gang_size=gang.size,
        gang_api=gang.api_group,
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


def _pending_since(metadata: Raw) -> int:
    """Before a gate was removed the pod did not wait for a place, and its removal is a change of the spec.

    Never before the creation, which no client can choose.
    """
    changes = (entry.get("time") for entry in metadata.get("managedFields") or () if not entry.get("subresource"))
    return max(epoch_seconds(metadata.get("creationTimestamp")), *(epoch_seconds(time) for time in changes if time), 0)


def _nomination_ours(metadata: Raw) -> bool:
    """Ownership is kept by the API server, so that a controller that was restarted knows its own nominations.

    Who creates a pod may give it such entries, but none of a subresource.
    """
    return any(
        entry.get("manager") == names.CONTROLLER_MANAGER
        and entry.get("subresource") == "status"
        and "f:nominatedNodeName" in ((entry.get("fieldsV1") or {}).get("f:status") or {})
        for entry in metadata.get("managedFields") or ()
    )
