"""Chooses a node for one pod: filters, the nominated node first, the least allocated node otherwise.

Takes a pod and the book's nodes, usage and nominations, and returns the node or the sentence that kube-scheduler
writes. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from controller.model.scheduling import DEFAULT_PROFILE
from controller.model.views import NodeView, PodView
from controller.simulator.filters import ROOM_FILTERS, Assumptions, filter_node, room_refusal
from controller.simulator.usage import Usage
from controller.simulator.verdicts import FIT, DoesNotFit, Verdict
from sandbox.scheduler.records import Failure

NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CLAIMS = DoesNotFit(plugin="DynamicResources", reasons=("cannot allocate all claims",))
# What a pod without requests counts as using, for scoring only.
UNASKED = {"cpu": 100, "memory": 200 << 20}
EMPTY = Usage()


def place(
    pod: PodView,
    nodes: Sequence[NodeView],
    usage: Mapping[str, Usage],
    nominated: Mapping[str, Iterable[PodView]],
) -> str | Failure:
    """A node's name. `nodes` are sorted by name; `nominated` are the unbound pods that each node is held for."""
    feasible: list[NodeView] = []
    refusals: list[DoesNotFit] = []
    preemption: Counter[str] = Counter()
    for node in nodes:
        refusal = _refusal(pod, node, with_nominated(usage.get(node.name, EMPTY), pod, nominated.get(node.name, ())))
        if refusal is None:
            feasible.append(node)
            continue
        refusals.append(refusal)
        preemption[NO_VICTIMS if refusal.plugin in ROOM_FILTERS and fits_empty(pod, node) else NOT_HELPFUL] += 1
    if any(node.name == pod.nominated_node for node in feasible):
        return pod.nominated_node
    if feasible:
        return min(feasible, key=lambda node: _rank(pod, node, usage.get(node.name, EMPTY))).name
    plugins = frozenset(refusal.plugin for refusal in refusals)
    return Failure(message=_sentence(len(nodes), refusals, preemption), plugins=plugins)


def filter_pod(pod: PodView, node: NodeView, usage: Usage) -> Verdict:
    """Both, by the default profile. `usage` holds bound pods and, where they count, nominated ones."""
    verdict = filter_node(pod, node)
    return verdict if isinstance(verdict, DoesNotFit) else filter_room(pod, node, usage)


def filter_room(pod: PodView, node: NodeView, usage: Usage) -> Verdict:
    """Filters that read what the pods of the node hold, by the default profile."""
    given = Assumptions()
    plugins = (plugin for plugin in DEFAULT_PROFILE.filters if plugin in ROOM_FILTERS)
    refusals = (room_refusal(plugin, pod, node, usage, given) for plugin in plugins)
    return next((refusal for refusal in refusals if refusal is not None), FIT)


def fits_empty(pod: PodView, node: NodeView) -> bool:
    """Whether the pod could run there if no other pod did."""
    return not isinstance(filter_room(pod, node, EMPTY), DoesNotFit)


def helped(pod: PodView, old: NodeView | None, new: NodeView) -> bool:
    """Whether this change of a node could let the pod in: kube-scheduler's queueing hints.

    The pod must fit the node as it is now if that were empty; and the node must be new, must have kept the pod off
    before by its labels, taints or cordon, or must have grown in something that the pod requests.
    """
    if isinstance(filter_node(pod, new), DoesNotFit) or not fits_empty(pod, new):
        return False
    if old is None or isinstance(filter_node(pod, old), DoesNotFit):
        return True
    asked = ("pods", *(resource for resource, _ in pod.requests))
    return any(new.allocatable.get(resource, 0) > old.allocatable.get(resource, 0) for resource in asked)


def with_nominated(usage: Usage, pod: PodView, nominated: Iterable[PodView]) -> Usage:
    """The usage as the scheduler sees it for `pod`: pods nominated here count unless their priority is lower."""
    others = [other for other in nominated if other.priority >= pod.priority and other.uid != pod.uid]
    if not others:
        return usage
    seen = usage.copy()
    for other in others:
        seen.add(other)
    return seen


def _refusal(pod: PodView, node: NodeView, usage: Usage) -> DoesNotFit | None:
    if pod.claims:
        return NO_CLAIMS
    verdict = filter_pod(pod, node, usage)
    return verdict if isinstance(verdict, DoesNotFit) else None


def _rank(pod: PodView, node: NodeView, usage: Usage) -> tuple[int, int, str]:
    """LeastAllocated over CPU and memory, then the fewest pods; the real one picks at random among equals."""
    asked = dict(pod.requests)
    score = 0
    for resource, unasked in UNASKED.items():
        capacity = node.allocatable.get(resource, 0)
        wanted = usage.held[resource] + asked.get(resource, unasked)
        if 0 < wanted <= capacity:
            score += (capacity - wanted) * 100 // capacity
    return -score, usage.held.pods, node.name


def _sentence(count: int, refusals: Iterable[DoesNotFit], preemption: Mapping[str, int]) -> str:
    if count == 0:
        return NO_NODES
    reasons = Counter(reason for refusal in refusals for reason in refusal.reasons)
    return f"{_available(count, reasons)} preemption: {_available(count, preemption)}"


def _available(count: int, reasons: Mapping[str, int]) -> str:
    listed = ", ".join(sorted(f"{times} {reason}" for reason, times in reasons.items()))
    return f"0/{count} nodes are available: {listed}."
