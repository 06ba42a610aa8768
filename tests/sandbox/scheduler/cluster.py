"""Runs an API server with a scheduler, with words for tests: nodes, pods, nominations, and what became of them.

What pods, conditions and Events show is waited for with a deadline.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube import apply, clients
from sandbox.scheduler import BackOff, Scheduler
from tests.apiserver import ApiServer
from tests.builders import objects
from tests.builders.objects import SLICE, Json, manifest
from tests.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"
DEADLINE_SECONDS = 30.0


class ScheduledCluster:
    """An API server with a scheduler, in the words of the tests."""

    def __init__(self, api: ApiClient, knows_node: Callable[[str], bool] = lambda _: True) -> None:
        """`knows_node`: whether the scheduler has heard of it, which it does on another watch than of pods."""
        self.api = api
        self._knows_node = knows_node

    def add_node(self, name: str, *, cpu: int = 8, **extended: int) -> None:
        allocatable = {"cpu": str(cpu), "memory": "32Gi", "pods": "2000"}
        apply.create(self.api, paths.NODES, manifest(objects.node(name, allocatable=allocatable)))
        eventually(lambda: self._knows_node(name), f"{name} is heard of")
        if extended:
            self.offer(name, extended.get("slices", 0))

    def offer(self, node: str, slices: int) -> None:
        amounts = {SLICE: str(slices)}
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        apply.merge_patch(self.api, f"{paths.node(node)}/status", body)

    def add_pod(self, name: str, *, slices: int = 0, cpu: str = "", **spec: Any) -> None:
        limits = {
            resource: amount for resource, amount in ((SLICE, str(slices)), ("cpu", cpu)) if amount not in ("", "0")
        }
        apply.create(self.api, PODS, manifest(objects.pod(name, requests=limits, unschedulable=False, **spec)))

    def nominate(self, name: str, node: str) -> None:
        apply.merge_patch(self.api, f"{PODS}/{name}/status", {"status": {"nominatedNodeName": node}})

    def pod(self, name: str) -> Json:
        return apply.get(self.api, f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName") or "")

    def nomination_of(self, name: str) -> str:
        return str(self.pod(name)["status"].get("nominatedNodeName") or "")

    def condition(self, name: str) -> Json:
        conditions = self.pod(name)["status"].get("conditions") or []
        found: list[Json] = [condition for condition in conditions if condition["type"] == "PodScheduled"]
        return found[0] if found else {}

    def refused(self, name: str) -> bool:
        return self.condition(name).get("status") == "False"

    def wait_refused(self, name: str) -> None:
        eventually(lambda: self.refused(name), f"{name} is refused")

    def events(self, name: str) -> list[tuple[str, str, str]]:
        events = apply.get(self.api, "/api/v1/namespaces/default/events")["items"]
        return [(e["type"], e["reason"], e["message"]) for e in events if e["involvedObject"]["name"] == name]

    def delete_pod(self, name: str) -> None:
        apply.delete(self.api, f"{PODS}/{name}", grace_seconds=0)


@contextmanager
def scheduling(server: ApiServer, back_off: BackOff | None = None) -> Iterator[ScheduledCluster]:
    scheduler = Scheduler(clients.for_url(server.url), back_off=back_off)
    scheduler.start()
    nodes = scheduler._nodes
    yield ScheduledCluster(clients.for_url(server.url), lambda name: ("", name) in nodes.items())
    scheduler.stop()
