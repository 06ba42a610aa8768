"""Readings of pods: containers in start order, devices, requests, scripts."""

import math

from sandbox.kubelet.pods import Role, parse_pod
from tests.sandbox.kubelet.builders import MIG, container, pod


def test_containers_come_in_start_order_with_their_devices() -> None:
    init = [container("i", devices=1), container("s", restartPolicy="Always")]
    read = parse_pod(pod(init=init, containers=[container("a", devices=2, more={"nvidia.com/gpu-10gb": 1})]))

    assert [(each.name, each.role) for each in read.containers] == [
        ("i", Role.INIT),
        ("s", Role.SIDECAR),
        ("a", Role.APP),
    ]
    assert read.container("a").devices == (("nvidia.com/gpu-10gb", 1), (MIG, 2))
    assert read.requests == {MIG: 2, "nvidia.com/gpu-10gb": 1}


def test_only_extended_resources_are_devices() -> None:
    raw = container()
    raw["resources"] = {"limits": {"cpu": "500m", "memory": "1Gi", "hugepages-2Mi": "2Mi"}}

    read = parse_pod(pod(containers=[raw]))
    assert read.containers[0].devices == ()
    assert (read.requests["cpu"], read.requests["memory"]) == (500, 1 << 30)


def test_a_container_without_a_sleep_runs_on_and_an_init_container_ends() -> None:
    read = parse_pod(pod(init=[container("i")], containers=[container("a"), container("b", sleep=3)]))

    assert [each.run_seconds for each in read.containers] == [0.0, math.inf, 3.0]
