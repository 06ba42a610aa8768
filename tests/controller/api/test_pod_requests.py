"""Requests where kube-scheduler's arithmetic is peculiar; the plain cases are in test_parse."""

from typing import Any

import pytest

from controller.api.pod_requests import held_requests, pod_requests

Json = dict[str, Any]
SLICE = "nvidia.com/mig-1g.10gb"


def requesting(*requests: Json, **spec: Any) -> Json:
    containers = [{"name": f"c{n}", "resources": {"requests": each}} for n, each in enumerate(requests)]
    return {"spec": {"containers": containers, **spec}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        # Rounded up once, not per container.
        (requesting({"cpu": "0.1m"}, {"cpu": "0.2m"}), {"cpu": 1}),
        (requesting({"memory": "100m"}, {"memory": "1.5"}), {"memory": 2}),
        (requesting({"cpu": "1500u"}, overhead={"cpu": "600u"}), {"cpu": 3}),
        # As 64 bits count them: added as they are written, and cut off once. Below 0 it is room, and never a device.
        (requesting({"cpu": "1e999", SLICE: "1e999"}), {"cpu": 0}),
        (requesting({"memory": "18446744073709551617"}, {"memory": "1"}), {"memory": 2}),
        (requesting({"cpu": "7Ei", SLICE: "9223372036854775808"}), {"cpu": -(2**63)}),
        (requesting({SLICE: "9223372036854775807"}, {SLICE: "9223372036854775807"}, {SLICE: "5"}), {SLICE: 3}),
        # Names without a slash that are no resource to the scheduler.
        (requesting({"gpus": "1", "storage": "1Gi", "hugepages-2Mi": "4Mi"}), {"hugepages-2Mi": 4 << 20}),
        # Those of quotas are none either, unless Kubernetes itself owns them.
        (requesting({f"requests.{SLICE}": "1", "kubernetes.io/x": "1"}), {"kubernetes.io/x": 1}),
        (
            requesting({"ephemeral-storage": "1", "attachable-volumes-x": "1"}),
            {"ephemeral-storage": 1, "attachable-volumes-x": 1},
        ),
        # Pod-level requests replace; a pod-level limit alone counts where no container has a request.
        (requesting({"cpu": "1"}, resources={"limits": {"cpu": "4"}}), {"cpu": 1000}),
        (requesting({"memory": "1"}, resources={"limits": {"cpu": "4"}}), {"memory": 1, "cpu": 4000}),
        (
            requesting({"cpu": "1"}, resources={"requests": {"cpu": "4", SLICE: "2"}, "limits": {"cpu": "8"}}),
            {"cpu": 4000},
        ),
    ],
)
def test_what_a_pod_requests(pod: Json, expected: dict[str, int]) -> None:
    assert pod_requests(pod) == expected


def resized(pod: Json, infeasible: bool = False, **status: Any) -> dict[str, int]:
    conditions = [{"type": "PodResizePending", "reason": "Infeasible"}] if infeasible else []
    return held_requests({**pod, "status": {"conditions": conditions, **status}})


def reported(requests: Json | None, allocated: Json | None = None, name: str = "c0") -> list[Json]:
    entry: Json = {"name": name, "resources": {} if requests is None else {"requests": requests}}
    return [{**entry, **({"allocatedResources": allocated} if allocated else {})}]


def test_an_empty_report_is_a_report() -> None:
    pod = requesting({"cpu": "1"})

    assert resized(pod, containerStatuses=reported(None, {"cpu": "2"})) == {"cpu": 2000}
    assert resized(pod, containerStatuses=[{"name": "c0", "allocatedResources": {"cpu": "2"}}]) == {"cpu": 1000}
    assert resized(pod, infeasible=True, containerStatuses=reported(None)) == {}


def test_plain_init_containers_are_not_resized() -> None:
    pod = requesting({"cpu": "1"}, initContainers=[{"name": "i", "resources": {"requests": {"cpu": "2"}}}])
    sidecar = requesting(
        {"cpu": "1"}, initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}]
    )
    status = reported({"cpu": "5"}, name="i")

    assert resized(pod, initContainerStatuses=status) == {"cpu": 2000}
    assert resized(sidecar, initContainerStatuses=status) == {"cpu": 6000}


def test_pod_level_requests_are_resized_as_a_whole() -> None:
    pod = requesting({"cpu": "1"}, resources={"requests": {"cpu": "4"}}, overhead={"cpu": "1"})
    status: Json = {"resources": {"requests": {"cpu": "6", "memory": "7"}}, "allocatedResources": {"cpu": "5"}}

    assert resized(pod) == {"cpu": 5000}
    assert resized(pod, **status) == {"cpu": 7000}
    assert resized(pod, resources={"requests": {"cpu": "2"}}) == {"cpu": 5000}
    assert resized(pod, infeasible=True, resources={"requests": {"cpu": "2"}}) == {"cpu": 3000}
