"""Rules 5, 6, 14 and 16: what lists do to the Node, to pod-resources and to running pods."""

from collections.abc import Callable

import pytest

from kube import apply
from kube.kubelet_api import deviceplugin_pb2 as api
from tests.e2e.kubelet.bench import KubeletSide, Raw, container, pod
from tests.e2e.real_cluster import NODES, RealCluster

Devices = list[api.Device]


def device(device_id: str, health: str = "Healthy") -> api.Device:
    return api.Device(ID=device_id, health=health)


LISTS: list[tuple[str, Devices, tuple[int, int], list[str]]] = [
    ("one unhealthy", [*map(device, "abc"), device("d", "Unhealthy")], (4, 3), ["a", "b", "c"]),
    ("health is one exact word", [device("a"), device("b", "healthy"), device("c", "")], (3, 1), ["a"]),
    ("both healths of one id count", [device("a"), device("a"), device("a", "Unhealthy")], (2, 1), ["a"]),
    ("strange ids", [device("x" * 100), device("GPU-1::10gb::1"), device("a/3/0")], (3, 3), []),
    ("empty", [], (0, 0), []),
]


@pytest.mark.parametrize(("devices", "numbers", "offered"), [row[1:] for row in LISTS], ids=[row[0] for row in LISTS])
def test_counting(bench: KubeletSide, devices: Devices, numbers: tuple[int, int], offered: list[str]) -> None:
    plugin = bench.plugin("first")
    plugin.devices = devices
    plugin.push()
    bench.wait_numbers(*numbers)
    assert bench.offered() == (offered or sorted(each.ID for each in devices))


def test_the_node_shows_it_at_the_tick_and_not_before(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    bench.wait_numbers(1, 1)
    path = f"{NODES}/{bench.node.name}"
    apply.merge_patch(
        bench.admin, path, {"metadata": {"labels": {"gpuplan.test/touched": bench.resource.rpartition("/")[2]}}}
    )
    plugin.offer("a", "b").push()
    bench.wait(lambda: bench.offered() == ["a", "b"], "the kubelet has it")
    bench.wait_numbers(2, 2)


def test_a_dead_plugin_keeps_its_capacity_and_its_pods(bench: KubeletSide) -> None:
    plugin = bench.plugin("a", "b")
    raw = bench.run(pod(container(devices={bench.resource: 1})))
    held = bench.held()[raw["metadata"]["name"]]
    plugin.stop()

    bench.wait(lambda: bench.offered() == [], "nothing is offered")
    bench.wait_numbers(2, 0)
    assert bench.held()[raw["metadata"]["name"]] == held
    assert bench.phase(raw) == "Running"


def test_a_held_device_that_leaves_the_list_stays_held(bench: KubeletSide) -> None:
    plugin = bench.plugin("a", "b", prefers=True)
    plugin.preference = lambda available, size: ["a"]
    raw = bench.run(pod(container(devices={bench.resource: 1})))
    plugin.offer("b").push()

    bench.wait_numbers(1, 1)
    assert bench.offered() == ["b"]
    assert bench.held()[raw["metadata"]["name"]] == ["a"]
    second = bench.run(pod(container(devices={bench.resource: 1})))
    assert bench.held()[second["metadata"]["name"]] == ["b"], "the kubelet itself admits by id"


def health(bench: KubeletSide, raw: Raw) -> dict[str, str]:
    status = bench.pod(raw)["status"]["containerStatuses"][0]
    return {
        each["resourceID"]: each["health"]
        for resource in status.get("allocatedResourcesStatus") or ()
        for each in resource["resources"]
    }


def test_the_health_of_held_devices_is_in_the_pods_status(bench: KubeletSide, cluster: RealCluster) -> None:
    if cluster.minor < 36:
        pytest.skip("allocatedResourcesStatus is on from 1.36")
    plugin = bench.plugin("a")
    raw = bench.run(pod(container(devices={bench.resource: 1})))
    bench.wait(lambda: health(bench, raw) == {"a": "Healthy"}, "healthy")

    plugin.offer(unhealthy=("a",)).push()
    bench.wait(lambda: health(bench, raw) == {"a": "Unhealthy"}, "unhealthy")
    bench.wait_numbers(1, 0)
    plugin.offer("a").push()
    bench.wait(lambda: health(bench, raw) == {"a": "Healthy"}, "healthy again")
    plugin.offer().push()
    bench.wait_numbers(0, 0)
    assert health(bench, raw) == {"a": "Healthy"}, "an id that is gone keeps its health"


@pytest.mark.parametrize("change", [lambda n: n + 5, lambda n: 0], ids=["raised", "lowered"])
def test_numbers_of_another_client_are_corrected_at_the_tick(bench: KubeletSide, change: Callable[[int], int]) -> None:
    bench.plugin("a", "b")
    bench.wait_numbers(2, 2)
    wrong = {bench.resource: str(change(2))}
    path = f"{NODES}/{bench.node.name}/status"
    apply.merge_patch(bench.admin, path, {"status": {"capacity": wrong, "allocatable": wrong}})
    bench.wait_numbers(2, 2)


@pytest.mark.long
def test_five_minutes_after_its_plugin_a_resource_is_zero_for_ever(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    raw = bench.run(
        pod(container(devices={bench.resource: 1}, sleep=40), restart_policy="Always", script={"restarts": "99"})
    )
    plugin.stop()
    bench.wait_numbers(1, 0)
    bench.wait_dropped()
    text = f"endpoint not found in cache for a registered resource: {bench.resource}"
    bench.wait(lambda: bench.waiting(raw) == ("CreateContainerConfigError", text), "a restart finds no endpoint")
    other = bench.run(pod(container(devices={bench.resource: 1})), "Failed")
    message = f"Allocate failed due to cannot allocate unregistered device {bench.resource}, which is unexpected"
    assert other["status"]["message"] == f"Pod was rejected: {message}"
