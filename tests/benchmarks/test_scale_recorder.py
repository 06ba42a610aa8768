"""Moments of pods, from the events of two watches."""

from collections.abc import Callable

from benchmarks.scale.figures import PodTimes
from benchmarks.scale.recorder import Recorder, SeenPod, seen_plan
from kube import clients
from tests.builders import objects
from tests.builders.objects import Json
from tests.clock import Clock


def plan(generation: int, *, confirmed: int | None = None, holder: str | None = None) -> Json:
    """`holder`: None where there is no partition, empty where it has no holder."""
    partitions = [] if holder is None else [objects.partition(pod=holder)]
    ready = objects.condition("Ready", "True" if confirmed else "False", "", confirmed or generation)
    status = objects.status(objects.gpu(partitions=partitions), conditions=[ready])
    return objects.plan(generation=generation, status=status)


def test_a_pod_from_its_creation_to_its_bind() -> None:
    clock = Clock(0.0)
    recorder = Recorder(clients.for_url("http://127.0.0.1:9"), clock)
    events: list[Callable[[], None]] = [
        lambda: recorder.see_plan("n1", seen_plan(plan(1, confirmed=1))),
        lambda: recorder.created("p"),
        lambda: recorder.see_plan("n1", seen_plan(plan(2, holder=None))),
        lambda: recorder.see_plan("n1", seen_plan(plan(2, holder=""))),
        lambda: recorder.see_plan("n1", seen_plan(plan(2, confirmed=2, holder=""))),
        lambda: recorder.see_pod("p", SeenPod(node="n1", phase="Pending")),
        lambda: recorder.see_pod("p", SeenPod(node="n1", phase="Running")),
        lambda: recorder.see_plan("n1", seen_plan(plan(2, confirmed=2, holder="load/p"))),
    ]
    for at, event in enumerate(events):
        clock.now = float(at)
        event()
    assert recorder.pods() == (PodTimes(created=1.0, written=2.0, ready=4.0, bound=5.0),)
    assert (recorder.bound_pods(), recorder.carried_pods(), recorder.ready_plans()) == (1, 1, 1)
    assert recorder.phases() == {"Running": 1}


def test_a_partition_that_was_away_is_ready_again() -> None:
    clock = Clock(0.0)
    recorder = Recorder(clients.for_url("http://127.0.0.1:9"), clock)
    recorder.created("p")
    for at, holder in enumerate(["", None, "", "load/p"]):
        clock.now = float(at)
        recorder.see_plan("n1", seen_plan(plan(1, confirmed=1, holder=holder)))
    assert recorder.pods() == (PodTimes(created=0.0, written=0.0, ready=2.0),)


def test_a_plan_that_is_not_ready_in_its_newest_version_is_not_counted() -> None:
    recorder = Recorder(clients.for_url("http://127.0.0.1:9"), Clock())
    recorder.see_plan("n1", seen_plan(plan(2, confirmed=1, holder="")))
    recorder.see_plan("n2", seen_plan({"metadata": {"generation": 1}}))
    assert recorder.ready_plans() == 0
