"""Leases of agents whose Nodes are gone, against the API server."""

import pytest

from controller.api.nodes import read_node
from crds.v1alpha1 import paths
from crds.v1alpha1.names import CONTROLLER_LEASE, NAMESPACE, agent_lease
from kube import apply
from kube.leases import lease_path
from tests.builders.objects import lease, node
from tests.controller.actions.test_plan_lifecycle import plan_lifecycle
from tests.controller.cluster import Bench


def beat(bench: Bench, name: str = "n1", second: int = 1) -> None:
    bench.cluster.beat(name, f"2026-01-01T00:00:0{second}.000000Z")


def leases(bench: Bench) -> list[str]:
    return [raw["metadata"]["name"] for raw in apply.get(bench.cluster.api, lease_path(NAMESPACE))["items"]]


def delete_node(bench: Bench, name: str) -> None:
    apply.delete(bench.cluster.api, paths.node(name))
    bench.state.observe_node(name, None)


def test_a_lease_goes_an_hour_after_its_last_renewal_where_the_node_is_gone(bench: Bench) -> None:
    for name in ("n1", "n2"):
        bench.cluster.node(node(name, mode=None))
        beat(bench, name)
    bench.load()
    delete_node(bench, "n2")
    work = plan_lifecycle(bench)
    bench.clock.now += 3599
    assert not work.run()
    bench.clock.now += 1
    assert work.run()
    assert leases(bench) == [agent_lease("n1")]
    bench.state.observe_lease("n2", None)
    assert not work.run()
    assert "n2" not in bench.state.cluster.names()


def test_those_that_were_there_before_this_controller_go_as_well(bench: Bench) -> None:
    for number in range(3):
        beat(bench, f"gone-{number}")
    bench.load()
    work = plan_lifecycle(bench)
    bench.clock.now += 3600
    work.run()
    assert leases(bench) == []


def test_neither_a_plan_with_pins_nor_one_that_returns_keeps_it(bench: Bench) -> None:
    bench.cluster.plan("n1", gpus=[{"index": 0, "whole": {}}])
    beat(bench)
    bench.load()
    work = plan_lifecycle(bench)
    bench.clock.now += 3600
    bench.state.observe_plan("n1", None)
    work.run()
    assert leases(bench) == []


def test_one_that_is_renewed_stays_whatever_became_of_the_node(bench: Bench) -> None:
    work = plan_lifecycle(bench)
    for hour in range(3):
        beat(bench, second=hour)
        bench.load()
        bench.clock.now += 3599
        assert not work.run()
    assert leases(bench) == [agent_lease("n1")]


def test_one_that_was_renewed_in_between_stays(bench: Bench) -> None:
    beat(bench)
    bench.load()
    work = plan_lifecycle(bench)
    bench.clock.now += 3600
    beat(bench, second=2)
    work.run()
    assert leases(bench) == [agent_lease("n1")]
    assert bench.errors("lifecycle") == 0


def test_that_of_a_node_that_cannot_be_read_or_is_back_stays(bench: Bench) -> None:
    beat(bench)
    bench.load()
    bench.state.observe_node("n1", read_node(node("n1") | {"spec": {"taints": [{"effect": "NoSchedule"}]}}))
    assert ("node", "n1") in bench.state.cluster.unreadable()
    work = plan_lifecycle(bench)
    bench.clock.now += 7200
    assert not work.run()
    bench.state.observe_node("n1", read_node(node("n1", mode=None)))
    assert not work.run()
    assert leases(bench) == [agent_lease("n1")]


def test_an_agent_that_returns_under_the_same_name_is_heard(bench: Bench) -> None:
    beat(bench)
    bench.load()
    bench.clock.now += 3600
    plan_lifecycle(bench).run()
    bench.state.observe_lease("n1", None)
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1")
    beat(bench, second=2)
    bench.load()
    assert bench.state.cluster.plan_views()["n1"].agent_alive


@pytest.mark.parametrize("code", [403, 500])
def test_a_refusal_is_counted_tried_again_later_and_stops_no_other(bench: Bench, code: int) -> None:
    """403: the role of an earlier release, during an upgrade."""
    for name in ("n1", "n2"):
        beat(bench, name)
    bench.load()
    fault = bench.cluster.refuse("DELETE", agent_lease("n1"), code)
    work = plan_lifecycle(bench)
    bench.clock.now += 3600
    work.run()
    assert leases(bench) == [agent_lease("n1")]
    assert bench.errors("lifecycle") == 1
    bench.cluster.server.faults.remove(fault)
    bench.clock.now += 5
    work.run()
    assert leases(bench) == []


def test_one_that_is_gone_already_is_no_failure(bench: Bench) -> None:
    beat(bench)
    bench.load()
    apply.delete(bench.cluster.api, lease_path(NAMESPACE, agent_lease("n1")))
    bench.clock.now += 3600
    plan_lifecycle(bench).run()
    assert bench.errors("lifecycle") == 0


def test_non_leader_removes_nothing(bench: Bench) -> None:
    beat(bench)
    bench.load()
    bench.leads = False
    bench.clock.now += 3600
    plan_lifecycle(bench).run()
    assert leases(bench) == [agent_lease("n1")]


def test_leases_of_others_are_not_even_known(bench: Bench) -> None:
    other = lease(CONTROLLER_LEASE, {"renewTime": "2026-01-01T00:00:00.000000Z"})
    apply.create(bench.cluster.api, lease_path(NAMESPACE), other)
    bench.load()
    bench.clock.now += 7200
    plan_lifecycle(bench).run()
    assert leases(bench) == [CONTROLLER_LEASE]
