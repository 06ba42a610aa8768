"""What NVIDIA's driver has installed on a simulated machine: files, and the nodes of every device that there could be.

Takes the machine, returns the folder that nvidia-ctk and the DRA driver take as the root of the driver. Libraries and
programs are empty, but for the one that is simulated.
"""

import os
from pathlib import Path

from sandbox.driver import toolkit
from sandbox.driver.library.build import NAME
from sandbox.driver.procfs import COMPUTE_INSTANCES, GPU_INSTANCES, MAJORS, capability_minor
from tests.e2e.rig.nvidia.host import Host


def install(host: Host) -> Path:
    root = host.folder / "driver"
    machine = host.store.read()
    minors = tuple(gpu["minor"] for gpu in machine["gpus"])
    toolkit.install(root, host.folder / "cdi", machine["driver_version"], minors)
    for name in toolkit.BINARIES:
        (root / "usr/bin" / name).chmod(0o755)
    (root / toolkit.FOLDER.removeprefix("/") / NAME).symlink_to(host.folder / "lib" / NAME)
    document = toolkit.document(str(root), machine["driver_version"], minors)
    for node in document["devices"][0]["containerEdits"]["deviceNodes"]:
        _make(Path(node["hostPath"]), node["major"], node.get("minor", 0))
    for gpu in minors:
        for instance in range(GPU_INSTANCES):
            for compute in (None, *range(COMPUTE_INSTANCES)):
                minor = capability_minor(gpu, instance, compute)
                _make(root / f"dev/nvidia-caps/nvidia-cap{minor}", MAJORS["nvidia-caps"], minor)
    return root


def _make(path: Path, major: int, minor: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o020000, os.makedev(major, minor))
    path.chmod(toolkit.MODE)
