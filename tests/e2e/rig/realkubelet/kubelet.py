"""One node with a real kubelet: its process, its runtime, its folder, its start and its end.

Takes programs, a short folder, a kubeconfig with the node's identity; serves kubelet.sock, pod-resources and the
checkpoint below `paths`, a Node and running pods at the API. `kill` and `start` again is the restart under running
pods, `reboot` loses the containers, too. It ends only what it started; its mounts end with its process.
"""

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from kube.kubelet_api.paths import KubeletPaths
from tests.e2e.rig.controlplane.part import Part
from tests.e2e.rig.realkubelet import config
from tests.e2e.rig.realkubelet.runtime import Runtime, connects

START_SECONDS = 120.0  # 1 s on a quiet machine


class RealKubelet:
    """Start with `start`, end with `close`."""

    def __init__(
        self,
        node_name: str,
        folder: Path,
        *,
        kubelet: Path,
        version: str,
        runtime: Path,
        kubeconfig: str,
        status_tick_seconds: float = 10.0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[str] = (),
        gates: Mapping[str, bool] | None = None,
    ) -> None:
        if any(folder.is_relative_to(hidden) for hidden in config.HIDDEN):
            raise ValueError(f"{folder} is hidden from the kubelet: take a folder outside {config.HIDDEN}")
        self.node_name = node_name
        self.folder = folder
        self.paths = KubeletPaths(folder / "kubelet")
        for name in ("empty", "pod-logs", "pki"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.paths.plugin_dir.mkdir(parents=True, exist_ok=True)
        config.write_kernel_settings(folder / "kernel")
        self.runtime = Runtime(runtime, folder)
        text = config.configuration(
            version=version,
            folder=folder,
            runtime_socket=self.runtime.socket,
            status_tick_seconds=status_tick_seconds,
            gates=gates or {},
        )
        (folder / "kubelet.yaml").write_text(text)
        self.use(kubeconfig)
        command = config.command(
            kubelet=kubelet,
            node_name=node_name,
            folder=folder,
            root=self.paths.root,
            plugin_dir=self.paths.plugin_dir,
            labels=labels or {},
            taints=taints,
        )
        self._process = Part("kubelet", command, log=folder / "kubelet.log", ready=self._serves)

    @property
    def pid(self) -> int | None:
        """Of the kubelet; None while it does not run."""
        return self._process.pid

    @property
    def log(self) -> Path:
        """The kubelet's own log."""
        return self._process.log

    def use(self, kubeconfig: str) -> None:
        """Who it is at which API server, from the next start on."""
        path = self.folder / "kubeconfig"
        path.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
        path.write_text(kubeconfig)

    def start(self, *, wait: bool = True) -> None:
        """Return when pod-resources and kubelet.sock are served; raises ControlPlaneFailed."""
        self.runtime.start()
        self._process.start()
        if wait:
            self._process.wait(START_SECONDS)

    def stop(self) -> None:
        """SIGTERM; containers run on."""
        self._process.stop()

    def kill(self) -> None:
        """SIGKILL; containers run on."""
        self._process.kill()

    def reboot(self, *, wait: bool = True) -> None:
        """Kubelet and containers are gone; both come back without them."""
        self.kill()
        self.runtime.stop()
        self.start(wait=wait)

    def close(self) -> None:
        """End both processes."""
        self.stop()
        self.runtime.stop()

    def _serves(self) -> bool:
        return all(connects(path) for path in (self.paths.pod_resources_socket, self.paths.registration_socket))
