"""Files of recorded scheduler verdicts -> clusters that the simulator understands.

Reads a (gzipped) JSON file of kube-scheduler's recorded verdicts, returns `Recorded` clusters. Objects
are taken as the scheduler saw them: nothing that the API server fills in on creation is filled in here, so that limits
without requests request nothing, as for the scheduler. Whatever does not have that form is a ValueError that names the
cluster and the field.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from controller.api.nodes import read_node
from controller.api.pods import read_pod
from controller.api.reading import Unreadable
from controller.api.storage import (
    read_claim,
    read_device_class,
    read_namespace,
    read_service,
    read_storage_class,
    read_volume,
    read_workload,
)
from controller.config.scheduler_config import read_profiles
from controller.model.scheduling import SchedulerProfiles, SchedulingContext
from controller.model.views import NodeView, PodView
from kube.pods import FINISHED

Json = Mapping[str, Any]
View = TypeVar("View")
Verdicts = Mapping[str, Mapping[str, tuple[str, ...]]]
_GZIP = b"\x1f\x8b"
OF_PODS_OWN = ("ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds whose selector the scheduler takes for default constraints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One cluster, and what the scheduler decided: per pending pod and node nothing, or the plugin and its message."""

    nodes: Sequence[NodeView]
    running: Sequence[PodView]
    pending: Mapping[str, PodView]
    context: SchedulingContext
    profiles: SchedulerProfiles
    expected: Verdicts


def read_file(path: Path) -> list[Json]:
    """The clusters of a file, gzipped or not, as they are."""
    content = path.read_bytes()
    try:
        clusters = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
    except (UnicodeDecodeError, json.JSONDecodeError, EOFError, zlib.error) as error:
        raise ValueError(f"neither JSON nor gzipped JSON: {error}") from error
    if not isinstance(clusters, list):
        raise ValueError(f"holds {_shape(clusters)}, a list of clusters is needed")
    return clusters


def read_cluster(raw: Json, where: str) -> Recorded:
    """One of them. `where` is its name in messages."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where} is {_shape(raw)}, an object with Nodes, Existing, Pods and Expected is needed")
    profiles = _profiles(raw.get("Config"), where)
    pending = {pod.name: _followed(pod, profiles) for pod in _pods(raw, "Pods", where)}
    nodes = [_read(read_node, _identified(each), place) for place, each in _listed(raw, "Nodes", where)]
    return Recorded(
        nodes=nodes,
        running=[pod for pod in _pods(raw, "Existing", where) if pod.phase not in FINISHED],
        pending=pending,
        context=_context(raw, where),
        profiles=profiles,
        expected=_expected(raw, where, pending, {node.name for node in nodes}),
    )


def _pods(raw: Json, field: str, where: str) -> list[PodView]:
    return [_read(read_pod, _as_stored(_identified(each)), place) for place, each in _listed(raw, field, where)]


def _followed(pod: PodView, profiles: SchedulerProfiles) -> PodView:
    """A recorder has one framework, the first profile's, whatever scheduler its pods name."""
    return pod if pod.scheduler_name in profiles else replace(pod, scheduler_name=next(iter(profiles)))


def _profiles(config: object, where: str) -> SchedulerProfiles:
    try:
        return read_profiles(config if isinstance(config, str) else json.dumps(config))
    except ValueError as error:
        raise ValueError(f"{where}.Config {error}") from error


def _expected(raw: Json, where: str, pods: Mapping[str, PodView], nodes: set[str]) -> Verdicts:
    table = _required(raw, "Expected", where, Mapping)
    verdicts: dict[str, dict[str, tuple[str, ...]]] = {}
    for pod, row in table.items():
        place = f"{where}.Expected.{pod}"
        if pod not in pods:
            raise ValueError(f"{place}: there is no such pod in {where}.Pods")
        if not isinstance(row, Mapping):
            raise ValueError(f"{place} is {_shape(row)}, an object of nodes is needed")
        for node, verdict in row.items():
            if node not in nodes:
                raise ValueError(f"{place}.{node}: there is no such node in {where}.Nodes")
            if not isinstance(verdict or [], list) or not all(isinstance(word, str) for word in verdict or ()):
                raise ValueError(f"{place}.{node} must be empty, or name a plugin and its message")
            verdicts.setdefault(pod, {})[node] = tuple(verdict or ())
    return verdicts


def _context(raw: Json, where: str) -> SchedulingContext:
    """Kinds that a file does not hold were not there either."""

    def read(field: str, reader: Callable[[Json], View | Unreadable]) -> dict[tuple[str, str], View]:
        return {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"]): _read(reader, each, place)
            for place, raw_object in (_listed(raw, field, where) if field in raw else ())
            for each in (_identified(raw_object),)
        }

    return SchedulingContext(
        namespaces={name: labels for (_, name), labels in read("Namespaces", read_namespace).items()},
        claims=read("PersistentVolumeClaims", read_claim),
        volumes={name: volume for (_, name), volume in read("PersistentVolumes", read_volume).items()},
        storage_classes={name: found for (_, name), found in read("StorageClasses", read_storage_class).items()},
        services=read("Services", read_service),
        workloads={
            (kind, *key): selector for kind in OF_PODS_OWN for key, selector in read(f"{kind}s", read_workload).items()
        },
        dra_resources=frozenset().union(*read("DeviceClasses", read_device_class).values()),
    )


def _as_stored(pod: Json) -> Json:
    """The pod without what only the API server's defaulting would read."""
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return pod
    affinity = {
        kind: _without_keys(terms) if kind in ("podAffinity", "podAntiAffinity") else terms
        for kind, terms in (spec.get("affinity") or {}).items()
    }
    stored = {**spec, "affinity": affinity, "resources": _without_limits(spec.get("resources"))}
    for field in ("containers", "initContainers"):
        stored[field] = [
            {
                **container,
                "resources": _without_limits(container.get("resources")),
                "ports": [port for port in container.get("ports") or () if port.get("hostPort")],
            }
            for container in spec.get(field) or ()
        ]
    return {**pod, "spec": stored}


def _without_limits(resources: Json | None) -> Json:
    return {"requests": (resources or {}).get("requests")}


def _without_keys(affinity: Json | None) -> Json:
    """matchLabelKeys are part of the selector once the API server has taken the pod."""
    keys = ("matchLabelKeys", "mismatchLabelKeys")
    return {
        field: [{key: value for key, value in term.items() if key not in keys} for term in terms or ()]
        for field, terms in (affinity or {}).items()
    }


def _identified(raw: Json) -> Json:
    """Objects need no uid here."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        return raw
    return {**raw, "metadata": {"uid": f"{metadata.get('namespace', '')}/{metadata['name']}", **metadata}}


def _read(reader: Callable[[Json], View | Unreadable], raw: Json, place: str) -> View:
    try:
        view = reader(raw)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from error
    if isinstance(view, Unreadable):
        raise ValueError(f"{place} ({view.name}): {view.reason}")
    return view


def _listed(raw: Json, field: str, where: str) -> list[tuple[str, Json]]:
    found = []
    for position, each in enumerate(_required(raw, field, where, Sequence)):
        place = f"{where}.{field}[{position}]"
        if not isinstance(each, Mapping):
            raise ValueError(f"{place} is {_shape(each)}, an object is needed")
        found.append((place, each))
    return found


def _required(raw: Json, field: str, where: str, shape: type) -> Any:
    if field not in raw:
        raise ValueError(f"{where}.{field} is missing")
    value = raw[field]
    if value is None:
        return {} if shape is Mapping else []
    if not isinstance(value, shape) or isinstance(value, str):
        raise ValueError(
            f"{where}.{field} is {_shape(value)}, {'an object' if shape is Mapping else 'a list'} is needed"
        )
    return value


def _shape(value: object) -> str:
    return {dict: "an object", list: "a list", str: "a text", type(None): "nothing"}.get(type(value), "a number")
