"""Raw API objects as an API server holds them, for every test: defaulted, with one H100 and a request of one MIG slice.

`manifest` makes of one what can be created. Views are derived from them in `tests.builders.views`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from crds.v1alpha1 import names
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import PlanSpec
from deploy.generate.crd import definition
from partitioning.resources import mig_resource, profile_of_resource
from tests.builders.models import H100

Json = dict[str, Any]
SLICE = "nvidia.com/mig-1g.10gb"
H100_NAME = "NVIDIA H100 80GB HBM3"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
GIVEN_BY_THE_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp")


@cache
def crd() -> Json:
    """Made once in a process: making it takes as long as starting a server."""
    return definition()


def uuid_of(index: int) -> str:
    return f"GPU-0000000{index}-0000-0000-0000-000000000000"


def manifest(raw: Json, *, status: bool = True) -> Json:
    """What is created at an API server: without what only the server gives, and without an empty status.

    `status`: whether one that is not empty stays; what a person writes has none.
    """
    metadata = {key: value for key, value in raw["metadata"].items() if key not in GIVEN_BY_THE_SERVER}
    return {key: value for key, value in raw.items() if key != "status" or (value and status)} | {"metadata": metadata}


def container(
    name: str = "main",
    limits: Mapping[str, str | int] | None = None,
    *,
    image: str = "i",
    sleep: float | str | None = None,
    env: Mapping[str, str] | None = None,
    **fields: Any,
) -> Json:
    """`sleep` is what it does, in seconds or `infinity`."""
    raw = {"name": name, "image": image, "resources": {"limits": dict(limits or {})}, **fields}
    if sleep is not None:
        raw["command"] = ["sleep", str(sleep)]
    if env:
        raw["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return raw


def pod(
    name: str = "p",
    *,
    requests: Mapping[str, str | int] | None = None,
    containers: Iterable[Json] | None = None,
    node: str = "",
    unschedulable: bool = True,
    nominated: str = "",
    phase: str = "Pending",
    namespace: str = "default",
    uid: str = "",
    metadata: Json | None = None,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """A pod that the scheduler refused, by default.

    `containers` replace the one that requests `requests`, and `status` replaces what shows the pod's phase.
    """
    shown: Json = {
        "phase": phase,
        "conditions": [UNSCHEDULABLE] if unschedulable and not node else [],
        **({"nominatedNodeName": nominated} if nominated else {}),
    }
    limits = {SLICE: "1"} if requests is None else requests
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}", **(metadata or {})},
        "spec": {
            "containers": [container(limits=limits)] if containers is None else list(containers),
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": shown if status is None else status,
    }


def node(
    name: str = "n1",
    *,
    mode: str | None = "mig",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    metadata: Json | None = None,
    spec: Json | None = None,
    allocatable: Mapping[str, str] | None = None,
) -> Json:
    """A node with one H100, enabled unless `mode` is None; `labels` replace those of its hardware and its mode."""
    found = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "1"}
    if mode is not None:
        found |= {names.LABEL_PARTITIONING: mode, names.LABEL_NODE_AGENT: "true"}
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **(allocatable or {})}
    given = found if labels is None else dict(labels)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": given, **(metadata or {})},
        "spec": spec or {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def config_map(name: str, data: Mapping[str, str], *, namespace: str = "default") -> Json:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def lease(name: str, spec: Json | None = None, **metadata: Any) -> Json:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**head, "metadata": {"name": name, **metadata}, "spec": spec or {}}


def binding(pod: str, node: str) -> Json:
    target = {"kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}


def item(index: int = 0, *starts: int, profile: str = "1g.10gb") -> Json:
    """An item of a plan with placed instances of one profile."""
    instances = [{"profile": profile, "start": start} for start in starts]
    return {"index": index, "uuid": uuid_of(index), "mig": {"instances": instances}}


def plan(
    name: str = "n1",
    *,
    version: int = 10,
    generation: int = 1,
    uid: str = "",
    spec: Json | None = None,
    planned: Iterable[Json] | None = None,
    status: Json | None = None,
) -> Json:
    """A plan; `planned` are the controller's items."""
    written: Json = {"nodeName": name, **(spec or {})}
    if planned is not None:
        written["planned"] = {"gpus": list(planned)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": name,
            "uid": uid or f"uid-plan-{name}",
            "resourceVersion": str(version),
            "generation": generation,
        },
        "spec": written,
        "status": status or {},
    }


def partition(start: int = 0, state: str = "Free", *, pod: str = "", resource: str = SLICE) -> Json:
    spec = H100.profile(profile_of_resource(resource) or "")
    size = spec.size if spec is not None else 1
    found = {"resource": resource, "uuid": f"MIG-{start}", "start": start, "size": size, "state": state}
    return {**found, "pod": pod} if pod else found


def gpu(index: int = 0, *, state: str = "Ready", item: Json | None = None, partitions: Iterable[Json] = ()) -> Json:
    """A GPU of a status; `item` is the item that it confirms."""
    return {
        "index": index,
        "uuid": uuid_of(index),
        "model": H100_NAME,
        "state": state,
        "migMode": "Enabled",
        "partitions": list(partitions),
        **({"planHash": item_hash(item)} if item is not None else {}),
    }


def status(*gpus: Json, node_uid: str = "uid-n1", observed: int = 1, conditions: Iterable[Json] = ()) -> Json:
    return {
        "observedGeneration": observed,
        "node": {"uid": node_uid},
        "gpus": list(gpus),
        "conditions": list(conditions),
    }


def condition(kind: str, value: str, reason: str, generation: int = 1, since: str = "2026-01-01T00:00:00Z") -> Json:
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def confirmed(raw: Json, *, used: Iterable[int] = ()) -> Json:
    """The status that an agent writes when everything the plan lists is there; `used` are starts."""
    gpus = []
    for index, found in effective_items(PlanSpec.read(raw["spec"])).items():
        wire = found.wire()
        partitions = [
            partition(i["start"], "Used" if i["start"] in used else "Free", resource=mig_resource(i["profile"]))
            for i in wire.get("mig", {}).get("instances", [])
        ]
        gpus.append(gpu(index, item=wire, partitions=partitions))
    return status(*gpus, node_uid=f"uid-{raw['metadata']['name']}", observed=raw["metadata"]["generation"])
