"""Rules 8 and 14 of pod-resources itself: one entry per device, one rate limit for all, the errors of Get."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from kube.kubelet_api import podresources_pb2 as api
from tests.e2e.kubelet.bench import KubeletSide, container, pod


def test_one_entry_per_device(bench: KubeletSide) -> None:
    bench.plugin("a", "b", "c", "d")
    raw = bench.run(pod(container(devices={bench.resource: 3}), container("without")))
    answer = bench.lister.List(api.ListPodResourcesRequest(), timeout=60)
    (mine,) = [found for found in answer.pod_resources if found.name == raw["metadata"]["name"]]
    entries = {each.name: [list(devices.device_ids) for devices in each.devices] for each in mine.containers}
    assert sorted(len(ids) for ids in entries["c"]) == [1, 1, 1]
    assert entries["without"] == []
    assert not any(devices.HasField("topology") for each in mine.containers for devices in each.devices)


def test_ids_go_through_unchanged(bench: KubeletSide) -> None:
    ids = sorted(["MIG-3c1b0a6e-5f0d-5b0e-8c8e-000000000001", "GPU-1::3", "GPU-1::10gb::1", "MIG-GPU-1/3/0"])
    bench.plugin(*ids)
    raw = bench.run(pod(container(devices={bench.resource: 4})))
    assert bench.held()[raw["metadata"]["name"]] == ids


def test_the_rate_limit_is_shared_by_all_methods(bench: KubeletSide) -> None:
    bench.plugin("a")
    time.sleep(0.5)  # the bucket fills in a tenth of a second

    def call(number: int) -> tuple[Any, str]:
        try:
            if number % 2:
                bench.lister.List(api.ListPodResourcesRequest(), timeout=60)
            else:
                bench.lister.GetAllocatableResources(api.AllocatableResourcesRequest(), timeout=60)
        except grpc.RpcError as error:
            failed: Any = error
            return failed.code(), failed.details()
        return grpc.StatusCode.OK, ""

    with ThreadPoolExecutor(16) as many:
        answers = list(many.map(call, range(300)))
    refused = [text for code, text in answers if code is not grpc.StatusCode.OK]
    assert {code for code, _ in answers} == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert set(refused) == {"rejected by rate limit"}
    assert len(answers) - len(refused) >= 10
    assert bench.offered() == ["a"]
