"""When a snapshot holds nodes without GPUs, and what the state hands on about pods that filters need more for."""

from typing import Any

import pytest

from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.cache.state import State
from controller.model.scheduling import FilterProfile, SchedulingContext, SpreadConstraint
from controller.model.views import PlannerOptions, PodView
from tests.builders.objects import Json, node, pod
from tests.builders.views import node_view, pod_view
from tests.clock import Clock
from tests.controller.cache.state_bench import ChangingInformers, StateBench

ZONE = "topology.kubernetes.io/zone"


def term(key: str = ZONE) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {}}]}


def spread(hard: bool) -> Json:
    how = "DoNotSchedule" if hard else "ScheduleAnyway"
    return {"topologySpreadConstraints": [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": how}]}


def state(profile: FilterProfile | None = None, **more: Any) -> State:
    clock = Clock()
    window: Batcher[str] = Batcher(idle_seconds=1.0, timeout_seconds=5.0, clock=clock)
    profiles = {"default-scheduler": profile} if profile is not None else {}
    found = State(ClusterCache(options=PlannerOptions(profiles=profiles), clock=clock, **more), window=window)
    found.observe_node("gpu", node_view(node("gpu")))
    plain = node("cpu", mode=None)
    plain["metadata"]["labels"] = {ZONE: "a"}
    found.observe_node("cpu", node_view(plain))
    return found


def observe(found: State, raw: Json) -> PodView:
    view = pod_view(raw)
    found.observe_pod(view.key, view)
    return view


@pytest.mark.parametrize(
    ("pending", "bound", "profile", "there"),
    [
        ({}, {}, None, False),
        ({"affinity": {"podAffinity": term()}}, {}, None, True),
        ({"affinity": {"podAntiAffinity": term("kubernetes.io/hostname")}}, {}, None, True),
        (spread(hard=True), {}, None, True),
        (spread(hard=False), {}, None, False),
        # A pod that keeps others away from its own node only does not matter on nodes with GPUs.
        ({}, {"affinity": {"podAntiAffinity": term("kubernetes.io/hostname")}}, None, False),
        ({}, {"affinity": {"podAntiAffinity": term()}}, None, True),
        ({}, {}, FilterProfile(default_spread=(SpreadConstraint(topology_key=ZONE),)), True),
    ],
)
def test_other_nodes_are_in_the_snapshot_only_if_needed(
    pending: Json, bound: Json, profile: FilterProfile | None, there: bool
) -> None:
    found = state(profile)
    observe(found, pod("waits", **pending))
    runs = observe(found, pod("runs", requests={}, node="cpu", phase="Running", **bound))

    snapshot = found.cluster.snapshot()
    assert [view.name for view in snapshot.nodes] == ["gpu"]
    assert [view.name for view in snapshot.other_nodes] == (["cpu"] if there else [])
    assert list(snapshot.other_pods) == ([runs] if there else [])

    found.observe_pod(runs.key, None)
    assert found.cluster.snapshot().other_pods == ()


def test_without_a_waiting_pod_the_snapshot_has_no_other_nodes() -> None:
    found = state()
    observe(found, pod("runs", requests={}, node="cpu", affinity={"podAntiAffinity": term()}))

    assert found.cluster.snapshot().other_nodes == ()


def test_pods_whose_filters_need_more_are_passed_on() -> None:
    informers, context = ChangingInformers(), SchedulingContext(namespaces={"default": {}})
    informers.set_context(context)
    found = state(informers=informers)
    observe(found, pod("requests"))
    observe(found, pod("plain", requests={}))
    observe(found, pod("repels", requests={}, node="cpu", affinity={"podAntiAffinity": term()}))

    assert informers.required == ["requests", "repels"]
    assert found.cluster.snapshot().context is context


def test_a_change_of_the_context_triggers_a_pass_while_a_pod_waits() -> None:
    bench = StateBench()

    bench.informers.changes.add("claims")
    bench.state.tick()
    assert not bench.window.open
    bench.pod(pod("waits"))
    bench.window.take()
    bench.informers.changes.add("claims")
    bench.state.tick()
    assert bench.triggers() == ("objects of claims",)


WHOLE = "nvidia.com/gpu"


def test_a_pod_that_dra_serves_triggers_no_pass() -> None:
    bench = StateBench()
    bench.informers.map_to_devices(WHOLE)
    bench.state.tick()
    bench.pod(pod("dra", requests={WHOLE: 1}))

    assert bench.triggers() == ()
    bench.informers.changes.add("claims")
    bench.clock.now += 1000.0  # a resync would be due
    bench.state.tick()
    assert bench.triggers() == ()


def test_a_pod_that_dra_serves_from_now_on_needs_no_pass_any_more() -> None:
    bench = StateBench()
    bench.node(node("n1"))
    bench.pod(pod("whole", requests={WHOLE: 1}))
    assert bench.window.open

    bench.informers.map_to_devices(WHOLE)
    bench.state.tick()
    assert bench.triggers() == ()

    bench.informers.map_to_devices()
    bench.state.tick()
    assert bench.triggers() == ("pod uid-whole", "objects of objects")


def test_what_was_reserved_for_a_pod_is_free_once_dra_serves_it() -> None:
    bench = StateBench()
    bench.node(node("n1"))
    bench.pod(pod("whole", requests={WHOLE: 1}))
    bench.pod(pod("partition"))
    bench.state.reserve({"uid-whole": "n1"})
    bench.triggers()

    bench.informers.map_to_devices(WHOLE)
    bench.state.tick()

    assert bench.state.cluster.reservations() == {}
    assert "node n1" in bench.triggers()


def test_a_partition_that_a_device_class_maps_is_planned() -> None:
    """DRA had no device for it; what a node advertises serves it."""
    bench = StateBench()
    bench.pod(pod("mapped"))
    bench.triggers()
    bench.informers.map_to_devices(*(resource for resource, _ in bench.state.cluster.pending()[0].gpu))
    bench.state.tick()

    demands = bench.state.cluster.snapshot().demands
    assert ([one.pod.name for one in demands.helpable], demands.refused) == (["mapped"], ())
    assert bench.triggers() == ("objects of objects",)


MISNAMED = "nvidia.com/mig-small"


def test_a_name_that_no_node_has_any_more_is_explained() -> None:
    bench = StateBench()
    bench.node(node("n1", allocatable={MISNAMED: "1"}))
    bench.pod(pod("waits", requests={MISNAMED: 1}))
    assert bench.triggers() == ()

    bench.node(node("n1"))
    assert bench.triggers() == ("pod uid-waits", "node n1")
    (refused,) = bench.state.cluster.snapshot().demands.refused
    assert "names no partition" in refused.message


def test_a_name_that_a_node_has_now_needs_no_pass_any_more() -> None:
    bench = StateBench()
    bench.pod(pod("waits", requests={MISNAMED: 1}))
    assert bench.window.open

    bench.node(node("n1", allocatable={MISNAMED: "1"}))
    assert bench.triggers() == ()
    bench.clock.now += 1000.0  # a resync would be due
    bench.state.tick()
    assert bench.triggers() == ()


def test_a_name_that_another_node_has_still_is_right() -> None:
    bench = StateBench()
    for name in ("n1", "n2"):
        bench.node(node(name, allocatable={MISNAMED: "1"}))
    bench.pod(pod("waits", requests={MISNAMED: 1}))

    bench.state.observe_node("n1", None)
    assert bench.triggers() == ()
    bench.state.observe_node("n2", None)
    assert bench.triggers() == ("pod uid-waits", "node n2")


def test_a_name_of_a_node_without_gpus_is_right_as_well() -> None:
    """The trigger and the pass judge by the same names."""
    bench = StateBench()
    bench.node(node("plain", labels={}, allocatable={MISNAMED: "1"}))
    bench.pod(pod("waits", requests={MISNAMED: 1}))

    assert bench.triggers() == ()
    assert bench.state.cluster.snapshot().demands.refused == ()


def test_a_pod_with_a_name_that_a_device_class_may_map_needs_the_device_classes() -> None:
    bench = StateBench()
    bench.pod(pod("waits", requests={MISNAMED: 1}))

    assert bench.informers.required == ["waits"]
