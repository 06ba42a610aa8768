"""Shows GPUs of the simulated cluster as the product reads them from a plan's status, and reads what it wants of them.

Instances and MPS slices are one to the cluster: a slice has its size as profile, and as start a number that no other
slice of its size has on that GPU. Decides nothing: a slice that stays is the one that a job holds, if there is one.
"""

from collections.abc import Mapping

from benchmarks.over_time.cluster import Gpu
from benchmarks.over_time.jobs import Size
from controller.api.plans import GpuReading, Stage
from controller.model.views import Desired, GpuView, MigDesired, MpsDesired, PartitionView
from crds.v1alpha1.names import GpuState, PartitionState
from partitioning.layouts import Instance, Layout
from partitioning.mps import slice_of_gb
from partitioning.resources import mig_resource, mps_resource_gb


def resource_of(profile: str) -> str:
    """The name under which pods request it."""
    return mig_resource(profile) if "." in profile else mps_resource_gb(gigabytes_of(profile))


def gigabytes_of(profile: str) -> int:
    """Of an MPS slice."""
    return int(profile.removesuffix("gb"))


def layout_of(gpu: Gpu, desired: Desired) -> Layout:
    """What is on the GPU once it is as desired."""
    if isinstance(desired, MigDesired):
        return desired.layout
    assert isinstance(desired, MpsDesired)
    held_first = sorted(gpu.instances, key=lambda one: (gpu.instances[one] is None, one))
    there = {profile: [one for one in held_first if one.profile == profile] for profile in _labels(desired)}
    found: list[Instance] = []
    for profile in _labels(desired):
        found.append(there[profile].pop(0) if there[profile] else _another(profile, [*gpu.instances, *found]))
    return Layout.of(found)


def _labels(desired: MpsDesired) -> list[str]:
    return [share.label for share in desired.slices]


def _another(profile: str, others: list[Instance]) -> Instance:
    taken = {one.start for one in others if one.profile == profile}
    return Instance(start=min(set(range(len(taken) + 1)) - taken), size=1, profile=profile)


def reading_of(gpu: Gpu, uuid: str, size: Size, desired: Desired | None, held_by: Mapping[int, str]) -> GpuReading:
    """`held_by`: titles of pods by job."""
    settled = gpu.coming is None
    view = GpuView(
        index=gpu.index,
        uuid=uuid,
        model=size.model,
        mig_enabled=not size.shared,
        state=GpuState.READY if settled else GpuState.CHANGING,
        partitions=tuple(
            _partition(gpu, one, "" if job is None else held_by[job])
            for one, job in sorted(gpu.instances.items(), key=lambda each: each[0])
        ),
        desired=desired,
    )
    return GpuReading(
        view=view,
        item_hash="" if desired is None else str(desired),
        stage=Stage.SETTLED if settled else Stage.WORKING,
    )


def id_of(gpu: Gpu, one: Instance) -> str:
    return f"{'MIG' if '.' in one.profile else 'MPS'}-{gpu.node}-{gpu.index}-{one.profile}-{one.start}"


def _partition(gpu: Gpu, one: Instance, pod: str) -> PartitionView:
    state = PartitionState.USED if pod else PartitionState.PENDING if one in gpu.fresh else PartitionState.FREE
    resource = resource_of(one.profile)
    if "." not in one.profile:
        memory_mib = slice_of_gb(gigabytes_of(one.profile)).memory_mib
        return PartitionView(resource=resource, memory_mib=memory_mib, state=state, id=id_of(gpu, one), pod=pod)
    return PartitionView(
        resource=resource,
        profile=one.profile,
        start=one.start,
        size=one.size,
        state=state,
        id=id_of(gpu, one),
        pod=pod,
    )
