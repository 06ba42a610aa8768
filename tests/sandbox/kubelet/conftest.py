"""A place with a short path, and a bench: one node's API, runtime, kubelet and plugins, ended after the test."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kube.kubelet_api import podresources_pb2 as api
from kube.kubelet_api.deviceplugin_pb2 import DevicePluginOptions
from kube.kubelet_api.paths import KubeletPaths, unix_target
from kube.kubelet_api.podresources_pb2_grpc import PodResourcesListerStub
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.settings import Timings
from tests import folders
from tests.runtime import RuntimeInHand
from tests.sandbox.kubelet import builders
from tests.sandbox.kubelet.fake_api import FakeClusterApi
from tests.sandbox.kubelet.fakes import FakePlugin, RecordingHooks
from tests.waiting import SECONDS, eventually

QUICK = Timings(
    registration_after_seconds=0,
    pods_after_seconds=0,
    exit_notice_seconds=0.02,
    start_seconds=0,
    stop_seconds=0.02,
    force_stop_seconds=0.3,
    start_retry_seconds=(0.02,),
    restart_backoff_seconds=(0.02,),
    status_repair_seconds=0.1,
    rate_per_second=1e6,
    rate_burst=10**6,
)

IMPATIENT = replace(QUICK, dial_timeout_seconds=0.8)
"""For tests of the time-out itself: on a busy machine a plugin that is there may take as long."""


class KubeletBench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = KubeletPaths(root)
        self.api = FakeClusterApi(builders.node())
        self.hooks = RecordingHooks()
        self.runtime = RuntimeInHand(self.hooks)
        self.plugins: list[FakePlugin] = []
        self.kubelets: list[Kubelet] = []
        self._channel: grpc.Channel | None = None

    def kubelet(self, *, timings: Timings = QUICK, tick_seconds: float = 0.05) -> Kubelet:
        """A started kubelet on the bench's root; again after `kill` or `stop`: the restart."""
        kubelet = Kubelet(
            builders.NODE,
            self.root,
            self.api,
            status_tick_seconds=tick_seconds,
            runtime=self.runtime,
            timings=timings,
            cdi_dirs=(self.root / "cdi",),
        )
        self.kubelets.append(kubelet)
        self._hang_up()  # a call on the connection of the one before could be lost
        kubelet.start()
        return kubelet

    def plugin(
        self,
        *ids: str,
        resource: str = builders.MIG,
        socket_name: str = "",
        prefers: bool = False,
        prestart: bool = False,
    ) -> FakePlugin:
        """A registered plugin whose ids pod-resources shows."""
        plugin = FakePlugin(self.paths.plugin_dir, resource, socket_name).offer(*ids)
        plugin.options = DevicePluginOptions(get_preferred_allocation_available=prefers, pre_start_required=prestart)
        self.add_plugin(plugin)
        eventually(lambda: self.offered(resource) == sorted(ids), f"{resource} offered")
        return plugin

    def add_plugin(self, plugin: FakePlugin) -> None:
        self.plugins.append(plugin)
        self.wait_serving()
        plugin.serve().register()

    def wait_serving(self) -> None:
        eventually(lambda: connects(self.paths.registration_socket), "kubelet.sock")

    def close(self) -> None:
        for plugin in self.plugins:
            plugin.stop()
        for kubelet in self.kubelets:
            kubelet.kill()
        self.runtime.close()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def lister(self) -> PodResourcesListerStub:
        if self._channel is None:
            eventually(self.paths.pod_resources_socket.exists, "pod-resources")
            self._channel = grpc.insecure_channel(
                unix_target(self.paths.pod_resources_socket),
                options=(("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 100)),
            )
        return PodResourcesListerStub(self._channel)

    def offered(self, resource: str = builders.MIG) -> list[str]:
        """Ids in GetAllocatableResources, sorted."""
        answer = self.lister.GetAllocatableResources(
            api.AllocatableResourcesRequest(), wait_for_ready=True, timeout=SECONDS
        )
        return sorted(i for devices in answer.devices if devices.resource_name == resource for i in devices.device_ids)

    def held(self) -> dict[str, list[str]]:
        """Ids in List by pod name, sorted; a listed pod without devices has none."""
        answer = self.lister.List(api.ListPodResourcesRequest(), wait_for_ready=True, timeout=SECONDS)
        return {
            pod.name: sorted(i for c in pod.containers for devices in c.devices for i in devices.device_ids)
            for pod in answer.pod_resources
        }

    def run(self, raw: builders.Raw, phase: str = "Running") -> builders.Raw:
        """Bind a pod to the node and wait for its phase."""
        self.api.add(raw)
        return self.wait_phase(raw, phase)

    def wait_phase(self, raw: builders.Raw, phase: str) -> builders.Raw:
        eventually(lambda: self.api.phase(raw) == phase, f"{raw['metadata']['name']} is {phase}")
        return self.api.pod(raw)

    def wait_gone(self, raw: builders.Raw) -> None:
        eventually(lambda: raw["metadata"]["uid"] not in self.api.pods, f"{raw['metadata']['name']} is gone")


def connects(path: Path) -> bool:
    """Whether a server listens; a dead socket's file does not count."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def root() -> Iterator[Path]:
    """A unix socket's path has room for 107 bytes, and pytest's own folders are longer than one thinks."""
    folder = Path(tempfile.mkdtemp(prefix="gp", dir=folders.short()))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bench(root: Path) -> Iterator[KubeletBench]:
    bench = KubeletBench(root)
    yield bench
    bench.close()
