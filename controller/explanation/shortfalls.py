"""Names what nodes lack for a pod besides GPUs: no node is large enough, or none has enough left.

Takes a demand and nodes whose GPUs would do, returns one answer. All that the node with most left is short
of is named. Never looks at GPUs.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from controller.explanation.phrases import Answer, counted, cpus, cpus_and_memory, gib, joined, spelled
from controller.model.capacity import Capacity
from controller.model.demand import Demand
from controller.model.reasons import UnplacedReason
from controller.model.views import NodeView
from controller.planner.board.nodes import NodeCapacity

_COMPARED = 100
"""Among so many nodes one that lacks nothing is looked for."""


class _Shortfall(NamedTuple):
    """What is short, what the pod requests of it, and what the node has left."""

    what: str
    requested: str
    left: str
    remedy: str = "Request less"


def no_large_node(needs: Capacity, sizes: Collection[tuple[int, int]]) -> Answer:
    """No node, even empty, has the CPU and memory; `sizes`: what nodes have of both, in milli and bytes."""
    cpu, memory = (max(amounts) for amounts in zip(*sizes, strict=True))
    short_of_cpu, short_of_memory = needs.cpu_milli > cpu, needs.memory_bytes > memory
    if not (short_of_cpu or short_of_memory):
        requested = cpus_and_memory(needs.cpu_milli, needs.memory_bytes)
        message = f"The pod requests {requested}; no node with such GPUs has both. Request less of one of them."
        return Answer(UnplacedReason.NEVER_FITS, message)
    if short_of_cpu and short_of_memory:
        requested, largest = cpus_and_memory(needs.cpu_milli, needs.memory_bytes), cpus_and_memory(cpu, memory)
    elif short_of_cpu:
        requested, largest = cpus(needs.cpu_milli), f"{cpu / 1000:g}"
    else:
        requested, largest = gib(needs.memory_bytes), gib(memory)
    return Answer(
        UnplacedReason.NEVER_FITS,
        f"The pod requests {requested}; the largest node with such GPUs has {largest}. Request less.",
    )


def no_such_resource(names: Sequence[str]) -> Answer:
    """No node has any of these: a release of a GPU would not help."""
    message = f"The pod requests {joined(names)}, of which no node with such GPUs has any."
    return Answer(UnplacedReason.NEVER_FITS, f"{message} Request none, or add a GPU node that has it.")


def too_little_left(demand: Demand, nodes: Sequence[tuple[NodeView, NodeCapacity]]) -> Answer:
    """`nodes` have the partitions; the one with most free CPU comes first."""
    held = [(node, lacking) for node, capacity in nodes if (lacking := capacity.lacks(demand))]
    if len(held) == len(nodes):
        node, lacking = held[0]
        return Answer(
            UnplacedReason.WAITS_FOR_RELEASE,
            f"Pods on node {node.name} hold more {joined(lacking)} than there is, so what is made there counts as "
            "theirs. The pod starts when those whose device is gone are deleted; or add a GPU node.",
        )
    nodes = [one for one in nodes if not one[1].lacks(demand)]
    best, capacity = next((one for one in nodes[:_COMPARED] if one[1].fits(demand)), nodes[0])
    shortfalls = _shortfalls(demand, best, capacity)
    if not shortfalls:
        message = f"GPUs have room for {spelled(demand.wants)}, but this pass found no place on their nodes."
        return Answer(UnplacedReason.NO_NODE_RESOURCES, f"{message} The next pass tries again.")
    what, requested, left, remedies = (list(dict.fromkeys(texts)) for texts in zip(*shortfalls, strict=True))
    return Answer(
        UnplacedReason.NO_NODE_RESOURCES,
        f"GPUs have room for {spelled(demand.wants)}, but their nodes lack {joined(what)}: the pod requests "
        f"{joined(requested)}. {'. '.join(remedies)}, or add a GPU node.",
        f"The best of {counted(len(nodes), 'node')}, {best.name}, has {joined(left)} left.",
    )


def _shortfalls(demand: Demand, node: NodeView, capacity: NodeCapacity) -> list[_Shortfall]:
    """Nothing: the pod is tried again in the next pass."""
    needs, free = demand.needs, capacity.free
    short = set(free.short_of(needs))
    found = []
    if "cpu" in short:
        found.append(_Shortfall("CPU", cpus(needs.cpu_milli), cpus(max(0, free.cpu_milli))))
    if "memory" in short:
        found.append(_Shortfall("memory", gib(needs.memory_bytes), gib(max(0, free.memory_bytes))))
    if "pods" in short:
        slots = counted(node.capacity.pods, "pod slot")
        found.append(_Shortfall("pod slots", "1 pod slot", f"none of its {slots}", "Wait"))
    for resource, amount in needs.other:
        if resource in short:
            found.append(_Shortfall(resource, f"{amount} {resource}", f"{max(0, free[resource])} {resource}"))
    taken = {f"{port.protocol} {port.port}" for port in capacity.usage.conflicting(demand.host_ports)}
    if taken:
        ports = f"host port{'s' if len(taken) > 1 else ''} {joined(sorted(taken))}"
        other = "other host ports" if len(taken) > 1 else "another host port"
        found.append(_Shortfall("free host ports", ports, f"no free {ports}", f"Use {other}"))
    return found
