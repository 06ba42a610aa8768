"""A node's folders for the tests of the CDI specification: NVIDIA's toolkit, /proc, and a publisher."""

from pathlib import Path

from nodeagent.cdi.publisher import Published, SpecificationPublisher
from nodeagent.handover.cdi import qualified_name
from nodeagent.handover.config import Device, DeviceKind
from nodeagent.hardware.driver import ObservedGpu
from sandbox import cdi as runtime
from sandbox.driver import toolkit
from tests.builders.observed import instance

VERSION = "580.1.2"
MPS = Path("/run/mps")


class CdiNode:
    """A node's folders, with NVIDIA's toolkit and two MIG instances on GPU 0."""

    def __init__(self, root: Path) -> None:
        self.root, self.cdi, self.proc = root, root / "cdi", root / "proc"
        (self.proc / "driver/nvidia/capabilities").mkdir(parents=True)
        (self.proc / "devices").write_text("Character devices:\n195 nvidia\n510 nvidia-uvm\n511 nvidia-caps\n")
        self.upgrade(VERSION)
        self.capability("gpu0/mig/gi1", 12)
        self.capability("gpu0/mig/gi1/ci0", 13)
        self.publisher = self.restart()

    def restart(self) -> SpecificationPublisher:
        self.publisher = SpecificationPublisher(self.cdi, proc=self.proc, folders=(self.root / "etc", self.cdi))
        return self.publisher

    def upgrade(self, version: str) -> None:
        self.toolkit = toolkit.install(self.root / "driver", self.cdi, version)

    def capability(self, where: str, minor: int) -> None:
        path = self.proc / "driver/nvidia/capabilities" / where / "access"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"DeviceFileMinor: {minor}\n")

    def publish(self, *devices: Device, gpu: ObservedGpu | None = None, version: str = VERSION) -> Published:
        listed = [(device, gpu or GPU) for device in devices]
        return self.publisher.publish(listed, driver_version=version, mps_root=MPS)

    def nodes(self, device_id: str) -> dict[str, tuple[int, int]]:
        """What a container runtime makes, by path."""
        got = runtime.inject([self.root / "etc", self.cdi], [qualified_name(device_id)])
        return {node.path: (node.major, node.minor) for node in got.nodes}


GPU = ObservedGpu(index=0, uuid="GPU-1", minor=0, instances=(instance(number=1, uuid="MIG-a"),))
MIG = Device(id="MIG-a", resource="nvidia.com/mig-1g.10gb", gpu="GPU-1", kind=DeviceKind.MIG)
WHOLE = Device(id="GPU-1", resource="nvidia.com/gpu", gpu="GPU-1", kind=DeviceKind.WHOLE)
