"""Fakes the API of a kubelet: pods and one node in memory, watched by the kubelet and written by both sides.

Records what the kubelet wrote. It merges statuses as the API server would and decides nothing by itself.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from kube.errors import NotFound, Unavailable
from sandbox.kubelet.api import ClusterApi, NodeChange, PodChange, Watch
from sandbox.kubelet.node_status import read_node
from sandbox.kubelet.pods import Pod, parse_pod
from tests.sandbox.kubelet.builders import NODE

Raw = dict[str, Any]


class FakeWatch:
    def __init__(self, begin: Callable[[], bool]) -> None:
        self.synced = threading.Event()
        self.stopped = False
        self._begin = begin

    def start(self) -> None:
        if self._begin():
            self.synced.set()

    def stop(self) -> None:
        self.stopped = True


class FakeClusterApi(ClusterApi):
    """Pods and one node. Statuses are merged as a strategic merge would: keys replace, conditions merge by type."""

    def __init__(self, node: Raw | None = None) -> None:  # it has no client
        self.lock = threading.RLock()
        self.node: Raw | None = node
        self.pods: dict[str, Raw] = {}
        self.events: list[tuple[str, str, str, str]] = []
        self.node_patches: list[tuple[float, Raw]] = []
        self.statuses: list[tuple[str, Raw]] = []
        self.kept_by_finalizer: set[str] = set()
        self.leases = 0
        self.refused_node_patches = 0
        self.reachable = True
        self._pod_watches: list[tuple[FakeWatch, PodChange]] = []
        self._node_watches: list[tuple[FakeWatch, NodeChange]] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def watch_pods(self, on_change: PodChange) -> Watch:
        def begin() -> bool:
            with self.lock:
                self._pod_watches.append((watch, on_change))
                if not self.reachable:
                    return False
                for raw in list(self.pods.values()):
                    self._show(watch, on_change, None, raw)
                return True

        watch = FakeWatch(begin)
        return watch

    def watch_node(self, on_change: NodeChange) -> Watch:
        def begin() -> bool:
            with self.lock:
                self._node_watches.append((watch, on_change))
                if self.reachable and self.node is not None:
                    on_change(read_node(self.node))
                return self.reachable

        watch = FakeWatch(begin)
        return watch

    def patch_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        with self.lock:
            if not self.reachable:
                raise Unavailable("not reachable")
            raw = self.pods.get(pod.uid)
            if raw is None:
                raise NotFound("gone")
            self.statuses.append((pod.uid, dict(status)))
            self.change(raw, status=merged(raw.get("status") or {}, status))

    def delete_pod(self, pod: Pod) -> None:
        with self.lock:
            if not self.reachable:
                raise Unavailable("not reachable")
            if pod.uid not in self.pods:
                raise NotFound("gone")
            if pod.uid not in self.kept_by_finalizer:
                self.remove(pod.uid)

    def patch_node_status(self, patch: Mapping[str, Any]) -> None:
        with self.lock:
            if not self.reachable or self.node is None:
                self.refused_node_patches += 1
                raise Unavailable("not reachable")
            self.node_patches.append((time.monotonic(), dict(patch)))
            self.change_node(patch["status"])

    def renew_lease(self) -> None:
        self.leases += 1

    def emit(self, pod: Pod, event_type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        with self.lock:
            self.events.append((pod.name, event_type, reason, message))

    def add(self, raw: Raw) -> Raw:
        with self.lock:
            self.pods[raw["metadata"]["uid"]] = raw
            self._tell(None, raw)
            return raw

    def change(self, raw: Raw, *, metadata: Raw | None = None, status: Raw | None = None) -> None:
        with self.lock:
            uid = raw["metadata"]["uid"]
            old = self.pods[uid]
            new = {**old, "metadata": {**old["metadata"], **(metadata or {})}}
            if status is not None:
                new["status"] = status
            self.pods[uid] = new
            self._tell(old, new)

    def delete(self, raw: Raw, grace_seconds: int = 30) -> None:
        """As kubectl delete: the kubelet does the rest."""
        at = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace_seconds}
        self.change(raw, metadata=at)

    def remove(self, uid: str) -> None:
        """As kubectl delete --force --grace-period=0: the object is gone at once."""
        with self.lock:
            self._tell(self.pods.pop(uid), None)

    def change_node(self, status: Mapping[str, Any]) -> None:
        with self.lock:
            assert self.node is not None
            self.node = {**self.node, "status": merged(self.node.get("status") or {}, status)}
            for watch, on_change in self._node_watches:
                if not watch.stopped:
                    on_change(read_node(self.node))

    def come_back(self) -> None:
        """The API can be reached again: watches list."""
        with self.lock:
            self.reachable = True
            for node_watch, on_node in self._node_watches:
                if not node_watch.stopped and self.node is not None:
                    on_node(read_node(self.node))
                    node_watch.synced.set()
            for watch, on_change in self._pod_watches:
                for raw in list(self.pods.values()):
                    self._show(watch, on_change, None, raw)
                watch.synced.set()

    def pod(self, raw: Raw) -> Raw:
        with self.lock:
            return self.pods[raw["metadata"]["uid"]]

    def status(self, raw: Raw) -> Raw:
        status: Raw = self.pod(raw).get("status") or {}
        return status

    def phase(self, raw: Raw) -> str:
        return str(self.status(raw).get("phase", ""))

    def allocatable(self, resource: str) -> tuple[str | None, str | None]:
        """Capacity and allocatable, as the research writes them: n/m."""
        with self.lock:
            assert self.node is not None
            status = self.node["status"]
            return (status.get("capacity") or {}).get(resource), (status.get("allocatable") or {}).get(resource)

    def node_info(self, key: str) -> str:
        with self.lock:
            assert self.node is not None
            return str((self.node["status"].get("nodeInfo") or {}).get(key, ""))

    def _tell(self, old: Raw | None, new: Raw | None) -> None:
        if self.reachable:
            for watch, on_change in self._pod_watches:
                self._show(watch, on_change, old, new)

    @staticmethod
    def _show(watch: FakeWatch, on_change: PodChange, old: Raw | None, new: Raw | None) -> None:
        if not watch.stopped and (new or old or {})["spec"].get("nodeName") == NODE:
            on_change(parse_pod(old) if old else None, parse_pod(new) if new else None)


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> Raw:
    result = {**old, **new}
    if "conditions" in new:
        by_type = {condition["type"]: condition for condition in old.get("conditions") or ()}
        for condition in new["conditions"]:
            both = {**by_type.get(condition["type"], {}), **condition}
            by_type[condition["type"]] = {key: value for key, value in both.items() if value is not None}
        result["conditions"] = list(by_type.values())
    return result
