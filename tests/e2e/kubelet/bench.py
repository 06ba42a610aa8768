"""What a check of the conformance list has: one node, device plugins, pods bound to it, and the API.

Takes a `KubeletNode`; gives readings of pod-resources, of the Node and of pods, each with a wait of bounded length.
Each check has a resource name of its own, because a kubelet never forgets one.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from kubernetes.client import ApiClient

from kube import apply
from kube.errors import NotFound
from kube.kubelet_api import podresources_pb2 as api
from kube.kubelet_api.deviceplugin_pb2 import DevicePluginOptions
from kube.kubelet_api.paths import unix_target
from kube.kubelet_api.podresources_pb2_grpc import PodResourcesListerStub
from tests.builders import objects
from tests.e2e.kubelet.nodes import KubeletNode, Seen, has_active_list, knows_plugins_by_socket, minor_of
from tests.e2e.real_cluster import NODES
from tests.e2e.rig.realkubelet.runtime import connects
from tests.sandbox.kubelet.fakes import FakePlugin
from tests.waiting import eventually

Raw = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
LONG_SECONDS = 120.0
DROPPED_SECONDS = 400.0
_numbers = itertools.count(1)


class KubeletSide:
    def __init__(self, side: str, node: KubeletNode, admin: ApiClient, version: str) -> None:
        self.side = side
        self.minor = minor_of(version)
        self.active_list = has_active_list(version)
        self.by_socket = knows_plugins_by_socket(version)
        self.node = node
        self.admin = admin
        self.resource = f"gpuplan.test/r{next(_numbers)}"
        self.plugins: list[FakePlugin] = []
        self._pods: list[Raw] = []
        self._channel: grpc.Channel | None = None

    def plugin(
        self, *ids: str, resource: str = "", socket_name: str = "", prefers: bool = False, prestart: bool = False
    ) -> FakePlugin:
        """A registered plugin whose ids pod-resources shows."""
        plugin = FakePlugin(self.node.paths.plugin_dir, resource or self.resource, socket_name).offer(*ids)
        plugin.options = DevicePluginOptions(get_preferred_allocation_available=prefers, pre_start_required=prestart)
        self.register(plugin)
        self.wait(lambda: plugin.streams, f"the kubelet follows the list of {plugin.resource}")
        self.wait(lambda: self.offered(plugin.resource) == sorted(ids), f"{plugin.resource} is advertised")
        return plugin

    def register(self, plugin: FakePlugin) -> None:
        if plugin not in self.plugins:
            self.plugins.append(plugin)
        self.wait(lambda: connects(self.node.paths.registration_socket), "kubelet.sock")
        plugin.serve().register()

    def again(self, plugin: FakePlugin) -> None:
        """Register as a plugin should that lost its kubelet."""
        self.register(plugin)
        healthy = sorted(device.ID for device in plugin.devices if device.health == "Healthy")
        self.wait(lambda: self.offered(plugin.resource) == healthy, f"{plugin.resource} is advertised again")

    @property
    def lister(self) -> PodResourcesListerStub:
        if self._channel is None:
            target = unix_target(self.node.paths.pod_resources_socket)
            options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 100))
            self._channel = grpc.insecure_channel(target, options=options)
        return PodResourcesListerStub(self._channel)

    def offered(self, resource: str = "") -> list[str]:
        """Ids in GetAllocatableResources, sorted."""
        request = api.AllocatableResourcesRequest()
        answer = self._patiently(lambda: self.lister.GetAllocatableResources(request, wait_for_ready=True, timeout=60))
        wanted = resource or self.resource
        return sorted(i for devices in answer.devices if devices.resource_name == wanted for i in devices.device_ids)

    def held(self) -> dict[str, list[str]]:
        """Ids in List by pod name, sorted; a listed pod without devices has none."""
        request = api.ListPodResourcesRequest()
        answer = self._patiently(lambda: self.lister.List(request, wait_for_ready=True, timeout=60))
        return {
            pod.name: sorted(i for c in pod.containers for devices in c.devices for i in devices.device_ids)
            for pod in answer.pod_resources
        }

    def shown(self, raw: Raw) -> list[str] | None:
        """What the pod holds by List; None where it is not listed."""
        return self.held().get(raw["metadata"]["name"])

    def admit_another(self) -> None:
        """Where it matters which pod was admitted last, admit another one."""
        if not self.active_list:
            self.run(pod(container()))

    def wait_freed(self, raw: Raw) -> None:
        """List shows no device of the pod any more; an old kubelet notices that at the next admission only."""
        self.admit_another()
        self.wait(lambda: not self.shown(raw), f"no device of {raw['metadata']['name']} is shown")

    @staticmethod
    def _patiently(call: Callable[[], Any]) -> Any:
        """All clients of pod-resources share a rate limit, which is no answer."""
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                failed: Any = error  # errors of calls are calls too, which the stubs do not know
                if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                time.sleep(0.1)

    def create(self, raw: Raw) -> Raw:
        """A pod that is bound to the node from the start."""
        raw["spec"]["nodeName"] = self.node.name
        made = apply.create(self.admin, PODS, raw)
        self._pods.append(made)
        return made

    def run(self, raw: Raw, phase: str = "Running") -> Raw:
        return self.wait_phase(self.create(raw), phase)

    def wait_phase(self, raw: Raw, phase: str) -> Raw:
        def reached() -> Raw | None:
            found = self.pod(raw)
            return found if found["status"].get("phase") == phase else None

        try:
            return eventually(reached, f"{raw['metadata']['name']} is {phase}", LONG_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; its status is {self.pod(raw)['status']}") from error

    def pod(self, raw: Raw) -> Raw:
        return apply.get(self.admin, f"{PODS}/{raw['metadata']['name']}")

    def phase(self, raw: Raw) -> str:
        return str(self.pod(raw)["status"].get("phase"))

    def there(self, raw: Raw) -> bool:
        """The object exists, and is still this one."""
        try:
            return bool(self.pod(raw)["metadata"]["uid"] == raw["metadata"]["uid"])
        except NotFound:
            return False

    def delete(self, raw: Raw, grace_seconds: int | None = None) -> None:
        apply.delete(self.admin, f"{PODS}/{raw['metadata']['name']}", grace_seconds=grace_seconds)

    def wait_gone(self, raw: Raw) -> None:
        self.wait(lambda: not self.there(raw), f"{raw['metadata']['name']} is gone")

    def containers(self, raw: Raw) -> tuple[Seen, ...]:
        return self.node.containers(raw["metadata"]["uid"])

    def waiting(self, raw: Raw) -> tuple[str, str]:
        """Reason and message of the first container's waiting state."""
        statuses = self.pod(raw)["status"].get("containerStatuses") or [{}]
        state = statuses[0].get("state", {}).get("waiting", {})
        return state.get("reason", ""), state.get("message", "")

    def restarts(self, raw: Raw) -> int:
        statuses = self.pod(raw)["status"].get("containerStatuses") or [{}]
        return int(statuses[0].get("restartCount", 0))

    def backs_off(self, raw: Raw) -> bool:
        """Its container has ended twice. The API may show waiting or terminated then."""
        seen = self.containers(raw)
        return len(seen) > 1 and all(each.state == "exited" for each in seen)

    def warnings(self, raw: Raw) -> list[tuple[str, str]]:
        """Reason and message of the pod's Warning events."""
        query = {"fieldSelector": f"involvedObject.uid={raw['metadata']['uid']},type=Warning"}
        events = apply.get(self.admin, EVENTS, query=query)["items"]
        return [(event["reason"], event["message"]) for event in events]

    def numbers(self, resource: str = "") -> tuple[str | None, str | None]:
        """Capacity and allocatable at the API, as the research writes them: n/m."""
        status = apply.get(self.admin, f"{NODES}/{self.node.name}")["status"]
        name = resource or self.resource
        return status["capacity"].get(name), status["allocatable"].get(name)

    def wait_numbers(self, capacity: int, allocatable: int, resource: str = "") -> None:
        wanted = (str(capacity), str(allocatable))
        self.wait(lambda: self.numbers(resource) == wanted, f"the Node says {capacity}/{allocatable}")

    def wait_dropped(self) -> None:
        """Five minutes after the end of its plugin the resource is not counted any more."""
        eventually(lambda: self.numbers() == ("0", "0"), "the Node says 0/0", DROPPED_SECONDS)

    def restart(self, *, kill: bool = True, reachable: bool = True) -> None:
        """The kubelet ends and starts again; no plugin registers."""
        (self.node.kill if kill else self.node.stop)()
        self.node.start(reachable=reachable)
        self.wait(lambda: connects(self.node.paths.registration_socket), "kubelet.sock")

    @staticmethod
    def wait(look: Callable[[], object], what: str) -> None:
        eventually(lambda: bool(look()), what, LONG_SECONDS)

    def close(self) -> None:
        """Take away what the check made, so that the next one finds an empty node."""
        for plugin in self.plugins:
            plugin.stop()
        for raw in self._pods:
            self.node.release(raw["metadata"]["uid"])
            if self.there(raw):
                self._drop(raw)
        for raw in self._pods:
            self.wait_gone(raw)
        if self._channel is not None:
            self._channel.close()

    def _drop(self, raw: Raw) -> None:
        path = f"{PODS}/{raw['metadata']['name']}"
        try:
            if raw["metadata"].get("finalizers"):
                apply.merge_patch(self.admin, path, {"metadata": {"finalizers": None}})
            apply.delete(self.admin, path, grace_seconds=0)
        except NotFound:
            return  # it went by itself meanwhile


def container(name: str = "c", *, devices: Mapping[str, int] | None = None, **fields: Any) -> Raw:
    """`devices` by resource."""
    limits = {resource: str(count) for resource, count in (devices or {}).items()}
    return objects.container(name, limits, image="gpuplan.test/image:1", **fields)


def pod(
    *containers: Raw,
    init: tuple[Raw, ...] = (),
    script: Mapping[str, str] | None = None,
    grace_seconds: int = 1,
    restart_policy: str = "Never",
    finalizers: tuple[str, ...] = (),
    spec: Raw | None = None,
) -> Raw:
    """`script` are the annotations that both runtimes read."""
    annotations = {f"sandbox.gpuplan.dev/{key}": value for key, value in (script or {}).items()}
    fields = {
        "initContainers": list(init),
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": grace_seconds,
        "tolerations": [{"operator": "Exists"}],
        "dnsPolicy": "Default",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **(spec or {}),
    }
    metadata = {"annotations": annotations, "finalizers": list(finalizers)}
    return objects.manifest(objects.pod(f"pod-{next(_numbers)}", containers=containers, metadata=metadata, **fields))
