"""kube-scheduler's filters, with its own message for a refusal."""

from dataclasses import replace

import pytest

from controller.model.capacity import Capacity
from controller.model.scheduling import HostPort, NodeSelectorTerm, Requirement, Taint, Toleration
from controller.model.views import NodeView, PodView
from controller.simulator.filters import filter_node
from controller.simulator.usage import Usage
from controller.simulator.verdicts import FIT, DoesNotFit
from sandbox.scheduler.placement import filter_pod
from tests.controller.planner.builders import GIB, node, pod, replaced


def verdict(pending: PodView, where: NodeView, *there: PodView) -> str:
    """'' for a fit, else plugin and message."""
    usage = Usage.of([replaced(one, node=where.name) for one in there])
    found = filter_pod(pending, where, usage)
    return f"{found.plugin}: {found.message}" if isinstance(found, DoesNotFit) else ""


def requirement(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


def test_fits_an_empty_node() -> None:
    assert filter_pod(pod("a"), node(), Usage()) is FIT


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    cordoned = replace(node(), unschedulable=True)

    assert verdict(pod("a"), cordoned) == "NodeUnschedulable: node(s) were unschedulable"
    assert verdict(pod("a", tolerates=["node.kubernetes.io/unschedulable"]), cordoned) == ""


def test_a_pod_with_a_node_name_fits_there_only() -> None:
    assert verdict(pod("a", node_name="node-1"), node("node-1")) == ""
    assert verdict(pod("a", node_name="node-2"), node("node-1")).startswith("NodeName: ")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="gpu", value="mig"), True),
        (Toleration(key="gpu", value="other"), False),
        (Toleration(key="gpu", value="mig", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Gt", value="1"), False),
    ],
)
def test_taints_and_tolerations(toleration: Toleration, tolerated: bool) -> None:
    tainted = replace(node(), taints=(Taint(key="gpu", value="mig"),))
    tolerant = replaced(pod("a"), tolerations=(toleration,))

    expected = "" if tolerated else "TaintToleration: node(s) had untolerated taint(s)"
    assert verdict(tolerant, tainted) == expected


def test_a_preference_repels_no_pod() -> None:
    assert verdict(pod("a"), replace(node(), taints=(Taint(key="x", effect="PreferNoSchedule"),))) == ""


def test_a_taint_may_be_taken_as_gone() -> None:
    tainted = node(taints=["gpuplan.dev/changing"])

    assert isinstance(filter_node(pod("a"), tainted), DoesNotFit)
    assert filter_node(pod("a"), tainted, ignored_taints=("gpuplan.dev/changing",)) is FIT


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (requirement("zone", "In", "a", "b"), True),
        (requirement("zone", "In", "c"), False),
        (requirement("rack", "In", "a"), False),
        (requirement("zone", "NotIn", "a"), False),
        (requirement("rack", "NotIn", "a"), True),
        (requirement("zone", "Exists"), True),
        (requirement("rack", "Exists"), False),
        (requirement("rack", "DoesNotExist"), True),
        (requirement("zone", "DoesNotExist"), False),
        (requirement("size", "Gt", "7"), True),
        (requirement("size", "Gt", "8"), False),
        (requirement("size", "Lt", "9"), True),
        (requirement("zone", "Gt", "1"), False),
        (requirement("rack", "Lt", "1"), False),
        (requirement("size", "Gt", "1", "2"), False),
        (requirement("size", "Unheard"), False),
    ],
)
def test_node_affinity(requirement: Requirement, matches: bool) -> None:
    labelled = node(labels={"zone": "a", "size": "8"})

    expected = "" if matches else "NodeAffinity: node(s) didn't match Pod's node affinity/selector"
    assert verdict(pod("a", affinity=[requirement]), labelled) == expected


def test_one_matching_term_is_enough_and_an_empty_one_matches_nothing() -> None:
    misses = NodeSelectorTerm(labels=(requirement("zone", "In", "b"),))
    by_name = NodeSelectorTerm(fields=(requirement("metadata.name", "In", "node-1"),))

    assert verdict(replaced(pod("a"), node_affinity=(misses, by_name)), node("node-1")) == ""
    assert verdict(replaced(pod("a"), node_affinity=(misses, NodeSelectorTerm())), node("node-1")) != ""
    assert verdict(replaced(pod("a"), node_affinity=()), node("node-1")) != ""


def test_selectors_and_affinity_must_both_match() -> None:
    labelled = node(labels={"zone": "a"})

    assert verdict(pod("a", selector={"zone": "a"}), labelled) == ""
    assert verdict(pod("a", selector={"zone": "b"}), labelled).startswith("NodeAffinity: ")


@pytest.mark.parametrize(
    ("wanted", "taken", "free"),
    [
        (HostPort(port=80), HostPort(port=80), False),
        (HostPort(port=80), HostPort(port=81), True),
        (HostPort(port=80), HostPort(port=80, protocol="UDP"), True),
        (HostPort(port=80, ip="10.0.0.1"), HostPort(port=80, ip="10.0.0.2"), True),
        (HostPort(port=80, ip="10.0.0.1"), HostPort(port=80), False),
    ],
)
def test_host_ports(wanted: HostPort, taken: HostPort, free: bool) -> None:
    expected = "" if free else "NodePorts: node(s) didn't have free ports for the requested pod ports"
    wants, there = replaced(pod("a"), host_ports=(wanted,)), replaced(pod("b"), host_ports=(taken,))

    assert verdict(wants, node(), there) == expected


def test_every_lacking_resource_is_named_in_the_schedulers_order() -> None:
    small = node(cpu=2000, memory_gib=8, pods=1, allocatable={"nvidia.com/mig-1g.5gb": 1})
    there = pod("b", cpu=1500, memory_gib=6)

    assert verdict(pod("a", ("1g.5gb", 2), cpu=1000, memory_gib=4), small, there) == (
        "NodeResourcesFit: Too many pods, Insufficient cpu, Insufficient memory, Insufficient nvidia.com/mig-1g.5gb"
    )


def test_a_resource_that_the_node_does_not_know_is_insufficient() -> None:
    assert verdict(pod("a", "10gb"), node()) == "NodeResourcesFit: Insufficient nvidia.com/gpu-10gb"


def test_the_last_unit_fits() -> None:
    exact = node(cpu=2000, memory_gib=8, pods=2)

    assert verdict(pod("a", cpu=500, memory_gib=2), exact, pod("b", cpu=1500, memory_gib=6)) == ""


def test_usage_forgets_a_pod_that_leaves() -> None:
    usage, pending = Usage(), replaced(pod("a", cpu=600), host_ports=(HostPort(port=80),))
    usage.add(pending)
    assert (usage.held.pods, usage.held["cpu"], usage.held["memory"]) == (1, 600, 4 * GIB)

    usage.remove(pending)

    assert (usage.held, dict(+usage.ports)) == (Capacity(), {})
