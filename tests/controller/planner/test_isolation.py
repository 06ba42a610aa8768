"""A node whose planning raises an error is left out and named; the other nodes are planned."""

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.views import NodeView, PlannedGpu, PlanView, WholeDesired
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server

Server = tuple[NodeView, PlanView]


class Unreadable(dict[str, int]):
    """Allocatable resources that cannot be listed."""

    def items(self) -> NoReturn:
        raise KeyError("no such thing")


def broken_supply(name: str) -> Server:
    node, view = server(name, mig())
    object.__setattr__(node, "allocatable", Unreadable(node.allocatable))  # after its capacity was worked out
    return node, view


def broken_opening(name: str) -> Server:
    node, view = server(name, mig(used=[("1g.5gb", 0)]))
    (gpu,) = view.gpus
    (part,) = gpu.partitions
    return node, replace(view, gpus=(replace(gpu, partitions=(replace(part, start=-9),)),))


def broken_repair(name: str) -> Server:
    node, view = server(name, mig())
    return node, replace(view, planned=(None,))  # type: ignore[arg-type]


BROKEN = pytest.mark.parametrize("broken", [broken_supply, broken_opening, broken_repair])
PENDING = [pod("a", "7g.40gb"), pod("b", "7g.40gb")]


@BROKEN
@pytest.mark.parametrize("name", ["node-1", "node-3"])
def test_the_other_node_is_planned(broken: Callable[[str], Server], name: str) -> None:
    result = plan(cluster(broken(name), server("node-2", mig()), pending=PENDING))

    assert [failure.node for failure in result.failures] == [name]
    assert [change.node for change in result.node_changes] == ["node-2"]
    assert [placed.node for placed in result.placed] == ["node-2"]


def test_the_error_is_in_the_result_with_its_traceback() -> None:
    (failure,) = plan(cluster(broken_supply("node-1"), server("node-2", mig()))).failures

    assert failure.message == "KeyError: 'no such thing'"
    assert "in items" in failure.trace


def test_a_pod_that_only_the_failed_node_could_serve_gets_a_reason() -> None:
    result = plan(cluster(broken_repair("node-1"), pending=[pod("a", "1g.5gb")]))

    (missed,) = result.unplaced
    assert missed.reason is UnplacedReason.BLOCKED
    assert missed.message == (
        "Planning node node-1 failed. Ask an administrator to check the Events of gpupartitionplan/node-1."
    )


def test_what_a_failed_node_advertises_is_not_assigned() -> None:
    node, view = server("node-1", mig(idle=[("1g.5gb", 0)]))
    failing = node, replace(view, planned=(None,))  # type: ignore[arg-type]

    assert plan(cluster(failing, pending=[pod("a", "1g.5gb")])).placed == ()


def test_errors_of_several_nodes_at_several_steps() -> None:
    servers = [broken_supply("node-1"), broken_repair("node-2"), server("node-3", mig()), broken_opening("node-4")]
    result = plan(cluster(*servers, pending=PENDING))

    assert [failure.node for failure in result.failures] == ["node-1", "node-2", "node-4"]
    assert [placed.node for placed in result.placed] == ["node-3"]


@BROKEN
def test_an_error_on_every_node_ends_the_pass(broken: Callable[[str], Server]) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        plan(cluster(broken("node-1"), broken("node-2"), pending=PENDING))
    assert type(caught.value).__name__ != "NodePlanningError"


def test_an_error_of_no_node_ends_the_pass() -> None:
    with pytest.raises(AttributeError):
        plan(cluster(server("node-1", mig()), pending=[None]))  # type: ignore[list-item]


def test_nothing_is_left_out_where_nothing_fails() -> None:
    item = PlannedGpu(index=0, uuid="GPU-0", desired=WholeDesired())
    node, view = server("node-1", mig())

    assert plan(cluster((node, replace(view, planned=(item,))), pending=PENDING)).failures == ()
