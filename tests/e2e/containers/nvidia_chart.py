"""NVIDIA's programs on the node of the lab, installed by their own charts, as their administrators do.

Takes charts and programs of pinned Go modules. An image holds what theirs holds of these, above the lab's shell. No
runtime of NVIDIA's puts the driver into its containers: it lies where a driver's container has it, from where the
charts mount it, and its library passes every call on to the simulated machine.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.driver.library.build import build
from sandbox.driver.procfs import proc_of
from sandbox.driver.store import Store
from tests.e2e.containers import simulated
from tests.e2e.containers.lab import Lab
from tests.e2e.rig.containers import images
from tests.e2e.rig.containers.node import NODE
from tests.e2e.rig.nvidia import driver_root
from tests.e2e.rig.nvidia.host import Host

DRIVER = Path("/run/nvidia/driver")
PRESENT = "nvidia.com/gpu.present"
"""The label by which their charts' affinity finds a node without feature discovery."""
SECONDS = 30.0
# A runtime cannot mount files of a simulated driver over those of the kernel; a container that is privileged can.
ON_SIMULATED_FILES = """\
#!/bin/sh
set -e
mount -o bind /driver-root/proc/driver /proc/driver
mount -o bind /driver-root/proc/devices /proc/devices
mount -o bind /driver-root/pci /sys/bus/pci/devices
exec {program} "$@"
"""


class Installed:
    """A release of a chart of theirs, in a namespace of its name."""

    def __init__(self, lab: Lab, name: str, chart: Path, values: Mapping[str, Any]) -> None:
        self._lab, self._name, self._chart, self._values = lab, name, chart, values
        lab.kubectl("create", "namespace", name)
        self._helm("install", values)

    def change(self, values: Mapping[str, Any]) -> None:
        """Add values to those that it has."""
        self._helm("upgrade", {**self._values, **values})

    def pods(self) -> list[str]:
        """With what their containers do, one line each."""
        states = "{range .items[*]}{.metadata.name} {.status.containerStatuses[*].state}{'\\n'}{end}"
        return self._lab.kubectl("-n", self._name, "get", "pods", "-o", f"jsonpath={states}").splitlines()

    def said(self) -> str:
        names = self._lab.kubectl("-n", self._name, "get", "pods", "-o", "name").split()
        logs = [self._lab.cluster.kubectl("-n", self._name, "logs", name, "--all-containers") for name in names]
        return "\n".join([*logs, self._lab.report()])

    def remove(self) -> None:
        self._lab.release.helm("uninstall", self._name, "--wait", namespace=self._name)
        self._lab.kubectl("delete", "namespace", self._name)

    def _helm(self, verb: str, values: Mapping[str, Any]) -> None:
        self._lab.release.helm(verb, self._name, str(self._chart), values=values, namespace=self._name)


def image(lab: Lab, name: str, programs: Mapping[str, Path], scratch: Path, *, in_files: str = "") -> dict[str, str]:
    """Load an image of programs, by their paths in it; returns what the charts call it. The program `in_files` finds
    the files of the driver where the kernel would have them."""
    for place, program in programs.items():
        target = scratch / place.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, target)
    images.linked(set(programs.values()), scratch)
    if in_files:
        program = scratch / in_files.removeprefix("/")
        program.rename(program.with_name(f"{program.name}.real"))
        program.write_text(ON_SIMULATED_FILES.format(program=f"{in_files}.real"))
        program.chmod(0o755)
    lab.load_image(f"{name}:1", scratch)
    return {"repository": name, "tag": "1", "pullPolicy": "Never"}


@contextmanager
def driver(lab: Lab) -> Iterator[None]:
    """On the node, which has the label PRESENT meanwhile."""
    folder = simulated.FOLDER / "host"
    folder.mkdir()
    library = build(folder)
    assert library is not None
    host = Host(folder / "files", Store(simulated.MACHINE), library)
    host.start()
    shown = {
        driver_root.install(host): DRIVER,
        host.folder / "lib": DRIVER / "usr/lib64",
        host.folder / "pci": DRIVER / "pci",
        proc_of(simulated.MACHINE): DRIVER / "proc",
    }
    for source, place in shown.items():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["/usr/bin/mount", "--bind", source, place], check=True, timeout=SECONDS)
    lab.kubectl("label", "node", NODE, f"{PRESENT}=true")
    try:
        yield
    finally:
        lab.kubectl("label", "node", NODE, f"{PRESENT}-")
        host.stop()
        for place in reversed(shown.values()):
            subprocess.run(["/usr/bin/umount", place], check=True, timeout=SECONDS)
        shutil.rmtree(folder)
