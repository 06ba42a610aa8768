"""NVIDIA's device plugin on the node of the lab, installed by its own chart, as its administrators do.

Takes the chart and the programs of one pinned Go module. The image holds what theirs holds of these: config-manager and
the plugin. No runtime of NVIDIA's puts the driver into its containers: it lies where a driver's container has it, from
where the chart mounts it, and its library passes every call on to the simulated machine.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.driver.library.build import build
from sandbox.driver.library.serve import Server
from sandbox.driver.store import Store
from tests.e2e.containers import simulated
from tests.e2e.containers.lab import Lab
from tests.e2e.rig.containers import images
from tests.e2e.rig.nvidia.programs import Shipped

NAMESPACE, NAME = "nvidia-device-plugin", "nvdp"
IMAGE = {"repository": "registry.test/k8s-device-plugin", "tag": "1", "pullPolicy": "Never"}
DRIVER = Path("/run/nvidia/driver")
LIBRARIES = DRIVER / "usr/lib/x86_64-linux-gnu"
PROGRAMS = ("config-manager", "nvidia-device-plugin")
PRESENT = "nvidia.com/gpu.present"
"""The label by which the chart's affinity finds a node without feature discovery of its own."""
VALUES = {
    "image": IMAGE,
    "nvidiaDriverRoot": str(DRIVER),
    "config": {"map": {"default": "version: v1\nflags: {migStrategy: mixed}\n"}},
}


class DevicePlugin:
    """The release; `served` makes one."""

    def __init__(self, lab: Lab, chart: Path) -> None:
        self._lab, self._chart = lab, chart
        lab.kubectl("create", "namespace", NAMESPACE)
        self._helm("install", VALUES)

    def change(self, values: Mapping[str, Any]) -> None:
        """Add values to those that it has."""
        self._helm("upgrade", {**VALUES, **values})

    def pods(self) -> list[str]:
        """With what their containers do, one line each."""
        states = "{range .items[*]}{.metadata.name} {.status.containerStatuses[*].state}{'\\n'}{end}"
        return self._lab.kubectl("-n", NAMESPACE, "get", "pods", "-o", f"jsonpath={states}").splitlines()

    def said(self) -> str:
        shown = ("-n", NAMESPACE, "logs", "-l", "app.kubernetes.io/name=nvidia-device-plugin", "--all-containers")
        return self._lab.cluster.kubectl(*shown) + self._lab.report()

    def remove(self) -> None:
        self._lab.release.helm("uninstall", NAME, "--wait", namespace=NAMESPACE)
        self._lab.kubectl("delete", "namespace", NAMESPACE)

    def _helm(self, verb: str, values: Mapping[str, Any]) -> None:
        self._lab.release.helm(verb, NAME, str(self._chart), values=values, namespace=NAMESPACE)


@contextmanager
def installed(lab: Lab, found: Shipped, scratch: Path) -> Iterator[DevicePlugin]:
    """On each node with the label PRESENT, while the driver's library answers."""
    LIBRARIES.mkdir(parents=True)
    library = build(LIBRARIES)
    assert library is not None
    programs = {shutil.copy2(found.programs / name, _folder(scratch / "usr/bin")) for name in PROGRAMS}
    images.linked({*map(Path, programs), library}, scratch)
    lab.load_image(f"{IMAGE['repository']}:{IMAGE['tag']}", scratch, {"LD_LIBRARY_PATH": "/usr/lib"})
    server = Server(Store(simulated.MACHINE), LIBRARIES)
    server.start()
    try:
        plugin = DevicePlugin(lab, found.chart)
        yield plugin
        plugin.remove()
    finally:
        server.stop()
        shutil.rmtree(DRIVER)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
