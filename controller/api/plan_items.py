"""Converts items of a plan (`spec.gpus`, `spec.planned.gpus`) to the desired contents of a GPU, and back.

Takes an API item with the GPU's model and memory and returns what planning compares; takes a planned GPU and returns
the item to write, every instance with its start. A profile or start that the model's tables do not know is kept as a
count, so that it is reported and never silently dropped. Decides nothing and does no I/O.
"""

from collections import Counter
from itertools import groupby

from controller.model.views import Desired, Drain, MigDesired, MpsDesired, PlannedGpu, WholeDesired
from crds.v1alpha1 import spec
from crds.v1alpha1.contents import slices_of
from crds.v1alpha1.spec import GpuItem, MigInstance, MigItem, MpsItem, MpsSliceItem, WholeItem
from partitioning.layouts import Instance, Layout, instance_at
from partitioning.models import GpuModel
from partitioning.mps import REPLICA, MpsSlice
from partitioning.resources import ACK_MEMORY, WHOLE, mps_gb_of_resource


def desired_of(item: GpuItem, *, model: GpuModel | None, memory_mib: int, renamed: bool = True) -> Desired:
    """What an item requests. `renamed`: equal MPS replicas are nvidia.com/gpu.shared where the item does not say."""
    if item.mig is not None:
        return _mig(item.mig, model)
    if item.mps is not None:
        return MpsDesired(slices=slices_of(item.mps, memory_mib=memory_mib, renamed=renamed))
    return WholeDesired()


def drain_of(item: GpuItem) -> Drain | None:
    """What of the GPU no new pod gets."""
    if item.drain is None:
        return None
    namespace, _, name = item.drain.pod.partition("/")
    return Drain(uid=item.drain.uid, pod=(namespace, name), partitions=tuple(sorted(item.drain.partitions)))


def item_of(gpu: PlannedGpu) -> GpuItem:
    """The item that is written for a planned GPU."""
    item, drain = _item_of(gpu), gpu.drain
    if drain is None:
        return item
    written = spec.Drain(pod="/".join(drain.pod), uid=drain.uid, partitions=list(drain.partitions))
    return item.model_copy(update={"drain": written})


def _item_of(gpu: PlannedGpu) -> GpuItem:
    uuid = gpu.uuid or None
    match gpu.desired:
        case MigDesired(layout=layout, counts=counts):
            instances = [MigInstance(profile=placed.profile, start=placed.start) for placed in layout]
            instances += [MigInstance(profile=profile, count=count) for profile, count in counts]
            return GpuItem(index=gpu.index, uuid=uuid, mig=MigItem(instances=instances))
        case MpsDesired(slices=slices):
            return GpuItem(index=gpu.index, uuid=uuid, mps=_mps_item(slices))
        case WholeDesired():
            return GpuItem(index=gpu.index, uuid=uuid, whole=WholeItem())


def _mig(item: MigItem, model: GpuModel | None) -> MigDesired:
    placed: list[Instance] = []
    counts: Counter[str] = Counter()
    for given in item.instances:
        instance = None
        if given.start is not None and model is not None:
            instance = instance_at(model, given.profile, given.start)
        if instance is not None:
            placed.append(instance)
        else:
            counts[given.profile] += given.count or 1
    return MigDesired(layout=Layout.of(placed), counts=tuple(sorted(counts.items())))


def _mps_item(slices: tuple[MpsSlice, ...]) -> MpsItem:
    if slices and slices[0].label == REPLICA:
        return MpsItem(
            replicas=len(slices),
            # Absent leaves the name of what the controller plans to the node; people's items are never written back.
            rename_by_default=False if slices[0].resource == WHOLE else None,
            fail_requests_greater_than_one=False if slices[0].mergeable else None,
        )
    return MpsItem(slices=[_slice_item(share, len(list(same))) for share, same in groupby(slices)])


def _slice_item(share: MpsSlice, number: int) -> MpsSliceItem:
    count = number if number > 1 else None
    if share.resource == ACK_MEMORY:
        return MpsSliceItem(memory_gib=number)
    memory_gb = mps_gb_of_resource(share.resource)
    return MpsSliceItem(memory_gb=memory_gb, count=count, thread_percent=share.thread_percent)
