"""Verdicts on one partition, by ids alone: its own, those of its neighbours, and those of strangers."""

import pytest

from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.partitions import Partition, mps_partition
from nodeagent.observed.kubelet import Listed
from nodeagent.observed.pods import ObservedPods
from nodeagent.observed.usage import NOTHING, Usage, Use, Verdict, judge
from partitioning.mps import replicas_of

UUID = "GPU-0f000000-0000-0000-0000-000000000001"
WHOLE = Partition(id=UUID, resource="nvidia.com/gpu", gpu=UUID, kind=DeviceKind.WHOLE, memory_mib=1)
ONE, OTHER = (mps_partition(UUID, share, number) for number, share in enumerate(replicas_of(81559, 2)))
SLICES = frozenset({ONE.id, OTHER.id})
POD = "default/holder"
FREE = Verdict(use=Use.FREE)


@pytest.mark.parametrize(
    ("held", "partition", "verdict"),
    [
        (OTHER.id, ONE, FREE),
        (ONE.id, ONE, Verdict(use=Use.USED, pod=POD)),
        (f"{UUID}::7", ONE, Verdict(use=Use.USED, pod=POD, other_id=f"{UUID}::7")),
        (OTHER.id, WHOLE, Verdict(use=Use.USED, pod=POD, other_id=OTHER.id)),
        (WHOLE.id, ONE, Verdict(use=Use.USED, pod=POD, other_id=WHOLE.id)),
    ],
    ids=["another slice", "itself", "an id of a slice that is not ours", "a slice of it", "all of the GPU"],
)
def test_what_one_held_id_says_of_a_partition(held: str, partition: Partition, verdict: Verdict) -> None:
    assert Usage(held={held: POD}).of(partition, SLICES) == verdict


def test_a_doubt_about_its_own_id_is_about_no_other_id() -> None:
    assert Usage(doubtful={WHOLE.id: "why"}).of(WHOLE) == Verdict(use=Use.UNKNOWN, why="why")


def test_of_several_ids_that_name_nothing_the_first_is_named_with_who_holds_it() -> None:
    found = Usage(held={"nvidia1": POD}, doubtful={"nvidia0": "why"}).of(WHOLE)

    assert (found.use, found.other_id) == (Use.UNKNOWN, "nvidia0")
    assert found.why.startswith("a pod that is gone may hold nvidia0, an id of another device plugin")
    assert Usage(held={"nvidia1": POD}).of(WHOLE).why.startswith(f"pod {POD} holds nvidia1, ")


@pytest.mark.parametrize("synced", [True, False])
def test_without_a_pod_nothing_is_in_use_once_the_pods_were_read(synced: bool) -> None:
    verdict = judge(ObservedPods(synced=synced), Listed(), Usage(held=NOTHING)).of(WHOLE)

    assert verdict.use is (Use.FREE if synced else Use.UNKNOWN)
    assert verdict.why == ("" if synced else "the pods of this node were not read from the API yet")
