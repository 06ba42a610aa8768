"""Odd pods that an API server takes end no pass, cost what they may, and take no place that an ordinary pod would have.

`python -m tests.controller.odd` plans ten thousand such clusters.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from controller.model.scheduling import SchedulingContext
from controller.planner.search import search
from controller.planning import plan
from tests.builders import objects
from tests.builders.models import H100
from tests.builders.objects import Json
from tests.builders.views import pod_view
from tests.controller.odd import hopeless, pods
from tests.controller.odd.clusters import OPTIONS, case, run
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.drawn import thorough


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *thorough(*range(25, 300, 25))])
def test_ordinary_pods_are_placed_as_without_the_odd_ones(first: int) -> None:
    assert [problem for seed in range(first, first + 25) for problem in run(case(seed))[0]] == []


@pytest.mark.parametrize("seed", [62017, 90172])
def test_an_ordinary_pod_keeps_its_place_where_odd_ones_alone_tell_its_nodes_apart(seed: int) -> None:
    assert run(case(seed))[0] == []


@pytest.mark.parametrize("cpu", [1_000, 200_000])
def test_a_pod_that_can_never_run_divides_no_group_of_nodes(cpu: int) -> None:
    servers = [server(name, mig(gpu_model=H100), labels={pods.HOST: name}) for name in ("n0", "n1")]
    wants = pod("p", "1g.10gb")
    elsewhere = pod("odd", "1g.10gb", cpu=cpu, selector={pods.HOST: "n1"})

    finished = search(cluster(*servers, pending=[wants, elsewhere]), OPTIONS)

    assert len(finished.board.groups) == (1 if cpu > 64_000 else 2)
    assert [len(devices) for devices in finished.board.devices] == [1, 1]
    assert {one.pod.name for one in finished.assignments if one.placed} == {"p", *(["odd"] if cpu < 64_000 else [])}


@pytest.mark.thorough
def test_every_kind_is_drawn_and_some_of_the_ordinary_pods_are_placed() -> None:
    cases = [case(seed) for seed in range(100)]
    drawn = Counter(pod.name for one in cases for pod in one.with_odd.pending)

    assert len(pods.KINDS) >= 22
    assert any(one.with_odd.pods for one in cases)
    assert {one.roomy for one in cases} == {True, False}
    assert 0 < sum(len(plan(one.without, OPTIONS).placed) < len(one.ordinary) for one in cases) < 50
    assert any(plan.name == "strange" for one in cases for plan in one.with_odd.plans)
    assert drawn["odd-0"] == 100
    assert drawn["crowd-0"] > 0
    assert {gate for one in cases for pod in one.with_odd.pending for gate in pod.scheduling_gates} > {
        "example.com/closed"
    }


@pytest.mark.parametrize("reason", hopeless.REASONS, ids=lambda reason: reason.__name__)
def test_a_pod_with_a_reason_never_runs_and_without_it_would(reason: hopeless.Reason) -> None:
    names = ("n0", "n1")
    servers = [server(name, mig(gpu_model=H100), labels={pods.HOST: name}, cpu=192_000) for name in names]
    context = SchedulingContext(
        namespaces={name: {} for name in (*pods.NAMESPACES, "good")},
        claims=hopeless.CLAIMS,
        volumes=hopeless.VOLUMES,
        storage_classes={},
    )
    daemons = [pod_view(raw) for raw in hopeless.daemons(names)]

    def planned(raw: Json) -> int:
        found = replace(cluster(*servers, pods=daemons, pending=[pod_view(raw)]), context=context)
        return len(plan(found, OPTIONS).placed)

    for seed in range(10):
        raw = objects.pod("p", namespace="odd-a")
        assert planned(raw) == 1
        reason(Random(seed), raw)
        assert planned(raw) == 0


def test_a_kind_of_odd_pods_is_drawn_the_same_for_a_seed() -> None:
    assert all(kind(Random(7), "p") == kind(Random(7), "p") for kind in pods.KINDS)
    assert case(3) == case(3)
