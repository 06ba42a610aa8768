"""Nominations: which pod a new slice belongs to, until the scheduler has bound a pod."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.actions.nominations import Nominator, coming, due
from controller.model.views import PlanView
from crds.v1alpha1 import paths
from kube import apply
from kube.concurrency import REQUESTS
from tests.apiserver import Refuse
from tests.builders.objects import SLICE, Json, gpu, item, node, partition, plan, pod, status
from tests.builders.views import plan_reading, pod_view
from tests.controller.cluster import Bench


def nominees(
    partitions: list[Json], *pods: Json, bound: tuple[Json, ...] = (), reserved: tuple[str, ...] = ()
) -> list[str]:
    reading = plan_reading(plan(status=status(gpu(item=item(0), partitions=partitions))))
    view = PlanView(name="n1", gpus=tuple(found.view for found in reading.gpus))
    pending = [pod_view(raw) for raw in pods]
    holders = [pod_view(raw) for raw in bound]
    reservations = {p.uid: "n1" for p in pending if not reserved or p.name in reserved}
    return [p.name for p in due("n1", view, pending, holders, reservations)]


FREE, PENDING, USED = partition(0), partition(1, "Pending"), partition(2, "Used", pod="default/holder")


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [([], []), ([USED], []), ([FREE], ["a"]), ([PENDING], ["a"]), ([FREE, PENDING], ["a", "b"])],
)
def test_only_for_partitions_that_are_there(partitions: list[Json], expected: list[str]) -> None:
    assert nominees(partitions, pod("a"), pod("b"), pod("c")) == expected


def test_in_the_order_of_the_schedulers_queue() -> None:
    assert nominees([FREE], pod("a"), pod("urgent", priority=10)) == ["urgent"]


def test_a_pod_that_requests_more_does_not_keep_smaller_ones_waiting() -> None:
    large = pod("a", requests={SLICE: "2"})
    assert nominees([FREE], large, pod("b")) == ["b"]


def test_what_is_nominated_or_bound_already_counts() -> None:
    assert nominees([FREE, PENDING], pod("a", nominated="n1"), pod("b")) == ["b"]
    assert nominees([FREE], pod("a", nominated="n1"), pod("b")) == []
    assert nominees([FREE, PENDING], pod("b"), bound=(pod("new", node="n1"),)) == ["b"]
    assert nominees([FREE], pod("b"), bound=(pod("new", node="n1"),)) == []
    assert nominees([FREE, USED], pod("b"), bound=(pod("holder", node="n1"),)) == ["b"]


def test_a_nomination_by_a_scheduler_is_never_overruled() -> None:
    assert nominees([FREE], pod("a", nominated="n7")) == []


def test_only_a_pod_with_a_reservation_is_nominated() -> None:
    assert nominees([FREE, PENDING], pod("a"), pod("b"), reserved=("b",)) == ["b"]


@pytest.mark.parametrize(
    ("under_way", "expected"),
    [pytest.param(True, ["a"], id="while the GPUs are being cut"), pytest.param(False, [], id="not once they are")],
)
def test_a_reservation_is_nominated_before_the_partitions_are_there(under_way: bool, expected: list[str]) -> None:
    reading = plan_reading(plan(status=status(gpu(item=item(0)))))
    view = PlanView(name="n1", gpus=tuple(replace(found.view, under_way=under_way) for found in reading.gpus))
    pods = [pod_view(pod(name)) for name in ("a", "elsewhere")]
    pods += [pod_view(pod("nominated", nominated="n7")), replace(pod_view(pod("untried")), unschedulable=False)]
    reservations = {found.uid: "n2" if found.name == "elsewhere" else "n1" for found in pods}

    assert [found.name for found in coming("n1", view, pods, reservations)] == expected


def nominator(bench: Bench, **options: Any) -> Nominator:
    return Nominator(bench.environment, **{"enabled": True, **options})


def ready(bench: Bench) -> None:
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1", planned={"gpus": [item(0, 0)]})
    bench.cluster.agent_status("n1", status(gpu(state="Advertising", partitions=[partition(0, "Pending")])))
    bench.cluster.pod(pod())
    bench.load()
    bench.state.reserve({bench.cluster.get_pod()["metadata"]["uid"]: "n1"})


def nominated(bench: Bench) -> str:
    found: str = bench.cluster.get_pod()["status"].get("nominatedNodeName", "")
    return found


def clear(bench: Bench) -> None:
    """What schedulers do at the pod's next failed attempt."""
    body = {"status": {"nominatedNodeName": None}}
    apply.merge_patch(bench.cluster.api, paths.pod_status("default", "p"), body, manager="kube-scheduler")


def test_nominates_and_again_when_it_was_cleared(bench: Bench) -> None:
    ready(bench)
    work = nominator(bench)
    work.run()
    assert nominated(bench) == "n1"
    bench.load()
    assert bench.state.cluster.snapshot().pending[0].nomination_ours
    clear(bench)
    bench.load()
    work.run()
    assert nominated(bench) == ""  # not faster than the scheduler's own back-off
    bench.clock.now += 1
    work.run()
    assert nominated(bench) == "n1"


def test_a_restarted_controller_knows_its_own_nominations(bench: Bench) -> None:
    ready(bench)
    nominator(bench).run()
    again = Bench(bench.cluster)
    again.load()
    assert again.state.cluster.snapshot().pending[0].nomination_ours


def test_moves_its_own_nomination_with_the_reservation(bench: Bench) -> None:
    ready(bench)
    work = nominator(bench)
    work.run()
    bench.cluster.node(node("n2"))
    bench.cluster.plan("n2")
    bench.cluster.agent_status("n2", status(gpu(state="Ready", partitions=[partition(0)])))
    bench.load()
    bench.state.reserve({bench.cluster.get_pod()["metadata"]["uid"]: "n2"})
    bench.clock.now += 1
    work.run()
    assert nominated(bench) == "n2"


@pytest.mark.parametrize("off", ["switch", "not leading"])
def test_never_nominates_when_disabled_or_not_leading(bench: Bench, off: str) -> None:
    ready(bench)
    bench.leads = off != "not leading"
    nominator(bench, enabled=off != "switch").run()
    assert nominated(bench) == ""


def test_a_pod_of_the_same_name_is_another_pod(bench: Bench) -> None:
    ready(bench)
    apply.delete(bench.cluster.api, "/api/v1/namespaces/default/pods/p", grace_seconds=0)
    bench.cluster.pod(pod())
    nominator(bench).run()
    assert nominated(bench) == ""
    assert bench.errors("nominate") == 0


def test_a_refusal_is_counted_and_tried_again(bench: Bench) -> None:
    ready(bench)
    work = nominator(bench)
    fault = bench.cluster.refuse("PATCH", "/pods/p/status")
    work.run()
    assert bench.errors("nominate") == 1
    bench.cluster.server.faults.remove(fault)
    bench.clock.now += 1
    work.run()
    assert nominated(bench) == "n1"


def many(bench: Bench, count: int) -> list[str]:
    """So many pods with a reservation, with a partition for each."""
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1", planned={"gpus": [item(0, 0)]})
    bench.cluster.agent_status(
        "n1", status(gpu(partitions=[partition(0) | {"uuid": f"MIG-{n}"} for n in range(count)]))
    )
    names = [f"p{number:02}" for number in range(count)]
    for name in names:
        bench.cluster.pod(pod(name))
    bench.load()
    bench.state.reserve({bench.cluster.get_pod(name)["metadata"]["uid"]: "n1" for name in names})
    return names


def nominated_of(bench: Bench, names: list[str]) -> list[str]:
    return [name for name in names if bench.cluster.get_pod(name)["status"].get("nominatedNodeName")]


def on_first_nomination(bench: Bench, act: Callable[[], None]) -> None:
    """Something that happens while the first request is being answered."""
    once = threading.Lock()

    def fault(request: Any) -> None:
        if request.method == "PATCH" and request.path.endswith("/status") and once.acquire(blocking=False):
            act()

    bench.cluster.server.faults.append(fault)


def test_a_pod_bound_while_others_are_nominated_needs_no_nomination(bench: Bench) -> None:
    names = many(bench, 3 * REQUESTS)

    def bind_all() -> None:
        for name in names:
            bench.state.observe_pod(("default", name), None)

    on_first_nomination(bench, bind_all)
    nominator(bench).run()
    assert len(nominated_of(bench, names)) <= REQUESTS  # those that were on their way


def test_what_cannot_be_sent_in_time_waits_for_the_next_turn(bench: Bench) -> None:
    names = many(bench, 3 * REQUESTS)

    def let_time_pass() -> None:
        bench.clock.now += 10

    on_first_nomination(bench, let_time_pass)
    work = nominator(bench)
    work.run()
    assert 1 <= len(nominated_of(bench, names)) <= REQUESTS
    bench.load()
    work.run()
    assert nominated_of(bench, names) == names


def test_that_a_pod_is_bound_already_is_no_error(bench: Bench) -> None:
    ready(bench)

    def fault(request: Any) -> Refuse | None:
        refused = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
        return Refuse(code=422, reason="Invalid", message=refused) if request.method == "PATCH" else None

    bench.cluster.server.faults.append(fault)
    nominator(bench).run()
    assert bench.errors("nominate") == 0
