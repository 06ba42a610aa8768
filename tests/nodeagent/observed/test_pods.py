"""Reading pods: what they may hold, whether they ended, and how long a vanished one counts."""

from typing import Any

import pytest

from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import parse_pod
from tests.builders import objects
from tests.clock import Clock
from tests.nodeagent.items import RUNNING, Raw, started

R, S = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb"


def container(name: str, count: int = 0, resource: str = R, **more: Any) -> Raw:
    return objects.container(name, {resource: count} if count else {}, **more)


def raw(*containers: Raw, init: tuple[Raw, ...] = (), status: Raw | None = None, **spec: Any) -> Raw:
    fields = {"containers": containers, "initContainers": list(init), "status": status or {}, **spec}
    return objects.pod("b", namespace="a", uid="u", **fields)


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("pod", "hidden"),
    [
        pytest.param(raw(container("c", 1)), (), id="no init containers"),
        pytest.param(raw(container("c", 1), init=(container("i", 1),)), (), id="reused"),
        pytest.param(raw(container("c", 1), init=(container("i", 3),)), ((R, 2),), id="the rest stays held"),
        pytest.param(raw(container("c"), init=(container("i", 1),)), ((R, 1),), id="init alone"),
        pytest.param(
            raw(container("c", 1), init=(container("i", 2), container("j", 2))), ((R, 1),), id="the peak counts"
        ),
        pytest.param(
            raw(container("c", 1), init=(container("s", 1, **SIDECAR), container("i", 2))),
            ((R, 1),),
            id="a sidecar before it keeps its own",
        ),
        pytest.param(
            raw(container("c", 1), init=(container("i", 2), container("s", 1, **SIDECAR))), (), id="a sidecar after it"
        ),
        pytest.param(raw(container("c", 1), init=(container("i", 1, S),)), ((S, 1),), id="another resource"),
    ],
)
def test_what_init_containers_hold_unlisted(pod: Raw, hidden: tuple[tuple[str, int], ...]) -> None:
    assert parse_pod(pod).hidden == hidden


def test_app_and_sidecar_containers_are_listed_with_their_requests() -> None:
    pod = parse_pod(raw(container("c", 2), container("d"), init=(container("s", 1, **SIDECAR), container("i", 1))))

    assert pod.containers == (("s", ((R, 1),)), ("c", ((R, 2),)))


def test_other_plugins_resources_are_none_of_our_business() -> None:
    assert parse_pod(raw(container("c", 1, "example.com/nic"))).containers == ()


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({"phase": "Running"}, False),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Failed", "containerStatuses": [RUNNING]}, False),
        ({"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}, True),
        ({}, False),
    ],
)
def test_a_phase_alone_does_not_end_a_container(status: Raw, ended: bool) -> None:
    assert parse_pod(raw(container("c", 1), status=status)).ended is ended


UNEXPECTED = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
REFUSALS = [
    f"Pod was rejected: Allocate failed due to {why}, which is unexpected"
    for why in (
        f"requested number of devices unavailable for {R}. Requested: 1, Available: 0",
        f"no healthy devices present; cannot allocate unhealthy devices {R}",
        f"can't allocate unregistered device {R}",
        f"rpc error: code = FailedPrecondition desc = MIG-1 ({R}) is being withdrawn: gpuplan re-partitions this GPU.",
    )
]
OTHER_REFUSALS = [
    "Pod was rejected: Allocate failed due to rpc error: nic plugin, which is unexpected",
    f"Pod was rejected: Allocate failed due to can't allocate unregistered device {S}, which is unexpected",
    f"Pod was rejected: Allocate failed due to can't allocate unregistered device {R}.shared, which is unexpected",
    "Pod was rejected: Allocate failed due to can't allocate unregistered device example.com/nic, which is unexpected",
    "Pod was rejected: Allocate failed due to rpc error: code = InvalidArgument desc = a container can use one MPS "
    f"slice, this one requests 2 of {R}: request one larger slice, which is unexpected",
]


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        *[({**UNEXPECTED, "message": message}, message) for message in REFUSALS],
        *[({**UNEXPECTED, "message": message}, "") for message in OTHER_REFUSALS],
        (UNEXPECTED, ""),
        ({"phase": "Failed", "reason": f"OutOf{S}"}, ""),
        ({"phase": "Failed", "reason": f"OutOf{R}"}, f"OutOf{R}"),
        ({"phase": "Failed", "reason": "OutOfcpu"}, ""),
        ({"phase": "Failed", "reason": "Evicted"}, ""),
        ({**UNEXPECTED, "phase": "Running", "message": REFUSALS[0]}, ""),
    ],
)
def test_refusals_that_name_a_requested_gpu_resource(status: Raw, refused: str) -> None:
    assert parse_pod(raw(container("c", 1), status=status)).refused == refused


def test_the_longest_grace_period_counts_and_reported_ids_are_read() -> None:
    devices = [{"resourceID": "MIG-1", "health": "Healthy"}]
    status = {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": R, "resources": devices}]}]}
    pod = raw(container("c", 1), status=status, terminationGracePeriodSeconds=45)
    pod["metadata"]["deletionGracePeriodSeconds"] = 0

    assert parse_pod(pod).grace_seconds == 45
    assert parse_pod(pod).reported == ("MIG-1",)


def test_a_vanished_pod_counts_until_it_is_known_to_have_ended() -> None:
    clock = Clock()
    book = PodBook(clock=clock)
    pod = parse_pod(raw(container("c", 1), terminationGracePeriodSeconds=10))
    book.on_event(("a", "b"), None, pod)
    book.on_event(("a", "b"), pod, None)

    clock.now += 86400
    assert [gone.uid for gone in book.observed().vanished] == ["u"]
    book.end(["u"])
    assert book.observed().vanished == ()
    assert book.observed().ended == {"u"}
    assert book.observed().departed == frozenset(), "a pod of its name that the kubelet still lists is a stranger"


def test_an_ended_pod_that_leaves_does_not_vanish() -> None:
    clock = Clock()
    book = PodBook(clock=clock)
    pod = parse_pod(raw(container("c", 1), status={"phase": "Succeeded"}))
    book.on_event(("a", "b"), None, pod)
    book.on_event(("a", "b"), pod, None)

    seen = book.observed()
    assert seen.vanished == ()
    assert seen.ended == {"u"}
    assert seen.departed == {("a", "b")}
    clock.now += 10
    assert book.observed().departed == frozenset()


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    book = PodBook(clock=Clock())
    first = parse_pod(raw(container("c", 1)))
    second = raw(container("c", 1))
    second["metadata"]["uid"] = "v"
    book.on_event(("a", "b"), None, first)
    book.on_event(("a", "b"), first, parse_pod(second))

    assert [gone.uid for gone in book.observed().vanished] == ["u"]
    assert [pod.uid for pod in book.observed().pods] == ["v"]


def test_a_later_deletion_does_not_shorten_the_grace_period() -> None:
    book = PodBook(clock=Clock())
    pod = raw(container("c", 1))
    for seconds in (600, 0):
        pod["metadata"]["deletionGracePeriodSeconds"] = seconds
        book.on_event(("a", "b"), None, parse_pod(pod))
    book.on_event(("a", "b"), None, None)

    assert [gone.grace_seconds for gone in book.observed().vanished] == [600]


def test_a_pod_that_runs_again_has_not_ended() -> None:
    book = PodBook(clock=Clock())
    for phase in ("Failed", "Running"):
        book.on_event(("a", "b"), None, parse_pod(raw(container("c", 1), status={"phase": phase})))

    assert book.observed().ended == frozenset()


def test_a_mirror_pod_that_comes_back_is_of_the_same_static_pod() -> None:
    book = PodBook(clock=Clock())
    hash_ = "0123456789abcdef0123456789abcdef"
    annotations = {"kubernetes.io/config.hash": hash_, "kubernetes.io/config.mirror": hash_}
    pod = raw(container("c", 1), terminationGracePeriodSeconds=600)
    pod["metadata"]["annotations"] = annotations
    book.on_event(("a", "b"), None, parse_pod(pod))
    book.on_event(("a", "b"), parse_pod(pod), None)
    assert [gone.uid for gone in book.observed().vanished] == [hash_]
    pod["metadata"]["uid"], pod["spec"]["terminationGracePeriodSeconds"] = "v", 30
    book.on_event(("a", "b"), None, parse_pod(pod))

    assert book.observed().vanished == ()
    assert [(found.uid, found.grace_seconds) for found in book.observed().pods] == [(hash_, 600)]
    annotations["kubernetes.io/config.hash"] = "0f1e2d3c-0000-4000-8000-0123456789ab"
    assert parse_pod(pod).uid == "v", "a tenant cannot take the UID of another pod"


@pytest.mark.parametrize(("name", "outside"), [(None, False), ("nvidia", False), ("kata-qemu", True), ("gvisor", True)])
def test_a_runtime_class_may_run_a_pod_outside_of_its_cgroups(name: str | None, outside: bool) -> None:
    pod = raw(container("c", 1))
    if name:
        pod["spec"]["runtimeClassName"] = name

    assert parse_pod(pod).outside is outside


@pytest.mark.parametrize(
    ("shown", "has_started"),
    [
        ({}, False),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, False),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "containerID": "containerd://1"}, True),
        ({"state": {"running": {}}}, True),
        ({"state": {"terminated": {}}}, True),
    ],
)
def test_a_pod_has_started_once_a_container_was_shown(shown: Any, has_started: bool) -> None:
    status = {"phase": "Pending", "containerStatuses": [{"name": "c", **shown}]}

    assert parse_pod(raw(container("c", 1), status=status)).started is has_started


def test_a_finished_pod_whose_containers_are_reported_running_ends_when_it_is_known_to() -> None:
    clock = Clock()
    book = PodBook(clock=clock)
    status = started("Failed")
    pod = parse_pod(raw(container("c", 1), status=status, terminationGracePeriodSeconds=10))
    book.on_event(("a", "b"), None, pod)
    assert [found.ended for found in book.observed().pods] == [False]

    clock.now += 86400
    assert [found.ended for found in book.observed().pods] == [False]
    book.end(["u"])
    assert [found.ended for found in book.observed().pods] == [True]
    assert book.observed().ended == {"u"}

    # The kubelet undoes a patch.
    book.on_event(("a", "b"), pod, parse_pod(raw(container("c", 1), status={"phase": "Running"})))
    assert [found.ended for found in book.observed().pods] == [False]
    assert book.observed().ended == frozenset()
