"""What pods request: the scheduler's arithmetic over containers, init containers and sidecars."""

import pytest

from controller.api.pod_requests import held_requests, pod_requests
from tests.builders.objects import SLICE, Json
from tests.builders.views import pod_view
from tests.controller.api.raw_pods import container, pod

SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container(cpu="500m", memory="1Gi")]}, {"cpu": 500, "memory": 2**30}),
        ({"containers": [container(cpu="1"), container("b", cpu="0.5")]}, {"cpu": 1500}),
        ({"containers": [container(cpu="0.0001")]}, {"cpu": 1}),
        # A limit without a request is a request.
        ({"containers": [{"name": "a", "resources": {"limits": {SLICE: 1, "cpu": "2"}}}]}, {SLICE: 1, "cpu": 2000}),
        (
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000},
        ),
        # Plain init containers run one after the other, before the containers.
        (
            {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3"), container("j", cpu="2")]},
            {"cpu": 3000},
        ),
        # A sidecar runs alongside the containers, and alongside the init containers after it.
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("s", cpu="1") | SIDECAR, container("i", cpu="2")],
            },
            {"cpu": 3000},
        ),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("i", cpu="2"), container("s", cpu="1") | SIDECAR],
            },
            {"cpu": 2000},
        ),
        (
            {"containers": [container(mig="1")], "initContainers": [container("s", mig="1") | SIDECAR]},
            {SLICE: 2},
        ),
        # Pod-level requests replace cpu and memory, never extended resources; overhead comes on top.
        (
            {
                "containers": [container(cpu="1", mig="1")],
                "resources": {"requests": {"cpu": "4", SLICE: "9"}},
                "overhead": {"cpu": "250m"},
            },
            {"cpu": 4250, SLICE: 1},
        ),
    ],
)
def test_requests(spec: Json, expected: dict[str, int]) -> None:
    assert pod_requests({"spec": spec}) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], 3000),
        ([{"type": "PodResizePending", "reason": "Deferred"}], 3000),
        ([{"type": "PodResizePending", "reason": "Infeasible"}], 2000),
    ],
)
def test_a_bound_pod_takes_the_most_of_spec_and_what_a_resize_left(conditions: list[Json], expected: int) -> None:
    raw = pod(
        {"containers": [container(cpu="3")], "nodeName": "n1"},
        {
            "conditions": conditions,
            "containerStatuses": [
                {"name": "main", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}
            ],
        },
    )
    assert held_requests(raw) == {"cpu": expected}
    assert dict(pod_view(raw).requests) == {"cpu": expected}
