"""A control plane for the scheduler alone: objects in bulk, the scheduler's word on a pod, and a clean end.

Takes programs; returns what kube-scheduler made of a pod, once it has seen everything created before. No node
controller runs (there are no kubelets, and nothing may taint or evict), only accounts and claims are handled.
Refusals of the API server are raised.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kube import apply, clients, errors
from kube.transport import request
from kube.watch import WatchStream, WatchTiming
from tests.e2e.random_clusters import shared_objects
from tests.e2e.random_pods import HOSTNAME, NAMESPACES, Json
from tests.e2e.real_cluster import NODES, call
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.waiting import eventually

EXTRA = {
    "kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition,StorageObjectInUseProtection"],
    "kube-controller-manager": [
        "--controllers=serviceaccount-controller,serviceaccount-token-controller,persistentvolume-binder-controller",
        "--pvclaimbinder-sync-period=1s",
    ],
}
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/red/persistentvolumeclaims"
PROBE = "probe"
BARRIER = {"barrier": "last"}
TIMING = WatchTiming(watch_seconds=60)
NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
THREADS = 6
_TRIED = re.compile(r"0/(?P<nodes>\d+) nodes are available: (?P<why>.*?)(?:\. (?=\w)|\.? *$)", re.DOTALL)
_COUNTED = re.compile(r"(?P<count>\d+) (?P<reason>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The verdict of the scheduler on a pod: a node, or a message with its reasons counted over all nodes."""

    node: str = ""
    message: str = ""
    nodes: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    """Empty where no node was tried; then `message` tells why."""


def word_of(message: str) -> Word:
    """A message as in the condition PodScheduled; what it has about preemption is left out."""
    tried = _TRIED.match(message)
    if tried is None:
        return Word(message=message)
    counted: Counter[str] = Counter()
    for part in re.split(r", (?=\d+ )", tried["why"]):
        match = _COUNTED.fullmatch(part)
        if match is None:
            return Word(message=tried["why"], nodes=int(tried["nodes"]))
        counted[match["reason"]] += int(match["count"])
    return Word(message=tried["why"], nodes=int(tried["nodes"]), reasons=tuple(sorted(counted.items())))


class SchedulerRig:
    """One control plane; one cluster at a time."""

    def __init__(
        self, programs: Binaries, directory: Path, flags: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> None:
        """`flags` of parts, besides those that all clusters have here."""
        extra = {part: [*EXTRA.get(part, ()), *flags.get(part, ())] for part in (*EXTRA, *flags)}
        self.plane = RealControlPlane(programs, directory=directory, extra=extra)
        self._threads = ThreadPoolExecutor(THREADS)
        self._kubeconfig = directory / "admin.kubeconfig"
        self._barriers = 0

    def start(self) -> None:
        """Start it, with what all clusters share."""
        self.plane.start()
        self._kubeconfig.touch(mode=0o600)
        self._kubeconfig.write_text(self.plane.kubeconfig())
        self.api = clients.load(str(self._kubeconfig))
        self.create([("/api/v1/namespaces", {"metadata": {"name": PROBE}}), *shared_objects()])
        for namespace in (PROBE, *NAMESPACES):
            self._wait_for_account(namespace)

    def _wait_for_account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        eventually(lambda: call(self.api, "GET", path).allowed, f"the account of {namespace}")

    def stop(self) -> None:
        """End it."""
        self._threads.shutdown()
        self.plane.stop()

    def create(self, objects: Iterable[tuple[str, Json]]) -> list[Json]:
        """Several at once; the answers in the order of the objects."""
        return list(self._threads.map(lambda each: apply.create(self.api, *each), objects))

    def create_nodes(self, nodes: Sequence[Json]) -> None:
        """All of them; whatever the scheduler does after `barrier` knows them."""
        self.create((NODES, node) for node in nodes)

    def all_of(self, path: str) -> list[Json]:
        """All of a collection."""
        items: list[Json] = json.loads(request(self.api, "GET", path))["items"]
        return items

    def several(self, *paths: str) -> list[list[Json]]:
        """All of each collection, requested at the same time."""
        return list(self._threads.map(self.all_of, paths))

    def pods(self) -> list[Json]:
        """Of all namespaces."""
        return self.all_of("/api/v1/pods")

    def barrier(self, *, volumes: bool) -> None:
        """Return when the scheduler has seen everything created so far, by binding a pod to a node made last.

        That node stays, with the pod on it. Events come in order within a kind; claims and volumes are kinds of
        their own.
        """
        self._barriers += 1
        name = f"barrier-{self._barriers}"
        amounts = {"cpu": "1", "memory": "1Gi", "pods": "110"}
        labels = {HOSTNAME: name, **BARRIER}
        status = {"capacity": amounts, "allocatable": amounts}
        spec: Json = {
            "containers": [{"name": "main", "image": "none"}],
            "nodeSelector": {HOSTNAME: name},
            "tolerations": [{"operator": "Exists"}],
        }
        if volumes:
            self._bound_volume(name)
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        self.create_nodes([{"metadata": {"name": name, "labels": labels}, "status": status}])
        path = f"/api/v1/namespaces/{PROBE}/pods"
        pod = apply.create(self.api, path, {"metadata": {"name": name}, "spec": spec})
        if self.word(pod, patient=True).node != name:
            raise AssertionError(f"{name} was bound elsewhere")

    def _bound_volume(self, name: str) -> None:
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        reference = {"namespace": PROBE, "name": name}
        volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/none"}, "claimRef": reference}
        claim = {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
        self.create([(VOLUMES, {"metadata": {"name": name}, "spec": volume})])
        self.create(
            [(f"/api/v1/namespaces/{PROBE}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": claim})]
        )

    def word(self, pod: Json, *, patient: bool = False) -> Word:
        """The verdict of the scheduler on a pod that was just created; `patient` waits until it is bound."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        query = {"fieldSelector": f"metadata.name={metadata['name']}"}
        stream = WatchStream(self.api, path, query, version=metadata["resourceVersion"], timing=TIMING)
        last = Word(message="no verdict of the scheduler")
        for event in stream:
            if event.type == "MODIFIED":
                verdict = verdict_of(event.object)
                if verdict is not None and (verdict.node or not patient):
                    stream.close()
                    return verdict
                last = verdict or last
        return last

    def clear(self) -> None:
        """No node, pod, claim or volume is left."""
        self._delete_all(*(f"/api/v1/namespaces/{namespace}/pods" for namespace in (PROBE, *NAMESPACES)))
        claims = [f"/api/v1/namespaces/{namespace}/persistentvolumeclaims" for namespace in (PROBE, "red")]
        self._delete_all(NODES, *claims)
        self._delete_all(VOLUMES)

    def _delete_all(self, *paths: str) -> None:
        list(self._threads.map(self._delete_one, paths))

    def _delete_one(self, path: str) -> None:
        request(self.api, "DELETE", path, body=NOW)
        eventually(lambda: not self.all_of(path), f"nothing is left of {path}")

    def delete_pod(self, pod: Json, *, grace_seconds: int = 0) -> None:
        """At once, or by and by: without a kubelet the pod then stays, being deleted."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        try:
            apply.delete(self.api, path, grace_seconds=grace_seconds)
        except errors.NotFound:
            return


def verdict_of(pod: Json) -> Word | None:
    """The scheduler's last verdict on a pod; None while there is none."""
    if pod["spec"].get("nodeName"):
        return Word(node=pod["spec"]["nodeName"])
    conditions: Any = (pod.get("status") or {}).get("conditions") or ()
    scheduled = next((each for each in conditions if each["type"] == "PodScheduled"), None)
    if scheduled is None:
        return None
    message = scheduled.get("message", "")
    return word_of(message) if scheduled.get("reason") == "Unschedulable" else Word(message=message)
