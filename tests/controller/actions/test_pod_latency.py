"""The phases of a pod's way: each moment belongs to one of them, and together they are its wait."""

from dataclasses import replace

import pytest

from controller.actions.metrics import PodPhase
from controller.actions.pod_latency import PassTimes, PodLatency
from controller.model.reasons import UnplacedReason
from controller.model.results import Placed, PlanningResult, Supply, Unplaced
from tests.builders.objects import gpu, item, node, partition, pod, status
from tests.controller.cluster import Bench


class Road:
    """One pending pod, and what a pass decides on it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.ways = PodLatency(bench.environment)
        self.ways.begin()
        bench.cluster.node(node("n1"))
        bench.cluster.plan("n1", planned={"gpus": [item(0, 1)]})

    def come(self, name: str = "p") -> None:
        self.bench.clock.now += 1
        self.bench.cluster.pod(pod(name))
        self.bench.load()

    @property
    def uid(self) -> str:
        return str(self.bench.cluster.get_pod()["metadata"]["uid"])

    def place(self, *, after: float, supply: Supply = Supply.NEW, node: str = "n1") -> None:
        """A pass that begins after so many seconds, plans for 0.5 and writes for 0.25."""
        placed = Placed(uid=self.uid, key=("default", "p"), node=node, supply=supply, gpus=(0,))
        self._planned(PlanningResult(placed=(placed,)), after)

    def miss(self, *, after: float) -> None:
        missed = Unplaced(uid=self.uid, key=("default", "p"), reason=UnplacedReason.NO_CAPACITY, message="no")
        self._planned(PlanningResult(unplaced=(missed,)), after)

    def _planned(self, result: PlanningResult, after: float) -> None:
        began = self.bench.clock.now + after
        self.bench.clock.now = began + 0.75
        self.ways.planned(result, PassTimes(began=began, planned=began + 0.5, written=began + 0.75))

    def follow(self, *, after: float) -> None:
        self.bench.clock.now += after
        self.bench.load()
        self.ways.follow()

    def shows(self, state: str) -> None:
        body = status(gpu(partitions=[partition(0)]))
        body["gpus"][0]["state"] = state
        self.bench.cluster.agent_status("n1", body)

    def run(self, *, after: float) -> None:
        self.bench.clock.now += after
        (view,) = [self.bench.state.cluster.pod(("default", "p"))]
        assert view is not None
        self.bench.state.observe_pod(view.key, replace(view, phase="Running"))
        self.ways.follow()

    def phases(self) -> dict[str, float]:
        value = self.bench.metrics.registry.get_sample_value
        name = "gpuplan_pod_phase_duration_seconds"
        passed = [one.value for one in PodPhase if value(f"{name}_count", {"phase": one.value})]
        return {phase: value(f"{name}_sum", {"phase": phase}) or 0.0 for phase in passed}

    def seconds(self, what: str, supply: Supply = Supply.NEW) -> float | None:
        return self.bench.metrics.registry.get_sample_value(
            f"gpuplan_pod_{what}_duration_seconds_sum", {"supply": supply.value}
        )


@pytest.fixture
def road(bench: Bench) -> Road:
    return Road(bench)


def test_every_phase_of_a_pod_that_partitions_are_made_for(road: Road) -> None:
    road.come()
    road.place(after=10)
    road.shows("Changing")
    road.follow(after=2)
    road.shows("Advertising")
    road.follow(after=3)
    road.bench.cluster.bind("p", "n1")
    road.follow(after=4)
    road.run(after=5)
    expected = {"window": 10, "planning": 0.5, "write": 0.25, "actuate": 5, "advertise": 4, "start": 5}
    assert road.phases() == expected
    assert road.seconds("wait") == sum(expected.values())
    assert road.seconds("delivery") == sum(expected.values()) - 5


def test_a_pod_that_takes_what_is_there_needs_no_change(road: Road) -> None:
    road.come()
    road.place(after=10, supply=Supply.EXISTING)
    road.bench.cluster.bind("p", "n1")
    road.follow(after=1)
    road.run(after=2)
    assert road.phases() == {"window": 10, "planning": 0.5, "bind": 1.25, "start": 2}
    assert road.seconds("wait", Supply.EXISTING) == 13.75


def test_time_without_a_place_is_no_delivery(road: Road) -> None:
    road.come()
    road.miss(after=10)
    road.miss(after=100)
    road.place(after=200, supply=Supply.EXISTING)
    road.bench.cluster.bind("p", "n1")
    road.follow(after=1)
    road.run(after=2)
    phases = road.phases()
    assert phases == {"window": 10, "unplaced": 0.75 + 100.75 + 200, "planning": 0.5, "bind": 1.25, "start": 2}
    assert road.seconds("wait", Supply.EXISTING) == pytest.approx(sum(phases.values()))
    assert road.seconds("delivery", Supply.EXISTING) == pytest.approx(11.75)


def test_a_lost_place_adds_up_as_well(road: Road) -> None:
    road.come()
    road.place(after=10)
    road.place(after=20, node="n2", supply=Supply.EXISTING)
    road.place(after=1, node="n2", supply=Supply.EXISTING)  # the same place again changes nothing
    road.bench.cluster.bind("p", "n2")
    road.follow(after=1)
    road.run(after=0)
    assert road.seconds("wait", Supply.EXISTING) == pytest.approx(sum(road.phases().values()))
    assert road.seconds("wait", Supply.EXISTING) == pytest.approx(10 + 0.75 + 20 + 0.75 + 1 + 0.75 + 1)


def test_pods_from_before_this_process_and_pods_that_end_are_not_measured(bench: Bench) -> None:
    bench.cluster.pod(pod("p"))
    bench.load()
    road = Road(bench)
    road.place(after=10, supply=Supply.EXISTING)
    bench.cluster.bind("p", "n1")
    road.follow(after=1)
    road.run(after=2)
    assert road.phases() == {}


def test_a_pod_that_is_deleted_on_its_way_is_forgotten(road: Road) -> None:
    road.come()
    road.place(after=10)
    road.bench.state.observe_pod(("default", "p"), None)
    road.ways.follow()
    assert road.phases() == {}
