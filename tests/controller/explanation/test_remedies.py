"""Every answer names what would help, with the amounts that are short."""

from dataclasses import replace

import pytest

from controller.explanation.causes import Cause
from controller.explanation.remedies import nearest
from controller.model.reasons import UnplacedReason
from controller.model.scheduling import HostPort, LabelSelector, PodAffinityTerm, Requirement
from controller.model.snapshot import Snapshot
from controller.model.views import PartitionView, PodView
from controller.planner.inventory.stock import Ineligible
from controller.planning import plan
from partitioning.resources import WHOLE
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server
from tests.controller.planner.checker import check


def with_request(view: PodView, resource: str, amount: int) -> PodView:
    return replace(view, requests=tuple(sorted([*view.requests, (resource, amount)])))


def answer_to(snapshot: Snapshot) -> tuple[UnplacedReason, str]:
    result = plan(snapshot)
    check(snapshot, result)
    (missed,) = result.unplaced
    return missed.reason, missed.full


@pytest.mark.parametrize(
    ("requests", "busy", "words"),
    [
        pytest.param(
            replace(pod("a", "1g.5gb"), host_ports=(HostPort(port=8080),)),
            replace(pod("busy", node_name="node-1"), host_ports=(HostPort(port=8080),)),
            "lack free host ports: the pod requests host port TCP 8080",
            id="host port",
        ),
        pytest.param(
            with_request(pod("a", "1g.5gb"), "ephemeral-storage", 60),
            with_request(pod("busy", node_name="node-1"), "ephemeral-storage", 70),
            "has 30 ephemeral-storage left",
            id="another resource",
        ),
        pytest.param(
            pod("a", "1g.5gb", cpu=8000), pod("busy", cpu=191_000, node_name="node-1"), "has 1 CPU left", id="cpu"
        ),
    ],
)
def test_what_a_node_lacks_is_named_with_its_amount(requests: PodView, busy: PodView, words: str) -> None:
    where = server("node-1", mig(), allocatable={"ephemeral-storage": 100})
    reason, message = answer_to(cluster(where, pods=[busy], pending=[requests]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert words in message
    assert ("Use another host port" if requests.host_ports else "Request less") + ", or add a GPU node." in message


@pytest.mark.parametrize("why", Ineligible)
def test_each_cause_has_words_and_one_remedy(why: Ineligible) -> None:
    answer = nearest([Cause(0, "n1", 0, why, "its own words"), Cause(0, "n1", 1, why, "its own words")])

    assert answer.message.count(". ") == 1
    assert answer.message.endswith(".")
    assert answer.message[0].isupper()
    assert not any(brace in answer.message for brace in "{}")
    assert any(word in answer.message for word in ("n1", "GPUs 0 and 1"))


def test_gpus_are_named_by_node() -> None:
    causes = [Cause(node, f"n{node}", gpu, Ineligible.MIG_MODE_DISABLED) for node in range(5) for gpu in (0, 1)]

    assert nearest(causes[:2]).message == (
        "MIG mode is off on GPUs 0 and 1 on node n0. "
        "Ask an administrator to run `nvidia-smi -i 0,1 -mig 1` there, as docs/mig.md says."
    )
    assert "GPUs 0 and 1 on node n2 and GPUs on 2 other nodes" in nearest(causes).message


def test_pods_that_hold_whole_gpus_are_named() -> None:
    gpu = replace(mps(), partitions=(PartitionView(resource=WHOLE, state="Used", pod="team/trainer"),))
    pods = [holder("node-1", WHOLE, name="trainer")]
    reason, message = answer_to(
        cluster(server("node-1", gpu, partitioning="mps"), pods=pods, pending=[pod("a", WHOLE)])
    )

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "The pod starts when enough are released; or add a GPU node. In use by team/trainer." in message


@pytest.mark.parametrize(
    ("snapshot", "remedy"),
    [
        pytest.param(cluster(server("n", mig()), pending=[pod("a", "1g.10gb+gfx")]), "Request one of these", id="MIG"),
        pytest.param(
            cluster(server("n", mps(), partitioning="mps"), pending=[pod("a", "200gb")]), "Request less", id="MPS"
        ),
    ],
)
def test_what_never_fits_gets_a_remedy(snapshot: Snapshot, remedy: str) -> None:
    reason, message = answer_to(snapshot)

    assert reason is UnplacedReason.NEVER_FITS
    assert remedy in message


HOST = "kubernetes.io/hostname"
APART = PodAffinityTerm(
    selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("x",)),)),
    topology_key=HOST,
    namespaces=("team",),
)


@pytest.mark.parametrize("cpu", [1000, 191_500], ids=["partitions are in use", "CPU is in use"])
def test_what_a_constrained_pod_waits_for_is_on_a_node_that_accepts_it(cpu: int) -> None:
    """The node that refuses it is the nearer one: of one holder, or with more CPU left."""
    refusing = server("n1", mig(used=[("7g.40gb", 0)] if cpu == 1000 else []), labels={HOST: "n1"})
    accepting = server("n2", mig(used=[("3g.20gb", 0), ("3g.20gb", 4)][: 2 if cpu == 1000 else 1]), labels={HOST: "n2"})
    held = {"n1": [("7g.40gb", "h1")] if cpu == 1000 else [], "n2": [("3g.20gb", "h2"), ("3g.20gb", "h3")]}
    there = [holder(node, profile, name=name) for node, found in held.items() for profile, name in found]
    others = [pod(f"busy-{node}", cpu=cpu - int(node == "n1"), node_name=node) for node in ("n1", "n2")]
    neighbour = replace(pod("neighbour", cpu=1, node_name="n1"), labels=(("app", "x"),))
    waiting = replace(pod("a", "7g.40gb" if cpu == 1000 else "1g.5gb"), anti_affinity=(APART,))
    _, message = answer_to(cluster(refusing, accepting, pods=[*there, *others, neighbour], pending=[waiting]))

    assert "n2" in message
    assert "n1" not in message
    assert "2 suitable" not in message
    assert "of 2 nodes" not in message


def test_a_device_that_is_gone_and_held_is_named_where_no_other_node_has_room() -> None:
    held = server("n1", mig())
    small = server("n2", mig(), cpu=500)
    lost = holder("n1", "1g.5gb", name="lost")

    reason, message = answer_to(cluster(held, pods=[lost], pending=[pod("a", "1g.5gb")]))
    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert message.startswith("Pods on node n1 hold more nvidia.com/mig-1g.5gb than there is")

    reason, message = answer_to(cluster(held, small, pods=[lost], pending=[pod("a", "1g.5gb")]))
    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert "their nodes lack CPU" in message
    assert "n2" in message


def test_a_device_that_is_gone_and_held_is_not_waited_for_where_no_gpu_could_serve_the_pod() -> None:
    """Its deletion would not help: MIG mode is off, and the node only still advertises what there was."""
    gpu = replace(mig(), mig_enabled=False)
    stale = server("n1", gpu, allocatable={"nvidia.com/mig-1g.5gb": 5})
    reason, _ = answer_to(cluster(stale, pods=[holder("n1", "1g.5gb", name="lost")], pending=[pod("a", "1g.5gb")]))

    assert reason is UnplacedReason.MIG_MODE_DISABLED


def test_free_gpus_that_are_too_few_are_not_called_reserved_alone() -> None:
    """No pod is ahead in the queue: these five are simply free."""
    gpu = replace(mps(), partitions=(PartitionView(resource=WHOLE, state="Used", pod="team/trainer"),))
    gpus = [replace(gpu, index=0), *(mps(index) for index in range(1, 6))]
    where = server("node-1", *gpus, partitioning="mps", allocatable={WHOLE: 6})
    reason, message = answer_to(
        cluster(where, pods=[holder("node-1", WHOLE, name="trainer")], pending=[pod("a", (WHOLE, 6))])
    )

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "1 is in use, 5 are free or reserved for pods ahead in the queue" in message
