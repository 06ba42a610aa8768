"""Rules 7 to 9 and 11: one admission at a time, which devices, which message when it fails."""

from collections.abc import Callable

import pytest

from kube import apply
from tests.e2e.kubelet.bench import PODS, KubeletSide, Raw, container, pod
from tests.e2e.real_cluster import NODES
from tests.sandbox.kubelet.fakes import FakePlugin

UNEXPECTED = "UnexpectedAdmissionError"


def wanting(bench: KubeletSide, count: int = 1, **script: str) -> Raw:
    return pod(container(devices={bench.resource: count}), script=script)


def rejected(bench: KubeletSide, raw: Raw) -> tuple[str, str]:
    """Reason and message, the same in the pod's status and in an Event."""
    failed = bench.run(raw, "Failed")
    status = failed["status"]
    assert not status.get("containerStatuses")
    assert status["message"].startswith("Pod was rejected: ")
    found = (status["reason"], status["message"].removeprefix("Pod was rejected: "))
    bench.wait(lambda: found in bench.warnings(failed), "the Event says the same")
    return found


def test_all_devices_taken(bench: KubeletSide) -> None:
    bench.plugin("a")
    bench.run(wanting(bench))
    text = f"requested number of devices unavailable for {bench.resource}. Requested: 1, Available: 0"
    assert rejected(bench, wanting(bench)) == (
        UNEXPECTED,
        f"Allocate failed due to {text}, which is unexpected",
    )


@pytest.mark.parametrize("end", [FakePlugin.stop, lambda plugin: plugin.offer().push()], ids=["dead", "empty list"])
def test_no_healthy_devices(bench: KubeletSide, end: Callable[[FakePlugin], None]) -> None:
    end(bench.plugin("a"))
    bench.wait(lambda: bench.offered() == [], "nothing healthy")
    text = f"no healthy devices present; cannot allocate unhealthy devices {bench.resource}"
    assert rejected(bench, wanting(bench)) == (
        UNEXPECTED,
        f"Allocate failed due to {text}, which is unexpected",
    )


def test_a_resource_that_was_never_seen_is_not_missed(bench: KubeletSide) -> None:
    raw = bench.run(wanting(bench))
    assert bench.held()[raw["metadata"]["name"]] == []
    assert bench.warnings(raw) == []


def test_a_resource_that_only_the_node_names(bench: KubeletSide) -> None:
    path = f"{NODES}/{bench.node.name}/status"
    zero = {bench.resource: "0"}
    apply.merge_patch(bench.admin, path, {"status": {"capacity": zero, "allocatable": zero}})
    began: list[str] = []

    def kubelet_knows() -> bool:
        """It reads its Node through a watch of its own, which no other client can wait for."""
        raw = bench.create(wanting(bench))
        bench.wait(lambda: bench.phase(raw) in ("Running", "Failed"), "decided")
        began.extend([bench.phase(raw)] * (bench.phase(raw) == "Running"))
        return bench.phase(raw) == "Failed"

    bench.wait(kubelet_knows, "the kubelet has seen its Node")
    text = f"Node didn't have enough resource: {bench.resource}, requested: 1, used: {len(began)}, capacity: 0"
    assert rejected(bench, wanting(bench)) == (f"OutOf{bench.resource}", text)


def test_pods_are_admitted_by_id_and_not_by_number(bench: KubeletSide) -> None:
    """The list changes wholly while a pod holds an old id: the node of 2 then has 3 devices in use."""
    plugin = bench.plugin("a", "b")
    bench.run(wanting(bench))
    plugin.offer("c", "d").push()
    bench.wait(lambda: bench.offered() == ["c", "d"], "all ids are new")
    bench.run(wanting(bench))
    bench.run(wanting(bench))
    assert sorted(plugin.allocated[1] + plugin.allocated[2]) == ["c", "d"]


def test_requests_are_counted_after_a_successful_allocate(bench: KubeletSide) -> None:
    """The kubelet forgot what a running pod holds, but not that it requested it."""
    plugin = bench.plugin("a", "b")
    raw = bench.run(wanting(bench))
    bench.admit_another()
    path = f"{PODS}/{raw['metadata']['name']}/status"
    apply.merge_patch(bench.admin, path, {"status": {"phase": "Failed"}})
    bench.wait(lambda: not bench.shown(raw), "its device is free")
    bench.wait_phase(raw, "Running")

    text = f"Node didn't have enough resource: {bench.resource}, requested: 2, used: 1, capacity: 2"
    assert rejected(bench, wanting(bench, 2)) == (f"OutOf{bench.resource}", text)
    assert sorted(plugin.allocated[-1]) == ["a", "b"]


def test_the_plugins_own_message_reaches_the_user(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    plugin.allocate_error = "a is being withdrawn"
    text = "rpc error: code = FailedPrecondition desc = a is being withdrawn"
    assert rejected(bench, wanting(bench)) == (
        UNEXPECTED,
        f"Allocate failed due to {text}, which is unexpected",
    )
    plugin.allocate_error = ""
    raw = bench.run(wanting(bench))
    assert bench.held()[raw["metadata"]["name"]] == ["a"], "an error gives the device back"


def test_an_answer_without_containers_keeps_the_device(bench: KubeletSide) -> None:
    plugin = bench.plugin("a", "b")
    plugin.answer = lambda ids: None
    assert "no containers return in allocation response" in rejected(bench, wanting(bench))[1]
    assert "Requested: 2, Available: 1" in rejected(bench, wanting(bench, 2))[1]


def test_a_rejected_pod_is_never_tried_again(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    bench.run(wanting(bench))
    raw = bench.run(pod(container(devices={bench.resource: 1}), restart_policy="Always"), "Failed")
    plugin.offer("a", "b").push()
    bench.wait_numbers(2, 2)
    bench.run(wanting(bench))
    assert bench.phase(raw) == "Failed"
    assert len(plugin.allocated) == 2


def test_a_slow_allocate_holds_up_pods_and_nothing_else(bench: KubeletSide) -> None:
    plugin = bench.plugin("a", "b")
    running = bench.run(pod(container()))
    plugin.may_allocate.clear()
    slow = bench.create(wanting(bench))
    assert plugin.allocating.wait(60)
    waiting = bench.create(pod(container()))
    bench.delete(running)

    bench.wait(lambda: bench.held().get(slow["metadata"]["name"]) == [], "listed, without devices")
    plugin.offer("a", "b", "c").push()
    bench.wait(lambda: bench.offered() == ["a", "b", "c"], "device updates go on")
    bench.wait_numbers(3, 3)
    bench.plugin("s", resource=f"{bench.resource}-other")
    assert [bench.phase(raw) for raw in (slow, waiting, running)] == ["Pending", "Pending", "Running"]
    assert [found.state for found in bench.containers(running)] == ["running"], "it got no request to stop"

    plugin.may_allocate.set()
    bench.wait_phase(slow, "Running")
    bench.wait_phase(waiting, "Running")
    bench.wait_gone(running)


def test_one_call_per_container_and_resource(bench: KubeletSide) -> None:
    other = f"{bench.resource}-other"
    first, second = bench.plugin("a", "b", "c"), bench.plugin("s", resource=other)
    raw = bench.run(
        pod(container("x", devices={bench.resource: 2, other: 1}), container("y", devices={bench.resource: 1}))
    )
    assert [len(ids) for ids in first.allocated] == [2, 1]
    assert second.allocated == [["s"]]
    assert bench.held()[raw["metadata"]["name"]] == ["a", "b", "c", "s"]


def test_the_choice_is_random_without_a_preference(bench: KubeletSide) -> None:
    ids = list("abcdefgh")
    plugin = bench.plugin(*ids)
    for raw in [bench.create(wanting(bench)) for _ in ids]:
        bench.wait_phase(raw, "Running")
    order = [call[0] for call in plugin.allocated]
    assert sorted(order) == ids
    assert order != ids


def test_a_preference_is_requested_and_foreign_ids_in_it_are_ignored(bench: KubeletSide) -> None:
    plugin = bench.plugin("a", "b", "c", prefers=True)
    plugin.preference = lambda available, size: ["unknown", "c"]
    bench.run(wanting(bench, 2))
    assert plugin.preferred_requests == [({"a", "b", "c"}, set(), 2)]
    assert len(plugin.allocated[0]) == 2
    assert "c" in plugin.allocated[0]

    plugin.preference = lambda available, size: [*plugin.allocated[0]][:size]
    last = sorted({"a", "b", "c"} - set(plugin.allocated[0]))
    raw = bench.run(wanting(bench))
    assert plugin.preferred_requests[1] == (set(last), set(), 1), "requested also when nothing is left to choose"
    assert bench.held()[raw["metadata"]["name"]] == last, "ids in use are ignored"


def test_devices_of_init_containers_are_used_again(bench: KubeletSide) -> None:
    """The measured sequence: init requests 1, then 2, two apps request 1 each; each container has its own call."""
    plugin = bench.plugin("a", "b", "c", prefers=True)
    plugin.preference = lambda available, size: sorted(available)[:size]
    init = (
        container("i1", devices={bench.resource: 1}, sleep=0.1),
        container("i2", devices={bench.resource: 2}, sleep=0.1),
    )
    apps = (container("x", devices={bench.resource: 1}), container("y", devices={bench.resource: 1}))
    raw = bench.run(pod(*apps, init=init))

    calls = [sorted(ids) for ids in plugin.allocated]
    assert calls[:2] == [["a"], ["a", "b"]]
    assert sorted(calls[2:]) == [["a"], ["b"]]
    assert ({"a", "b", "c"}, {"a"}, 2) in plugin.preferred_requests
    assert bench.held()[raw["metadata"]["name"]] == ["a", "b"]


def test_a_sidecar_keeps_its_device(bench: KubeletSide) -> None:
    bench.plugin("a", "b")
    one = {bench.resource: 1}
    init = (
        container("i", devices=one, sleep=0.1),
        container("s", devices=one, restartPolicy="Always"),
        container("i2", devices=one, sleep=0.1),
    )
    raw = bench.run(pod(container("x", devices=one), init=init))
    assert bench.held()[raw["metadata"]["name"]] == ["a", "b"]


def test_a_plain_init_container_holds_its_device_for_the_pods_life_unseen(bench: KubeletSide) -> None:
    bench.plugin("a")
    raw = bench.run(pod(container("x"), init=(container("i", devices={bench.resource: 1}, sleep=0.1),)))
    assert bench.held()[raw["metadata"]["name"]] == []
    assert "Available: 0" in rejected(bench, wanting(bench))[1]
