"""Pods that wait while others come and go have few Events, whatever happens on the GPUs."""

from collections import Counter
from dataclasses import replace

from controller.actions.reporter import Reporter
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView
from controller.planning import plan
from kube.events import EventType, ObjectReference
from tests.builders.models import H100
from tests.controller.cluster import Bench
from tests.controller.planner.builders import cluster, holder, mig, pod, server

ONES = [("1g.10gb", start) for start in range(7)]


class EventCounter:
    """Which Events each pod has: reason and series make the object."""

    def __init__(self) -> None:
        self.objects: dict[str, Counter[tuple[str, str]]] = {}
        self.last: dict[str, str] = {}

    def emit(
        self, about: ObjectReference, event_type: EventType, reason: str, message: str, *, series: str | None = None
    ) -> None:
        self.objects.setdefault(about.name, Counter())[(reason, message if series is None else series)] += 1
        self.last[about.name] = reason


def gpus(**more: object) -> list[GpuView]:
    return [mig(index, gpu_model=H100, **more) for index in (0, 1)]  # type: ignore[arg-type] # by name


def running(names: list[str], *, named: bool = True) -> Snapshot:
    """Fourteen pods run, six wait; the status names the holders or does not yet."""
    full = gpus(used=ONES)
    shown = [
        replace(
            gpu,
            partitions=tuple(
                replace(part, pod=f"team/{names[7 * gpu.index + number]}" if named else "")
                for number, part in enumerate(gpu.partitions)
            ),
        )
        for gpu in full
    ]
    holders = [holder("node-1", "1g.10gb", name=name) for name in names]
    waiting = [pod(f"w-{number}", "1g.10gb", created=100 + number) for number in range(6)]
    return cluster(server("node-1", *shown), pods=holders, pending=waiting)


def test_six_of_twenty_pods_that_do_not_fit_have_two_events_each(bench: Bench) -> None:
    first = [f"r-{number}" for number in range(14)]
    pending = [pod(name, "1g.10gb", created=number) for number, name in enumerate(first)]
    waiting = list(running(first).pending)
    changing = gpus(settled=False, under_way=True)
    passes = [
        cluster(server("node-1", *gpus()), pending=[*pending, *waiting]),
        cluster(server("node-1", *changing), pending=waiting),
        running(first, named=False),
        *(running([*first[:-1], f"next-{number}"]) for number in range(5)),
    ]
    recorder = EventCounter()
    reporter = Reporter(bench.environment, recorder)
    for snapshot in passes:
        reporter.report(snapshot, plan(snapshot), (), 0.1, why="1 pod")
        bench.clock.now += 1

    for one in waiting:
        assert sum(recorder.objects[one.name].values()) == 2
        assert recorder.last[one.name] == "WaitsForRelease"
