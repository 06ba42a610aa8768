"""What the node agent observes of a GPU: MIG instances as the driver shows them, of the sizes that an H100 has."""

from nodeagent.hardware.driver import ComputeInstance, GpuInstance
from partitioning.layouts import Instance
from tests.builders.models import H100


def instance(profile: str = "1g.10gb", start: int = 0, *, number: int = 0, uuid: str = "MIG-a") -> GpuInstance:
    """With one compute instance that fills it; without `uuid` it has none, as after half of its creation."""
    spec = H100.profile(profile)
    assert spec is not None
    slices = spec.compute_slices
    return GpuInstance(
        id=number,
        placed=Instance(profile=profile, start=start, size=spec.size),
        compute_slices=slices,
        compute=(ComputeInstance(id=0, slices=slices, uuid=uuid),) if uuid else (),
    )
