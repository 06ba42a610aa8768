"""The benchmark of latency: what it draws from the controller's page, and what it prints. Nothing is started here."""

from collections.abc import Sequence
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.latency import QUIET_SECONDS, Found, Rig, measured, rows, sums
from controller.actions.metrics import Metrics, PodPhase


class FakeRig:
    """Each pod takes a second more than the one before, half of it in the window."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.pods = 0

    def run(self, resources: Sequence[str], *, gap_seconds: float) -> list[float]:
        found = []
        for _ in resources:
            self.pods += 1
            self.metrics.pods.phase_seconds.labels(phase=PodPhase.WINDOW.value).observe(self.pods / 2)
            found.append(self.pods + gap_seconds)
        return found

    def phases(self) -> dict[str, float]:
        return sums(generate_latest(self.metrics.registry).decode())


def test_phases_are_those_of_its_own_pods() -> None:
    rig, pauses = FakeRig(), list[float]()
    rig.run(["before"], gap_seconds=0.0)
    found = measured(cast(Rig, rig), [["a"], ["b", "c"]], pause=pauses.append)
    assert found.runs == [[2.0], [3.0, 4.0]]
    assert found.phases[PodPhase.WINDOW.value] == 1.5
    assert pauses[:2] == [QUIET_SECONDS] * 2


def test_the_table_has_the_first_pods_and_the_others_apart() -> None:
    found = Found(runs=[[1.0, 4.0], [2.0, 5.0], [9.0, 6.0]], phases={"window": 0.25, "bind": 0.001})
    assert list(rows("default", "trickle", found)) == [
        "| default | trickle | 6 | 2.00 / 9.00 | 5.00 / 6.00 | window 0.25 |"
    ]
    (row,) = rows("nos", "lone", Found(runs=[[1.0]], phases={}))
    assert row == "| nos | lone | 1 | 1.00 / 1.00 | - |  |"
