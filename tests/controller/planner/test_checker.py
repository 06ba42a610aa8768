"""The judge of plans refuses a node that has too little for what is planned there."""

from dataclasses import replace

import pytest

from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.checker import check


@pytest.mark.parametrize(("resource", "amount"), [("cpu", 1_999), ("memory", 2**30 - 1), ("pods", 0)])
def test_a_node_with_too_little_is_refused(resource: str, amount: int) -> None:
    snapshot = cluster(server("n0", mig()), pending=[pod("p", "1g.5gb", cpu=2_000, memory_gib=1)])
    result = plan(snapshot)
    check(snapshot, result)
    assert len(result.placed) == 1

    node = snapshot.nodes[0]
    less = replace(snapshot, nodes=(replace(node, allocatable={**node.allocatable, resource: amount}),))
    with pytest.raises(AssertionError):
        check(less, result)
