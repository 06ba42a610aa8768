"""One node as the conformance list sees it, twice: with a real kubelet, and with the stand-in.

Takes the cluster and programs. `KubeletNode` has the two things that differ between the sides: how a kubelet is
started and ended, and how its containers are read. Everything else the checks do is the same code on both.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kube import apply, clients
from kube.kubelet_api.paths import KubeletPaths
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.injection import ContainerOptions
from sandbox.kubelet.kubelet import Kubelet
from tests.builders.objects import manifest, node
from tests.e2e.real_cluster import NODES, RealCluster
from tests.e2e.rig.realkubelet import RealKubelet
from tests.runtime import RuntimeInHand

TICK_SECONDS = 1.0
# Other tests' pods must not be scheduled here; the checks bind theirs themselves.
TAINT = {"key": "gpuplan.test/kubelet", "effect": "NoSchedule"}
NOWHERE = "https://127.0.0.1:9"
FIRST_WITH_ACTIVE_LIST = 34
FIRST_THAT_KNOWS_PLUGINS_BY_SOCKET = 37


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A container of either side; times are epoch seconds."""

    container_id: str
    name: str
    state: str
    """created, running or exited."""
    options: ContainerOptions
    started_at: float | None
    finished_at: float | None


def minor_of(version: str) -> int:
    return int(version.split(".")[1])


def has_active_list(version: str) -> bool:
    """Up to 1.33 List shows ended pods too, with what they still hold; the pod that was admitted last keeps its
    devices, ended or not, until another one is admitted; a force-deleted pod's containers get the pod's own grace
    period, not two seconds; and every file in the plugin directory but the checkpoint is removed at the start."""
    return minor_of(version) >= FIRST_WITH_ACTIVE_LIST


def knows_plugins_by_socket(version: str) -> bool:
    """From 1.37 on a resource has an endpoint for each socket: a registration ends with its own stream, not with that
    of any older one; the end of one of two changes no device; and a socket is not taken a second time."""
    return minor_of(version) >= FIRST_THAT_KNOWS_PLUGINS_BY_SOCKET


class KubeletNode(Protocol):
    name: str
    paths: KubeletPaths

    def start(self, *, reachable: bool = True) -> None:
        """`reachable`: the API server is; without it the kubelet talks to a closed port."""

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def lose_containers(self) -> None:
        """As a reboot does; the kubelet must not run."""

    def containers(self, pod_uid: str) -> tuple[Seen, ...]: ...
    def release(self, pod_uid: str) -> None:
        """End the stops of its containers."""

    def close(self) -> None: ...


class RealKubeletNode:
    """Kubelet and scripted runtime as processes."""

    def __init__(
        self, name: str, cluster: RealCluster, *, kubelet: Path, runtime: Path, tick_seconds: float = TICK_SECONDS
    ) -> None:
        self.name = name
        self._folder = Path(tempfile.mkdtemp(prefix="gpk", dir="/tmp"))
        plane = cluster.plane
        self._kubeconfig = plane.kubeconfig_of(f"system:node:{name}", ("system:nodes",))
        self._url = plane.url
        self.kubelet = RealKubelet(
            name,
            self._folder,
            kubelet=kubelet,
            version=plane.version,
            runtime=runtime,
            kubeconfig=self._kubeconfig,
            status_tick_seconds=tick_seconds,
            taints=(f"{TAINT['key']}=:{TAINT['effect']}",),
        )
        self.paths = self.kubelet.paths

    def start(self, *, reachable: bool = True) -> None:
        self.kubelet.use(self._kubeconfig if reachable else self._kubeconfig.replace(self._url, NOWHERE))
        self.kubelet.start()

    def stop(self) -> None:
        self.kubelet.stop()

    def kill(self) -> None:
        self.kubelet.kill()

    def lose_containers(self) -> None:
        self.kubelet.runtime.stop()

    def containers(self, pod_uid: str) -> tuple[Seen, ...]:
        return tuple(
            Seen(
                container_id=found.container_id,
                name=found.name,
                state=found.state,
                options=found.options,
                started_at=found.started_at,
                finished_at=found.finished_at,
            )
            for found in self.kubelet.runtime.containers(pod_uid)
        )

    def release(self, pod_uid: str) -> None:
        for found in self.kubelet.runtime.containers(pod_uid):
            self.kubelet.runtime.release(found.container_id)

    def close(self) -> None:
        self.kubelet.close()
        shutil.rmtree(self._folder, ignore_errors=True)


KNOWN_TO_THE_RUNTIME = {
    "cdiVersion": "0.5.0",
    "kind": "gpuplan.test/gpu",
    "devices": [{"name": name, "containerEdits": {"env": [f"CDI_{name}=1"]}} for name in ("first", "both")],
}
"""A CDI specification, for tests whose plugins answer with its names."""


class StandInNode:
    """The stand-in with its default timings, as the node's own identity at the same API server."""

    def __init__(self, name: str, cluster: RealCluster, tick_seconds: float = TICK_SECONDS) -> None:
        self.name = name
        self._folder = Path(tempfile.mkdtemp(prefix="gps", dir="/tmp"))
        self.paths = KubeletPaths(self._folder)
        self._tick_seconds = tick_seconds
        self._client = cluster.kubelet(name)
        far = self._folder / "nowhere.kubeconfig"
        far.write_text(cluster.plane.kubeconfig_of(f"system:node:{name}").replace(cluster.plane.url, NOWHERE))
        self._nowhere = clients.load(str(far))
        self._runtime = RuntimeInHand()
        # The scripted runtime below the real kubelet records CDI names and resolves none; here they must be known.
        self._cdi = self._folder / "cdi"
        self._cdi.mkdir()
        (self._cdi / "known.json").write_text(json.dumps(KNOWN_TO_THE_RUNTIME))
        self._kubelet: Kubelet | None = None
        apply.create(cluster.admin, NODES, _node(name))

    def start(self, *, reachable: bool = True) -> None:
        self._kubelet = Kubelet(
            self.name,
            self._folder,
            ClusterApi(self._client if reachable else self._nowhere, self.name),
            status_tick_seconds=self._tick_seconds,
            runtime=self._runtime,
            cdi_dirs=(self._cdi,),
        )
        self._kubelet.start()

    def stop(self) -> None:
        self._end(Kubelet.stop)

    def kill(self) -> None:
        self._end(Kubelet.kill)

    def lose_containers(self) -> None:
        self._runtime.lose_all()

    def containers(self, pod_uid: str) -> tuple[Seen, ...]:
        return tuple(
            Seen(
                container_id=found.container_id,
                name=found.request.container,
                state=str(found.state),
                options=found.request.options,
                started_at=found.started_at,
                finished_at=found.finished_at,
            )
            for found in self._runtime.containers(pod_uid)
        )

    def release(self, pod_uid: str) -> None:
        self._runtime.release(pod_uid)

    def close(self) -> None:
        self.kill()
        self._runtime.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: Callable[[Kubelet], None]) -> None:
        if self._kubelet is not None:
            how(self._kubelet)
        self._kubelet = None


def _node(name: str) -> dict[str, object]:
    return manifest(node(name, labels={"kubernetes.io/hostname": name}, spec={"taints": [TAINT]}))


def names(containers: Iterable[Seen], state: str) -> list[str]:
    """Of those in that state, in the order in which they were created."""
    return [found.name for found in containers if found.state == state]
