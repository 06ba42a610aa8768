"""What a node on real hardware replaces of the sandbox's: a name that is gone would leave the stand-in in its place."""

from sandbox.kubelet.runtime import ContainerHooks
from sandbox.node import SandboxNode
from tests.hardware.node import CudaContainers, RealNode


def replaced(kind: type) -> set[str]:
    """Methods and properties, but for what each class has."""
    return {name for name, value in vars(kind).items() if callable(value) or isinstance(value, property)} - {"__init__"}


def test_each_replacement_has_what_it_replaces() -> None:
    assert replaced(RealNode) - replaced(SandboxNode) == {"mps_pod_runs"}
    assert replaced(ContainerHooks) <= replaced(CudaContainers)
