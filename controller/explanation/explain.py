"""Why a request found no place: one reason from the closed set, one message with the remedy, and details.

Takes the board after planning, the stock of the nodes and the request. The questions are asked from the hopeless to the
nearly possible: could any GPU hold it, does the scheduler allow it there, may those GPUs be changed, is something
already going on, do the nodes have the CPU, whose release would help. Where nodes are labelled for this kind of
partition, only those count; nodes of the other kind are a hint in the details. Answers that depend on the partitions
alone are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.explanation.blockers import Candidate, blocking
from controller.explanation.capability import could_hold, label_allows
from controller.explanation.causes import Cause, also, causes_of, in_flight, nearest
from controller.explanation.filtered import kept_off, kept_off_by_others
from controller.explanation.kept import Kept
from controller.explanation.never_fits import no_gpu
from controller.explanation.phrases import Answer, counted, cpus, cpus_and_memory, gib, spelled
from controller.explanation.shortfalls import lacking
from controller.explanation.whole_gpus import about_whole_gpus
from controller.model.demand import Wants
from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.planner.board.assignment import Ask
from controller.planner.inventory.node_groups import why_not
from controller.planner.inventory.stock import Closed, NodeStock
from controller.planner.search import Finished
from partitioning.resources import WHOLE

_COMPARED = 100
"""How many nodes are compared to name the best one."""


@dataclass(slots=True, kw_only=True)
class _Outlook:
    """What can be said of a request for partitions, whatever CPU and memory the pod requests."""

    nodes: list[int]
    """Whose GPUs could hold it, and which the scheduler allows."""
    in_flight: list[tuple[int, Answer]]
    """Nodes where something is going on that may serve it."""
    answer: Answer | None
    """None where GPUs have room: then it is the nodes that have not."""
    with_room: list[int]


class _Able(NamedTuple):
    """Nodes whose GPUs could hold a request, empty."""

    nodes: list[int]
    """Those that are there for this kind of partition."""
    others: list[Cause]
    """Why the others are not."""


def why_unplaced(finished: Finished) -> tuple[Unplaced, ...]:
    """All pending pods that request partitions and have no place, those that no planning could help first."""
    explainer, gangs = _Explainer(finished), finished.gangs
    waiting = [one for one in finished.tried if one.node < 0]
    explained = (gangs.why_not(ask.demand.pod) or explainer.explain(ask) for ask in waiting)
    return (*finished.demands.refused, *explained)


class _Explainer:
    """Made once per pass, after the last request was placed."""

    def __init__(self, finished: Finished) -> None:
        self._stocks = finished.stocks
        self._board = finished.board
        self._singly = finished.singly
        self._profiles = finished.profiles
        self._relabelled = finished.relabelled
        self._kept = Kept.of(finished)
        self._able: dict[Wants, _Able] = {}
        self._no_gpu: dict[Wants, Answer] = {}
        self._outlooks: dict[tuple[Wants, tuple[int, ...]], _Outlook] = {}

    def explain(self, ask: Ask) -> Unplaced:
        found = self._answer(ask)
        pod, able = ask.demand.pod, self._able_nodes(ask.demand.wants)
        hint = also(able.others) if able.nodes else ""
        detail = f"{found.detail} {hint}".strip()
        return Unplaced(uid=pod.uid, key=pod.key, reason=found.reason, message=found.message, detail=detail)

    def _answer(self, ask: Ask) -> Answer:
        if self._kept is not None and ask is self._kept.ask:
            return self._kept.to_owner
        wants = ask.demand.wants
        able = self._able_nodes(wants)
        if not able.nodes:
            return nearest(able.others) if able.others else self._hopeless(wants)
        large = [node for node in able.nodes if self._large_enough(ask, node)]
        if not large:
            return self._no_large_node(ask, able.nodes)
        outlook = self._outlook(ask, able.nodes)
        if not any(self._large_enough(ask, node) for node in outlook.nodes):
            return self._filtered(ask, large)
        refusals = self._singly.refusals(ask, outlook.nodes)
        if not refusals[""]:
            return kept_off_by_others(len(outlook.nodes), refusals)
        for node, answer in outlook.in_flight:
            if self._board.fits(ask, node):
                return answer
        return outlook.answer or self._no_node_resources(ask, outlook.with_room)

    def _outlook(self, ask: Ask, able: Sequence[int]) -> _Outlook:
        key = (ask.demand.wants, ask.groups)
        found = self._outlooks.get(key)
        if found is None:
            wants = ask.demand.wants
            nodes = [node for node in able if self._board.group_of[node] in ask.groups]
            with_room = [node for node in nodes if self._board.has_partitions(ask, node)]
            with_room.sort(key=lambda node: -self._board.rooms[node].cpu)
            causes = [cause for node in nodes for cause in causes_of(self._stocks[node], node, wants)]
            if self._kept is not None:
                causes += self._kept.causes(wants, nodes)
            found = self._outlooks[key] = _Outlook(
                nodes=nodes,
                in_flight=in_flight(causes),
                answer=None if with_room else self._about_gpus(ask, nodes, causes),
                with_room=with_room,
            )
        return found

    # ------------------------------------------------------------------------------------- hopeless ones

    def _able_nodes(self, wants: Wants) -> _Able:
        found = self._able.get(wants)
        if found is None:
            able = [number for number, stock in enumerate(self._stocks) if could_hold(stock, wants)]
            meant = [number for number in able if _is_meant_for(self._stocks[number], wants)]
            rest = sorted(set(able).difference(meant))
            others = [cause for node in rest for cause in causes_of(self._stocks[node], node, wants)]
            found = self._able[wants] = _Able(meant, others)
        return found

    def _hopeless(self, wants: Wants) -> Answer:
        """No node's GPUs could hold it, even empty."""
        found = self._no_gpu.get(wants)
        if found is None:
            found = self._no_gpu[wants] = no_gpu(self._stocks, wants)
        return found

    def _large_enough(self, ask: Ask, node: int) -> bool:
        allocatable = self._stocks[node].node.allocatable
        return ask.cpu <= allocatable.get("cpu", 0) and ask.memory <= allocatable.get("memory", 0)

    def _no_large_node(self, ask: Ask, able: Iterable[int]) -> Answer:
        nodes = [self._stocks[node].node for node in able]
        cpu = max(node.allocatable.get("cpu", 0) for node in nodes)
        memory = max(node.allocatable.get("memory", 0) for node in nodes)
        short_of_cpu, short_of_memory = ask.cpu > cpu, ask.memory > memory
        if short_of_cpu == short_of_memory:  # where neither is, no one node has enough of both
            requested, largest = cpus_and_memory(ask.cpu, ask.memory), cpus_and_memory(cpu, memory)
        elif short_of_cpu:
            requested, largest = cpus(ask.cpu), f"{cpu / 1000:g}"
        else:
            requested, largest = gib(ask.memory), gib(memory)
        return Answer(
            UnplacedReason.NEVER_FITS,
            f"The pod requests {requested}; the largest node with such GPUs has {largest}. Request less.",
        )

    def _filtered(self, ask: Ask, nodes: Sequence[int]) -> Answer:
        rejected = []
        for number in nodes:
            node = self._stocks[number].node
            misfit = why_not(ask.demand.pod, node, self._profiles, relabels=node.name in self._relabelled)
            if misfit is not None:
                rejected.append((node, misfit))
        return kept_off(ask.demand.pod, rejected)

    # ----------------------------------------------------------------------------- what the GPUs would need

    def _about_gpus(self, ask: Ask, nodes: Sequence[int], causes: Sequence[Cause]) -> Answer:
        wants = ask.demand.wants
        if any(name == WHOLE for name, _ in wants):
            return about_whole_gpus(wants, [self._stocks[node] for node in nodes])
        hardest = min((name for name, _ in wants), key=self._board.sizes.index)
        candidates = [
            Candidate(stock=self._stocks[node], gpu=self._stocks[node].gpus[device.gpu], device=device)
            for node in nodes
            if all(any(name in device.pool.serves for device in self._board.devices[node]) for name, _ in wants)
            for device in self._board.devices[node]
            if device.gpu >= 0 and hardest in device.pool.serves and not device.reserved
        ]
        if not candidates:
            return nearest(causes)
        found = blocking(candidates, hardest) or _full(len(candidates))
        return found._replace(detail=f"{found.detail} {also(causes)}".strip())

    def _no_node_resources(self, ask: Ask, nodes: Sequence[int]) -> Answer:
        """`nodes` have the partitions; the one with most free CPU comes first."""
        rooms = self._board.rooms
        best = next((node for node in nodes[:_COMPARED] if rooms[node].cpu >= ask.cpu), nodes[0])
        short = lacking(ask, rooms[best])
        if short is None:
            message = f"GPUs have room for {spelled(ask.demand.wants)}, but this pass found no place on their nodes."
            return Answer(UnplacedReason.NO_NODE_RESOURCES, f"{message} The next pass tries again.")
        return Answer(
            UnplacedReason.NO_NODE_RESOURCES,
            f"GPUs have room for {spelled(ask.demand.wants)}, but their nodes lack {short.what}: the pod requests "
            f"{short.requested}. Request less, or add a GPU node.",
            f"The best of {counted(len(nodes), 'node')}, {self._stocks[best].name}, has {short.left} left.",
        )


def _is_meant_for(stock: NodeStock, wants: Wants) -> bool:
    if any(name == WHOLE for name, _ in wants):
        return True  # whole GPUs need no label
    return stock.closed is not Closed.NOT_ENABLED and label_allows(stock, wants)


def _full(gpus: int) -> Answer:
    which = {1: "The only suitable GPU is", 2: "Both suitable GPUs are"}.get(gpus, f"All {gpus} suitable GPUs are")
    message = f"{which} taken by pods ahead in the queue. Wait, or add a GPU node."
    return Answer(UnplacedReason.NO_CAPACITY, message)
