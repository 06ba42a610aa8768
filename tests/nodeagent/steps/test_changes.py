"""Targets and changes of one GPU, as pure functions: what must never happen, whatever exists there and is in use."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from crds.v1alpha1.spec import GpuItem
from nodeagent.desired.target import MigTarget, MpsTarget, Refusal, WholeTarget, target
from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import MigMode, ObservedGpu
from nodeagent.hardware.partitions import Partition, mig_partition, mps_partition, whole
from nodeagent.observed.usage import Use, Verdict
from nodeagent.steps.changes import GpuChange, gpu_change
from nodeagent.steps.judged import JudgedGpu
from partitioning.layouts import EMPTY, Instance, Layout, check_layout
from partitioning.mps import MAX_CLIENTS, slice_of_gb
from partitioning.packing import Packed, pack
from tests.builders.models import H100
from tests.builders.observed import instance
from tests.nodeagent.items import mig

PROFILES = [spec.name for spec in H100.profiles]
counts = st.dictionaries(st.sampled_from(PROFILES), st.integers(1, 3), max_size=3)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """A layout that can exist, not always a tight one."""
    layout = EMPTY
    for profile, pick in draw(st.lists(st.tuples(st.sampled_from(PROFILES), st.integers(0, 6)), max_size=6)):
        spec = H100.profile(profile)
        assert spec is not None
        place = Instance(start=spec.starts[pick % len(spec.starts)], size=spec.size, profile=profile)
        if check_layout(H100, layout.union([place])) is None:
            layout = layout.union([place])
    return layout


def gpu(layout: Layout, half_made: frozenset[Instance] = frozenset()) -> ObservedGpu:
    instances = tuple(
        instance(place.profile, place.start, number=n, uuid="" if place in half_made else f"MIG-{place.start}")
        for n, place in enumerate(layout)
    )
    return replace(PLAIN, mig_mode=MigMode.ENABLED, instances=instances)


VERDICTS = st.sampled_from(
    (
        Verdict(use=Use.FREE),
        Verdict(use=Use.UNKNOWN, why="w"),
        Verdict(use=Use.USED, why="a process"),
        Verdict(use=Use.USED, pod="a/b"),
        Verdict(use=Use.UNKNOWN, why="w", other_id="GPU-0::0"),
        Verdict(use=Use.USED, pod="a/b", other_id="GPU-0::0"),
    )
)
PLAIN = ObservedGpu(index=0, uuid="GPU-0", name="H100", model=H100, mig_mode=MigMode.DISABLED)


@given(layouts(), counts, st.data())
def test_counts_become_a_possible_layout_and_stay_it(
    observed: Layout, wanted: dict[str, int], data: st.DataObject
) -> None:
    in_use = Layout.of(data.draw(st.lists(st.sampled_from(observed.instances), unique=True))) if observed else EMPTY
    item = GpuItem.read(mig(0, *(f"{profile}*{count}" for profile, count in wanted.items())))

    found = target(item, gpu(observed), in_use)

    possible = isinstance(pack(H100, pinned=EMPTY, requested=wanted), Packed)
    assert isinstance(found, MigTarget) is possible
    if isinstance(found, MigTarget):
        assert check_layout(H100, found.layout) is None
        assert found.layout.counts() == dict(sorted(wanted.items()))
        # Once it is carried out, it is its own answer.
        assert target(item, gpu(found.layout), EMPTY) == found
    else:
        assert isinstance(found, Refusal)


def check(change: GpuChange, judged: JudgedGpu) -> None:
    """What holds for every change."""
    listed, withdrawn = {p.id for p in change.advertise}, {p.id for p in change.withdraw}
    here = {p.id for p in judged.partitions}
    assert not listed & withdrawn
    assert len(change.advertise) == len(listed)
    for partition in change.withdraw:
        # A held id is never withdrawn; one that was withdrawn before may stay so while its use is not known.
        verdict, new = judged.verdict(partition), partition.id not in here
        off = new or partition.id in judged.withdrawn
        assert verdict.free or verdict.other_id or (off and not held_as_advertised(partition, verdict))
    for partition in change.advertise:
        # A second pod could get what is held under another id, and a whole GPU whose use is not known.
        verdict, advertised = judged.verdict(partition), here - judged.withdrawn
        assert not verdict.other_id
        assert partition.kind is not DeviceKind.WHOLE or partition.id in advertised or verdict.free or verdict.pod
    for partition in judged.partitions:
        verdict, off = judged.verdict(partition), partition.id in judged.withdrawn
        if held_as_advertised(partition, verdict) or (not off and not verdict.free and not verdict.other_id):
            assert partition.id in listed
    for destroyed in change.destroy:
        assert destroyed.half_made or destroyed.uuid in judged.released


def held_as_advertised(partition: Partition, verdict: Verdict) -> bool:
    """The kubelet counts its id as allocated; of a process without a pod it knows nothing."""
    by_process = partition.kind is DeviceKind.WHOLE and not verdict.pod
    return verdict.use is Use.USED and not verdict.other_id and not by_process


@given(layouts(), layouts(), st.data())
def test_mig_changes_touch_nothing_that_is_not_free_and_gone(
    observed: Layout, desired: Layout, data: st.DataObject
) -> None:
    half_made = frozenset(data.draw(st.sets(st.sampled_from(observed.instances)))) if observed else frozenset()
    found = gpu(observed, half_made)
    partitions = tuple(p for instance in found.instances if (p := mig_partition(found, instance)))
    judged = judged_gpu(found, partitions, data)

    change = gpu_change(MigTarget(layout=desired), judged)

    check(change, judged)
    left = observed.without(instance.placed for instance in change.destroy)
    assert check_layout(H100, left.union(change.create)) is None
    kept = {p.placed for p in judged.partitions if not judged.verdict(p).free}
    assert not kept & {instance.placed for instance in change.destroy}
    as_desired = observed == desired and not half_made
    assert change.converged is (as_desired and not any(judged.verdict(p).other_id for p in partitions))


sizes = st.lists(st.sampled_from((5, 10, 20, 40)), max_size=8)


@given(sizes, sizes, st.booleans(), st.data())
def test_mps_changes_keep_what_is_held_and_advertise_no_memory_twice(
    there: list[int], wanted: list[int], whole_wanted: bool, data: st.DataObject
) -> None:
    numbers: dict[int, int] = {}
    partitions: list[Partition] = []
    for size in there:
        new = mps_partition(PLAIN.uuid, slice_of_gb(size), numbers.get(size, 0))
        if sum(p.memory_mib for p in partitions) + new.memory_mib <= H100.memory_mib:
            partitions.append(new)
            numbers[size] = numbers.get(size, 0) + 1
    if not partitions:
        partitions = [whole(PLAIN)]
    judged = judged_gpu(PLAIN, tuple(partitions), data)
    goal = WholeTarget() if whole_wanted else MpsTarget(slices=tuple(slice_of_gb(size) for size in sorted(wanted)))

    change = gpu_change(goal, judged)

    check(change, judged)
    after = [*change.advertise, *change.withdraw]
    kinds = {p.kind for p in after}
    assert len(kinds) <= 1
    if DeviceKind.MPS in kinds:
        assert sum(p.memory_mib for p in after) <= H100.memory_mib
        assert len(after) <= MAX_CLIENTS


def judged_gpu(found: ObservedGpu, partitions: tuple[Partition, ...], data: st.DataObject) -> JudgedGpu:
    """Random holders, also of what is not there yet; what is released was withdrawn and is free."""
    verdicts = {p.id: data.draw(VERDICTS) for p in partitions}
    others = data.draw(VERDICTS)
    withdrawn = frozenset(p.id for p in partitions if data.draw(st.booleans()))
    free = [i for i in sorted(withdrawn) if verdicts[i].free]
    return JudgedGpu(
        gpu=found,
        partitions=partitions,
        verdict=lambda partition: verdicts.get(partition.id, others),
        withdrawn=withdrawn,
        released=frozenset(i for i in free if data.draw(st.booleans())),
    )
