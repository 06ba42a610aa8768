"""Rules 2 and 14: what pod-resources answers before the pods are known, in which shape, and how often."""

from dataclasses import replace

import grpc
import pytest

from kube.kubelet_api import podresources_pb2 as api
from sandbox.kubelet.podresources import RateLimit
from tests.sandbox.kubelet.builders import MIG, container, pod
from tests.sandbox.kubelet.conftest import QUICK, KubeletBench
from tests.waiting import SECONDS, eventually


def test_the_list_is_empty_while_the_api_is_not_reachable_and_devices_are_full(bench: KubeletBench) -> None:
    bench.api.reachable = False
    raw = bench.api.add(pod("p"))
    bench.kubelet()
    bench.plugin("MIG-0")

    assert bench.held() == {}
    bench.api.come_back()
    bench.wait_phase(raw, "Running")
    assert bench.held() == {"p": ["MIG-0"]}


def test_the_list_is_empty_for_the_time_that_the_setting_says(bench: KubeletBench) -> None:
    bench.api.add(pod("p", containers=[container()]))
    bench.kubelet(timings=replace(QUICK, pods_after_seconds=0.3))

    bench.wait_serving()
    assert bench.held() == {}
    eventually(lambda: bench.held() == {"p": []}, "the pods are known")


def test_it_answers_before_kubelet_sock_is_there(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, registration_after_seconds=0.5))

    assert bench.held() == {}
    assert not bench.paths.registration_socket.exists()


def test_one_entry_per_device(bench: KubeletBench) -> None:
    bench.kubelet()
    ids = [f"MIG-{number}" for number in range(6)]
    bench.plugin(*ids)
    bench.run(pod("p", containers=[container(devices=6)]))

    (listed,) = bench.lister.List(api.ListPodResourcesRequest(), timeout=SECONDS).pod_resources
    devices = listed.containers[0].devices
    assert [(d.resource_name, len(d.device_ids), d.HasField("topology")) for d in devices] == [(MIG, 1, False)] * 6
    orders = {tuple(d.device_ids[0] for d in bench_list(bench)) for _ in range(5)}
    assert len(orders) > 1, "in no particular order"


def bench_list(bench: KubeletBench) -> list[api.ContainerDevices]:
    (listed,) = bench.lister.List(api.ListPodResourcesRequest(), timeout=SECONDS).pod_resources
    return list(listed.containers[0].devices)


def test_all_methods_share_one_rate_limit(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, rate_per_second=0.001, rate_burst=3))
    bench.lister.List(api.ListPodResourcesRequest(), timeout=SECONDS)
    bench.lister.GetAllocatableResources(api.AllocatableResourcesRequest(), timeout=SECONDS)
    bench.lister.List(api.ListPodResourcesRequest(), timeout=SECONDS)

    with pytest.raises(grpc.RpcError, match="rejected by rate limit"):
        bench.lister.List(api.ListPodResourcesRequest(), timeout=SECONDS)


def test_the_bucket_refills() -> None:
    now = 0.0
    limit = RateLimit(100, 10, lambda: now)

    assert [limit.admit() for _ in range(11)] == [True] * 10 + [False]
    now = 0.02
    assert [limit.admit() for _ in range(3)] == [True, True, False]
    now = 10.0
    assert [limit.admit() for _ in range(11)] == [True] * 10 + [False], "never more than the burst"
