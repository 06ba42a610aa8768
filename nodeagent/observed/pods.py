"""Reads the pods of this node as the API shows them.

Takes raw pods, returns frozen `NodePod`s with the devices that each container requests. Knows nothing of what the
kubelet reports, and believes no name or label that a tenant can write where more than that tenant depends on it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from kube.pods import FINISHED, all_containers, pod_amounts, staying_containers
from kube.quantities import to_int
from nodeagent.hardware.gpu_ids import KNOWN, GpuResources
from partitioning.resources import classify

DEFAULT_GRACE_SECONDS = 30
MIG_MANAGER = ("app", "nvidia-mig-manager")
"""Label of the pods of NVIDIA's mig-manager, as the GPU Operator deploys them. They mount the node's /sys."""
_OF_MIG_MANAGER = ("/", "/sys")
DEVICE_PLUGINS = (
    ("app", "nvidia-device-plugin-daemonset"),
    ("name", "nvidia-device-plugin-ds"),
    ("app.kubernetes.io/name", "nvidia-device-plugin"),
    ("k8s-app", "nvidia-gpu-device-plugin"),
)
"""Labels of the pods of NVIDIA's device plugin: GPU Operator, static manifest, Helm chart, GKE."""
MPS_DAEMON = "mps-control-daemon-ctr"
"""Container of NVIDIA's MPS control daemon: its pods have the labels of the device plugin's."""
DRA_DRIVER = (
    ("dra-driver-nvidia-gpu-component", "kubelet-plugin"),
    ("nvidia-dra-driver-gpu-component", "kubelet-plugin"),
)
"""Labels of the pods of NVIDIA's DRA driver, by the later and the earlier chart."""
DRA_OF_GPUS = "gpus"
"""Its container that gives out GPUs; another one is for compute domains alone."""
BY_REQUEST = "rpc error: code = InvalidArgument"
"""In the kubelet's message: our device plugin can give no container what this one requests."""
_RESOURCE_NAME = re.compile(r"[\w.-]+/[\w.-]*\w", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{32}")
IN_CGROUP = ("runc", "crun", "nvidia", "nvidia-cdi", "nvidia-legacy", "nvidia-experimental")
"""Names of runtime classes, as the GPU Operator and the runtimes' documentation have them, whose containers are
processes in their pod's cgroups. Those of virtual machines may not be."""
Amounts = tuple[tuple[str, int], ...]


IDENTITY = ("uid", "namespace", "name")
OF_ANY_POD = (*IDENTITY, "ended", "ending", "handled", "grace_seconds", "began", "started", "outside", "mig_strategy")
"""Fields of `NodePod` that say nothing of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """What the agent must know of a pod that is bound to its node."""

    uid: str
    """As the kubelet has it: a static pod's is a hash of its file, whatever its mirror's in the API is."""
    namespace: str
    name: str
    containers: tuple[tuple[str, Amounts], ...] = ()
    """App and sidecar containers that request devices, with how many of which resource."""
    hidden: Amounts = ()
    """Devices that plain init containers took beyond what later containers reuse: held, and never listed."""
    ended: bool = False
    """Finished, and no container is reported as running: a phase that something else wrote does not end a container."""
    ending: bool = False
    """Finished, and a container is still reported as running: the kubelet ends it, or nothing reports its end."""
    handled: bool = False
    """The kubelet has accepted it (startTime is set)."""
    started: bool = False
    """The API has shown a container of it."""
    outside: bool = False
    """Its runtime class may run its processes outside of its cgroups."""
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    reported: tuple[str, ...] = ()
    """Device ids in allocatedResourcesStatus."""
    began: str = ""
    """When the kubelet first reported it, else when it was created; as the API writes times."""
    refused: str = ""
    """Why the kubelet refused it permanently, if that names a GPU resource that the pod requests, and not how much it
    requests."""
    mig_manager: bool = False
    """It partitions GPUs by a node label, and removes other partitions when it starts and when that label changes, and
    can reach directories of the node."""
    device_plugin: bool = False
    """It is NVIDIA's device plugin, and can reach the kubelet's directory of plugins."""
    dra_driver: bool = False
    """It is NVIDIA's DRA driver, serves GPUs, and can reach the kubelet's directory of drivers."""
    mig_strategy: str = ""
    """In its environment, where NVIDIA's programs take it before any config file."""
    mps_daemon: bool = False
    """It is NVIDIA's MPS control daemon, and can reach directories of the node."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else f"UID {self.uid}"

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def concerns_gpus(self) -> bool:
        """It may hold one, or is a program that works on them: what happens to it is looked at in a pass."""
        return any(getattr(self, field.name) for field in fields(self) if field.name not in OF_ANY_POD)

    @property
    def requested(self) -> int:
        """How many devices its containers request that stay."""
        return sum(count for _, amounts in self.containers for _, count in amounts)

    @property
    def resources(self) -> tuple[str, ...]:
        """Every resource it may hold."""
        requested = {resource for _, amounts in self.containers for resource, _ in amounts}
        return tuple(sorted(requested | {resource for resource, _ in self.hidden}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPods:
    """One moment of the pod book."""

    pods: tuple[NodePod, ...] = ()
    vanished: tuple[NodePod, ...] = ()
    """Those that left the API before their containers were observed to end."""
    ended: frozenset[str] = frozenset()
    """UIDs of pods that were observed to end, those included that left the API a moment ago."""
    departed: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of pods that ended and left the API a moment ago."""
    synced: bool = False

    @property
    def unended(self) -> tuple[NodePod, ...]:
        """Those that vanished before they were observed to end, then those that live."""
        return (*self.vanished, *(pod for pod in self.pods if not pod.ended))

    @property
    def mig_manager(self) -> str:
        """The pod that also partitions this node's GPUs, if there is one."""
        return next((pod.title for pod in self.pods if pod.mig_manager and not pod.ended), "")

    @property
    def dra_driver(self) -> str:
        """The pod of NVIDIA's DRA driver that serves this node's GPUs, if there is one."""
        return next((pod.title for pod in self.pods if pod.dra_driver and not pod.ended), "")

    @property
    def device_plugin(self) -> NodePod | None:
        """The pod of NVIDIA's device plugin on this node, if there is one; of several the youngest."""
        return _youngest(pod for pod in self.pods if pod.device_plugin)

    @property
    def mps_daemon(self) -> NodePod | None:
        """The pod of NVIDIA's MPS control daemon, likewise."""
        return _youngest(pod for pod in self.pods if pod.mps_daemon)


def _youngest(pods: Iterable[NodePod]) -> NodePod | None:
    return max((pod for pod in pods if not pod.ended), key=lambda pod: (pod.began, pod.uid), default=None)


def parse_pod(raw: Mapping[str, Any], resources: GpuResources = KNOWN) -> NodePod:
    """Read a pod of the API."""
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    running = any("running" in (found.get("state") or {}) for found in statuses)
    labels = (metadata.get("labels") or {}).items()
    requests = [(container["name"], _requested(container)) for container in staying_containers(spec)]
    paths = _host_paths(spec)
    environment = [entry for container in all_containers(spec) for entry in container.get("env") or ()]
    return NodePod(
        uid=kubelet_uid(metadata),
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        containers=tuple((name, amounts) for name, amounts in requests if amounts),
        hidden=_hidden(spec),
        ended=status.get("phase") in FINISHED and not running,
        ending=status.get("phase") in FINISHED and running,
        handled=bool(status.get("startTime")),
        started=any("waiting" not in (s.get("state") or {"waiting": {}}) or s.get("containerID") for s in statuses),
        outside=spec.get("runtimeClassName", IN_CGROUP[0]) not in IN_CGROUP,
        began=status.get("startTime") or metadata.get("creationTimestamp") or "",
        grace_seconds=max(int(grace or 0), int(metadata.get("deletionGracePeriodSeconds") or 0)),
        reported=tuple(sorted(_reported(statuses, resources))),
        refused=_refused(status, {name for c in all_containers(spec) for name, _ in _requested(c)}),
        mig_manager=MIG_MANAGER in labels and any(path in _OF_MIG_MANAGER for path in paths),
        device_plugin=any(label in labels for label in DEVICE_PLUGINS)
        and any(path.endswith("/device-plugins") for path in paths),
        mig_strategy=next((e.get("value", "") for e in environment if e["name"] == "MIG_STRATEGY"), ""),
        dra_driver=any(label in labels for label in DRA_DRIVER)
        and any(path.endswith("/plugins") for path in paths)
        and _has_container(spec, DRA_OF_GPUS),
        mps_daemon=bool(paths) and _has_container(spec, MPS_DAEMON),
    )


def kubelet_uid(metadata: Mapping[str, Any]) -> str:
    """By which it and the kernel's cgroups name a pod of the API."""
    annotations = metadata.get("annotations") or {}
    static = annotations.get("kubernetes.io/config.hash", "") if "kubernetes.io/config.mirror" in annotations else ""
    # Any client can write annotations: no pod of the API has a UID of this form.
    return static if _HASH.fullmatch(static) else str(metadata.get("uid", ""))


def _has_container(spec: Mapping[str, Any], name: str) -> bool:
    return any(container["name"] == name for container in spec.get("containers") or ())


def _host_paths(spec: Mapping[str, Any]) -> list[str]:
    """Labels and names alone prove nothing: every tenant can write them, and few may mount a path of the node."""
    paths = ((volume.get("hostPath") or {}).get("path") or "" for volume in spec.get("volumes") or ())
    return [path.rstrip("/") or "/" for path in paths if path]


def _requested(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    requested = ((name, to_int(amount)) for name, amount in sorted(amounts.items()) if classify(name) is not None)
    return tuple((name, count) for name, count in requested if count > 0)


def _hidden(spec: Mapping[str, Any]) -> Amounts:
    """Per resource: the most that was held at once during initialisation, less what List shows afterwards."""
    amounts = pod_amounts(spec, lambda container: dict(_requested(container)))
    beyond = ((name, count - amounts.running.get(name, 0)) for name, count in sorted(amounts.most.items()))
    return tuple((name, count) for name, count in beyond if count > 0)


def _reported(statuses: Iterable[Mapping[str, Any]], resources: GpuResources) -> set[str]:
    return {
        device["resourceID"]
        for container in statuses
        for resource in container.get("allocatedResourcesStatus") or ()
        for device in resource.get("resources") or ()
        if resources.concerns(resource.get("name", ""), device.get("resourceID", "")) and "resourceID" in device
    }


def _refused(status: Mapping[str, Any], requested: Collection[str]) -> str:
    """The kubelet's message; empty where another resource, such as that of a network card's plugin, was the reason, or
    the request itself."""
    reason, message = str(status.get("reason", "")), str(status.get("message") or "")
    if BY_REQUEST in message:
        return ""
    if reason == "UnexpectedAdmissionError":
        named = set(_RESOURCE_NAME.findall(message))
    else:
        named = {reason.removeprefix("OutOf")} if reason.startswith("OutOf") else set()
    return (message or reason) if status.get("phase") == "Failed" and not named.isdisjoint(requested) else ""
