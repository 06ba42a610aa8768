"""Verdicts on one partition, by ids alone: its own, those of its neighbours, and those of strangers."""

from dataclasses import replace

import pytest

from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import GpuProcess, ObservedGpu
from nodeagent.hardware.partitions import Partition, mps_partition
from nodeagent.observed.kubelet import Listed, NoAnswer
from nodeagent.observed.pods import NodePod, ObservedPods
from nodeagent.observed.usage import (
    NOTHING,
    Usage,
    Use,
    Verdict,
    judge,
    lists_all_of,
    out_of_step,
    shortfalls,
    with_processes,
)
from partitioning.mps import replicas_of
from tests.builders.observed import instance

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


@pytest.mark.parametrize(
    ("doubts", "verdict"),
    [
        ({"blind": "b", "short": {WHOLE.resource: "s"}}, Verdict(use=Use.UNKNOWN, why="b")),
        ({"short": {WHOLE.resource: "s"}}, Verdict(use=Use.UNKNOWN, why="s")),
        ({"short": {ONE.resource: "s"}}, FREE),
        ({"doubtful": {OTHER.id: "d"}}, Verdict(use=Use.UNKNOWN, why="d", other_id=OTHER.id)),
        ({"held": {WHOLE.id: POD}, "forgotten": (WHOLE.id,)}, Verdict(use=Use.USED, pod=POD, forgotten=True)),
        ({"held": {WHOLE.id: POD}, "forgotten": (ONE.id,)}, Verdict(use=Use.USED, pod=POD)),
        ({"held": {OTHER.id: POD, ONE.id: POD}}, Verdict(use=Use.USED, pod=POD, other_id=ONE.id)),
    ],
    ids=["blind", "short", "short of another", "doubtful", "forgotten", "another forgotten", "the first of two"],
)
def test_what_is_said_of_a_whole_gpu(doubts: dict[str, object], verdict: Verdict) -> None:
    assert Usage(**doubts).of(WHOLE) == verdict  # type: ignore[arg-type]  # of literals


HERE = replace(instance("1g.10gb", 2, number=9), id=9)
GPU = ObservedGpu(index=0, uuid=UUID, instances=(HERE,))
CUT = replace(WHOLE, kind=DeviceKind.MIG, placed=HERE.placed)
ELSEWHERE = replace(CUT, placed=replace(HERE.placed, start=3))
CLIENTS = (GpuProcess(pid=8, mps_client=True), GpuProcess(pid=7, mps_client=True), GpuProcess(pid=3))
CLIENT = Verdict(use=Use.UNKNOWN, why="MPS client process 7 runs on the GPU, and no pod holds a slice of it")


@pytest.mark.parametrize(
    ("partition", "processes", "held", "verdict"),
    [
        (WHOLE, (GpuProcess(pid=6), GpuProcess(pid=5)), [], Verdict(use=Use.USED, why="process 5 runs on it")),
        (WHOLE, (GpuProcess(pid=5, instance=9),), [], FREE),
        (WHOLE, (), [], FREE),
        (CUT, (GpuProcess(pid=5), GpuProcess(pid=6, instance=8)), [], FREE),
        (CUT, (GpuProcess(pid=5, instance=9),), [], Verdict(use=Use.USED, why="process 5 runs on it")),
        (ELSEWHERE, (GpuProcess(pid=5, instance=9),), [], FREE),
        (ONE, CLIENTS, [], CLIENT),
        (ONE, CLIENTS, [OTHER.id], FREE),
        (ONE, CLIENTS, [WHOLE.id, "GPU-1::0"], CLIENT),
        (ONE, (GpuProcess(pid=3),), [], FREE),
    ],
)
def test_what_a_process_says(
    partition: Partition, processes: tuple[GpuProcess, ...], held: list[str], verdict: Verdict
) -> None:
    assert with_processes(FREE, partition, GPU, processes, held) == verdict
    known = Verdict(use=Use.UNKNOWN, why="w")
    assert with_processes(known, partition, GPU, processes, held) == known


def pod(name: str = "holder", count: int = 1, uid: str = "u", **fields: object) -> NodePod:
    containers = (("main", ((WHOLE.resource, count),)),) if count else ()
    return NodePod(uid=uid, namespace="default", name=name, containers=containers, **fields)  # type: ignore[arg-type]  # of literals


def lists(*ids: str, name: str = "holder") -> Listed:
    return Listed(pods={("default", name): {"main": {WHOLE.resource: ids}}})


def test_the_list_names_holders_besides_those_that_are_remembered() -> None:
    seen = ObservedPods(pods=(pod(),), synced=True)
    votes = Usage(held={ONE.id: "default/other", WHOLE.id: "default/old"})
    assert judge(seen, lists(WHOLE.id), votes).held == {ONE.id: "default/other", WHOLE.id: POD}
    silent = judge(seen, NoAnswer(reason="no answer"), votes)
    assert (silent.held, silent.short, silent.blind) == (votes.held, {}, "no answer")
    assert judge(seen, lists(WHOLE.id), votes).blind == ""
    assert judge(seen, lists(WHOLE.id), votes, too_early="it has begun").blind == "it has begun"
    assert judge(seen, Listed(), votes).short.keys() == {WHOLE.resource}


LACKS = "pod default/holder requests 2 of nvidia.com/gpu and the kubelet lists 1"
HIDDEN = "init containers of pod default/holder hold 1 more of nvidia.com/gpu, unlisted, until it ends"
VANISHED = "pod default/holder left the API before it ended and may still run"
INIT = ((WHOLE.resource, 1),)


@pytest.mark.parametrize(
    ("pods", "vanished", "known", "why"),
    [
        ([pod()], [], 0, ""),
        ([pod(count=2)], [], 0, LACKS),
        ([pod(count=2, ended=True)], [], 0, ""),
        ([pod(hidden=INIT)], [], 0, HIDDEN),
        ([pod(count=2, hidden=INIT)], [], 0, LACKS),
        ([pod("x", 0), pod(count=2), pod(hidden=INIT)], [], 0, LACKS),
        ([], [pod(count=2)], 1, VANISHED),
        ([], [pod(count=2)], 2, ""),
        ([], [pod(count=2, hidden=INIT)], 2, VANISHED),
        ([], [pod(count=0, hidden=INIT)], 0, VANISHED),
        ([pod(count=2)], [pod(count=2)], 0, LACKS),
    ],
)
def test_of_which_resource_not_every_device_is_known(
    pods: list[NodePod], vanished: list[NodePod], known: int, why: str
) -> None:
    seen = ObservedPods(pods=tuple(pods), vanished=tuple(vanished), synced=True)
    votes = Usage(known={"u": frozenset([ONE.id, OTHER.id][:known])})
    assert shortfalls(seen, lists(WHOLE.id), votes) == ({WHOLE.resource: why} if why else {})


@pytest.mark.parametrize(("shown", "all_of"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_list_is_whole_with_as_many_devices_as_are_requested(shown: int, all_of: bool) -> None:
    containers = {"main": {WHOLE.resource: ("a", "b", "c")[:shown]}}
    assert lists_all_of(pod(count=2), containers) is all_of
    assert not lists_all_of(pod(count=2), {"other": {WHOLE.resource: ("a", "b")}})


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (ObservedPods(pods=(pod(handled=True),)), ""),
        (ObservedPods(vanished=(pod(),)), ""),
        (ObservedPods(departed=frozenset({("default", "holder")})), ""),
        (ObservedPods(), "the kubelet lists pod default/holder, which the API does not show"),
        (ObservedPods(pods=(pod(), pod("b", handled=True))), "does not list pod default/b, which it has handled"),
        (ObservedPods(pods=(pod(), pod("b", handled=True, ended=True), pod("c"))), ""),
    ],
    ids=["both", "vanished", "departed", "only the kubelet", "only the API", "neither is due"],
)
def test_where_kubelet_and_api_differ(seen: ObservedPods, why: str) -> None:
    found = out_of_step(seen, lists(WHOLE.id))
    assert (why in found) if why else found == ""
