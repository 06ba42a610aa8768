"""Every answer says what would help, with the amounts that are short."""

from dataclasses import replace

import pytest

from controller.planner import plan
from controller.planner.inventory import Closed
from controller.reasons import UnplacedReason
from controller.views import HostPort, PartitionView, PodView, Snapshot
from partitioning.resources import WHOLE
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server
from tests.controller.planner.checker import check


def with_request(view: PodView, resource: str, amount: int) -> PodView:
    return replace(view, requests=tuple(sorted([*view.requests, (resource, amount)])))


def told(snapshot: Snapshot) -> tuple[UnplacedReason, str]:
    result = plan(snapshot)
    check(snapshot, result)
    (missed,) = result.unplaced
    return missed.reason, missed.message


@pytest.mark.parametrize(
    ("asks", "busy", "words"),
    [
        pytest.param(
            replace(pod("a", "1g.5gb"), host_ports=(HostPort(port=8080),)),
            replace(pod("busy", node_name="node-1"), host_ports=(HostPort(port=8080),)),
            "a pod there has one of its host ports (TCP 8080)",
            id="host port",
        ),
        pytest.param(
            with_request(pod("a", "1g.5gb"), "ephemeral-storage", 60),
            with_request(pod("busy", node_name="node-1"), "ephemeral-storage", 70),
            "30 of ephemeral-storage are free there, the pod asks 60",
            id="another resource",
        ),
        pytest.param(
            pod("a", "1g.5gb", cpu=8000), pod("busy", cpu=191_000, node_name="node-1"), "1 core and", id="cpu"
        ),
    ],
)
def test_what_a_node_lacks_is_named_with_its_amount(asks: PodView, busy: PodView, words: str) -> None:
    where = server("node-1", mig(), allocatable={"ephemeral-storage": 100})
    reason, message = told(cluster(where, pods=[busy], pending=[asks]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert words in message
    assert message.endswith("ask for less, or add a node")


@pytest.mark.parametrize("why", [why for why in Closed if why not in (Closed.NO_PLAN, Closed.NOT_REPORTED)])
def test_each_cause_that_is_not_passing_names_a_remedy(why: Closed) -> None:
    held = why is Closed.HELD_WHOLE  # its words are made where the holder is known

    assert held or any(word in why.value for word in (": ", "wait", "nvidia-smi"))


def test_pods_that_hold_whole_gpus_are_named() -> None:
    gpu = replace(mps(), partitions=(PartitionView(resource=WHOLE, state="Used", pod="team/trainer"),))
    pods = [holder("node-1", WHOLE, name="trainer")]
    reason, message = told(cluster(server("node-1", gpu, partitioning="mps"), pods=pods, pending=[pod("a", WHOLE)]))

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "wait for a release by team/trainer, or add a node" in message


@pytest.mark.parametrize(
    ("snapshot", "remedy"),
    [
        pytest.param(cluster(server("n", mig()), pending=[pod("a", "1g.10gb+gfx")]), "ask for one of these", id="MIG"),
        pytest.param(
            cluster(server("n", mps(), partitioning="mps"), pending=[pod("a", "200gb")]), "ask for less", id="MPS"
        ),
    ],
)
def test_what_never_fits_is_told_what_would(snapshot: Snapshot, remedy: str) -> None:
    reason, message = told(snapshot)

    assert reason is UnplacedReason.NEVER_FITS
    assert remedy in message
