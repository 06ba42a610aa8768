"""Rules 7 to 9 and 11: one admission at a time, which devices, which words when it fails."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sandbox.kubelet.builders import MIG, Raw, container, node, pod
from tests.sandbox.kubelet.conftest import QUICK, KubeletBench
from tests.sandbox.kubelet.fake_api import FakeClusterApi
from tests.sandbox.kubelet.fakes import FakePlugin
from tests.waiting import SECONDS, eventually

OTHER = "nvidia.com/gpu-10gb"


def rejected(bench: KubeletBench, raw: Raw) -> tuple[str, str]:
    status = bench.run(raw, "Failed")["status"]
    assert "containerStatuses" not in status
    name = raw["metadata"]["name"]
    text = status["message"].removeprefix("Pod was rejected: ")
    eventually(lambda: (name, "Warning", status["reason"], text) in bench.api.events, "the Event says the same")
    return status["reason"], text


def test_all_devices_taken(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    bench.run(pod())

    assert rejected(bench, pod()) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to requested number of devices unavailable for {MIG}. Requested: 1, Available: 0, "
        "which is unexpected",
    )


@pytest.mark.parametrize("end", [FakePlugin.stop, lambda plugin: plugin.offer().push()], ids=["dead", "empty list"])
def test_no_healthy_devices(bench: KubeletBench, end: Callable[[FakePlugin], None]) -> None:
    bench.kubelet()
    end(bench.plugin("MIG-0"))
    eventually(lambda: bench.offered() == [], "nothing healthy")

    assert rejected(bench, pod())[1] == (
        f"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {MIG}, "
        "which is unexpected"
    )


def test_a_resource_that_is_gone_but_held(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, endpoint_grace_seconds=0.1))
    plugin = bench.plugin("MIG-0")
    bench.run(pod())
    plugin.stop()
    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "the grace period is over")

    assert rejected(bench, pod())[1] == (
        f"Allocate failed due to cannot allocate unregistered device {MIG}, which is unexpected"
    )


def test_a_resource_that_was_never_seen_is_not_missed(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.run(pod("p"))

    assert bench.held() == {"p": []}
    assert [event[2] for event in bench.api.events] == ["Started"]
    assert raw["status"]["phase"] == "Running"


def test_a_resource_that_only_the_node_names(bench: KubeletBench) -> None:
    bench.api = FakeClusterApi(node(capacity={"example.com/dongle": "0"}))
    bench.kubelet()

    assert rejected(bench, pod(containers=[container(more={"example.com/dongle": 1})])) == (
        "OutOfexample.com/dongle",
        "Node didn't have enough resource: example.com/dongle, requested: 1, used: 0, capacity: 0",
    )


def test_too_much_memory_for_the_node(bench: KubeletBench) -> None:
    bench.kubelet()
    greedy = {"name": "c", "image": "busybox", "resources": {"requests": {"memory": "33Gi"}}}

    assert rejected(bench, pod(containers=[greedy])) == (
        "OutOfmemory",
        f"Node didn't have enough resource: memory, requested: {33 << 30}, used: 0, capacity: {32 << 30}",
    )


def test_the_plugins_own_words_reach_the_user(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    plugin.allocate_error = "MIG-0 is being withdrawn"

    assert rejected(bench, pod()) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to rpc error: code = FailedPrecondition desc = MIG-0 is being withdrawn, "
        "which is unexpected",
    )
    plugin.allocate_error = ""
    bench.run(pod("next"))
    assert bench.held() == {"next": ["MIG-0"]}, "an error gives the device back"


def test_an_answer_without_containers_keeps_the_device(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1")
    plugin.answer = lambda ids: None
    assert "no containers return in allocation response" in rejected(bench, pod())[1]

    assert "Requested: 2, Available: 1" in rejected(bench, pod(containers=[container(devices=2)]))[1]


def test_a_rejected_pod_is_never_tried_again(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin()
    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "the empty list has come")
    raw = bench.run(pod(), "Failed")
    plugin.offer("MIG-0").push()
    eventually(lambda: bench.offered() == ["MIG-0"], "a device")

    bench.api.change(raw, metadata={"labels": {"a": "b"}})
    bench.run(pod("next"))
    assert bench.api.phase(raw) == "Failed"
    assert plugin.allocated == [["MIG-0"]]


def test_admission_is_one_thread_in_bind_order(bench: KubeletBench) -> None:
    """While a plugin answers an Allocate, no pod is admitted, started or stopped; the rest goes on."""
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1")
    running = bench.run(pod("running", containers=[container()]))
    plugin.may_allocate.clear()
    first, second = bench.api.add(pod("first")), bench.api.add(pod("second", containers=[container()]))
    assert plugin.allocating.wait(SECONDS)
    bench.api.delete(running)

    assert bench.held() == {"running": [], "first": []}, "a pod in admission is listed, without devices"
    plugin.offer("MIG-0", "MIG-1", "MIG-2").push()
    eventually(lambda: bench.offered() == ["MIG-0", "MIG-1", "MIG-2"], "device updates go on")
    eventually(lambda: bench.api.allocatable(MIG) == ("3", "3"), "status ticks go on")
    bench.plugin("S-0", resource=OTHER)
    assert [bench.api.phase(raw) for raw in (first, second, running)] == ["Pending", "Pending", "Running"]

    plugin.may_allocate.set()
    bench.wait_phase(first, "Running")
    bench.wait_phase(second, "Running")
    bench.wait_gone(running)


def test_one_call_per_container_and_resource(bench: KubeletBench) -> None:
    bench.kubelet()
    mig, mps = bench.plugin("MIG-0", "MIG-1", "MIG-2"), bench.plugin("S-0", resource=OTHER)
    wanted = [container("a", devices=2, more={OTHER: 1}), container("b", devices=1)]
    bench.run(pod("p", containers=wanted))

    assert [len(ids) for ids in mig.allocated] == [2, 1]
    assert mps.allocated == [["S-0"]]
    assert bench.held() == {"p": ["MIG-0", "MIG-1", "MIG-2", "S-0"]}


def test_the_choice_is_random_without_a_preference(bench: KubeletBench) -> None:
    bench.kubelet()
    ids = [f"MIG-{number}" for number in range(8)]
    plugin = bench.plugin(*ids)
    for _ in ids:
        bench.run(pod())

    order = [call[0] for call in plugin.allocated]
    assert sorted(order) == ids
    assert order != ids


def test_a_preference_is_asked_for_and_foreign_ids_in_it_are_ignored(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1", "MIG-2", prefers=True)
    plugin.preference = lambda available, size: ["MIG-9", "MIG-2", "MIG-2"]

    bench.run(pod(containers=[container(devices=2)]))
    assert plugin.preferred_requests == [({"MIG-0", "MIG-1", "MIG-2"}, set(), 2)]
    assert len(plugin.allocated[0]) == 2
    assert "MIG-2" in plugin.allocated[0]
    bench.run(pod())
    assert plugin.preferred_requests[1][2] == 1, "also when nothing is left to choose"


def test_devices_of_init_containers_are_used_again(bench: KubeletBench) -> None:
    """The measured sequence: init asks 1, then 2, two apps ask 1 each."""
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1", "MIG-2", prefers=True)
    plugin.preference = lambda available, size: sorted(available)[:size]

    init = [container("i1", devices=1), container("i2", devices=2)]
    bench.run(pod("p", init=init, containers=[container("a", devices=1), container("b", devices=1)]))
    calls = [sorted(ids) for ids in plugin.allocated]
    assert calls[:2] == [["MIG-0"], ["MIG-0", "MIG-1"]]
    assert sorted(calls[2:]) == [["MIG-0"], ["MIG-1"]]
    assert ({"MIG-0", "MIG-1", "MIG-2"}, {"MIG-0"}, 2) in plugin.preferred_requests
    assert bench.held() == {"p": ["MIG-0", "MIG-1"]}


def test_a_sidecar_keeps_its_device(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0", "MIG-1")
    init = [container("i", devices=1), container("s", devices=1, restartPolicy="Always"), container("i2", devices=1)]
    bench.run(pod("p", init=init, containers=[container("a", devices=1)]))

    assert bench.held() == {"p": ["MIG-0", "MIG-1"]}


def test_a_plain_init_container_holds_its_device_for_the_pods_life_unseen(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    bench.run(pod("p", init=[container("i", devices=1)], containers=[container("a")]))

    assert bench.held() == {"p": []}
    assert "Available: 0" in rejected(bench, pod())[1]
