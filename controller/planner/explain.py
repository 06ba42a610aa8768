"""Why an ask found no place: one reason from the closed set, in one sentence with names, numbers and the remedy.

In go the board after planning, the stock of the nodes and the ask. The questions are asked from the hopeless to the
nearly possible: could any GPU hold it, does the scheduler let it there, may we change those GPUs, is something already
going on, do the nodes have the CPU, whose release would help. Answers that depend on the partitions alone are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.demand import Wants
from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.groups import why_not
from controller.planner.hopeless import no_gpu
from controller.planner.inventory import Closed, NodeStock
from controller.planner.lacking import lacking
from controller.planner.offers import (
    could_hold,
    fully_open,
    label_allows,
    why_closed,
)
from controller.planner.releases import Candidate, blocking
from controller.planner.singly import Singly
from controller.planner.wholes import about_whole_gpus, held_whole
from controller.planner.wording import cores, counted, gib, listed, spelled
from controller.reasons import UnplacedReason
from controller.results import Unplaced
from controller.scheduling import SchedulerProfiles
from partitioning.resources import WHOLE

_LOOKED_AT = 100
"""How many nodes are compared to name the best one."""

Answer = tuple[UnplacedReason, str]


class _ClosedOne(NamedTuple):
    """A node or GPU that could hold it but is left out."""

    node: int
    title: str
    reason: Closed
    words: str


@dataclass(slots=True, kw_only=True)
class _Outlook:
    """What can be said of a request for partitions, whatever CPU and memory the pod asks."""

    nodes: list[int]
    """Whose GPUs could hold it, and which the scheduler allows."""
    in_flight: list[tuple[int, Answer]]
    """Nodes where something is going on that may serve it."""
    answer: Answer | None
    """None where GPUs have room: then it is the nodes that have not."""
    with_room: list[int]


class Explainer:
    """Made once per pass, after the last ask was placed."""

    def __init__(
        self,
        stocks: Sequence[NodeStock],
        board: Board,
        singly: Singly,
        profiles: SchedulerProfiles,
        relabelled: Collection[str],
    ) -> None:
        self._stocks = stocks
        self._board = board
        self._singly = singly
        self._profiles = profiles
        self._relabelled = relabelled
        self._able: dict[Wants, list[int]] = {}
        self._no_gpu: dict[Wants, Answer] = {}
        self._outlooks: dict[tuple[Wants, tuple[int, ...]], _Outlook] = {}

    def explain(self, ask: Ask) -> Unplaced:
        reason, message = self._answer(ask)
        return Unplaced(uid=ask.demand.pod.uid, key=ask.demand.pod.key, reason=reason, message=message)

    def _answer(self, ask: Ask) -> Answer:
        wants = ask.demand.wants
        able = self._able_nodes(wants)
        if not able:
            return self._hopeless(wants)
        if not any(self._large_enough(ask, node) for node in able):
            return UnplacedReason.NEVER_FITS, self._no_large_node(ask, able)
        outlook = self._outlook(ask, able)
        if not any(self._large_enough(ask, node) for node in outlook.nodes):
            large = [node for node in able if self._large_enough(ask, node)]
            return UnplacedReason.FILTERED_BY_SCHEDULER, self._filtered(ask, large)
        refusals = self._singly.refusals(ask, outlook.nodes)
        if not refusals[""]:
            return UnplacedReason.FILTERED_BY_SCHEDULER, _kept_off(ask, len(outlook.nodes), refusals)
        for node, answer in outlook.in_flight:
            if self._board.fits(ask, node):
                return answer
        return outlook.answer or self._no_node_resources(ask, outlook.with_room)

    def _outlook(self, ask: Ask, able: Sequence[int]) -> _Outlook:
        key = (ask.demand.wants, ask.groups)
        found = self._outlooks.get(key)
        if found is None:
            nodes = [node for node in able if self._board.group_of[node] in ask.groups]
            with_room = [node for node in nodes if self._board.has_partitions(ask, node)]
            with_room.sort(key=lambda node: -self._board.rooms[node].cpu)
            closed = self._closed(ask.demand.wants, nodes)
            found = self._outlooks[key] = _Outlook(
                nodes=nodes,
                in_flight=_in_flight(closed),
                answer=None if with_room else self._about_gpus(ask, nodes, closed),
                with_room=with_room,
            )
        return found

    # ------------------------------------------------------------------------------------- hopeless ones

    def _able_nodes(self, wants: Wants) -> list[int]:
        able = self._able.get(wants)
        if able is None:
            able = self._able[wants] = [number for number, stock in enumerate(self._stocks) if could_hold(stock, wants)]
        return able

    def _hopeless(self, wants: Wants) -> Answer:
        """No node's GPUs could hold it, even empty."""
        found = self._no_gpu.get(wants)
        if found is None:
            found = self._no_gpu[wants] = no_gpu(self._stocks, wants)
        return found

    def _large_enough(self, ask: Ask, node: int) -> bool:
        allocatable = self._stocks[node].node.allocatable
        return ask.cpu <= allocatable.get("cpu", 0) and ask.memory <= allocatable.get("memory", 0)

    def _no_large_node(self, ask: Ask, able: Iterable[int]) -> str:
        nodes = [self._stocks[node].node for node in able]
        cpu = max(node.allocatable.get("cpu", 0) for node in nodes)
        memory = max(node.allocatable.get("memory", 0) for node in nodes)
        return (
            f"the pod asks {cores(ask.cpu)} and {gib(ask.memory)}, and no node with such GPUs has more than "
            f"{cores(cpu)} and {gib(memory)}: ask for less"
        )

    def _filtered(self, ask: Ask, nodes: Sequence[int]) -> str:
        reasons: Counter[str] = Counter()
        for number in nodes:
            node = self._stocks[number].node
            misfit = why_not(ask.demand.pod, node, self._profiles, relabels=node.name in self._relabelled)
            if misfit is not None:
                reasons[misfit.message] += 1
        return _kept_off(ask, len(nodes), reasons)

    # ----------------------------------------------------------------------------- what the GPUs would need

    def _about_gpus(self, ask: Ask, nodes: Sequence[int], closed: Sequence[_ClosedOne]) -> Answer:
        wants = ask.demand.wants
        if any(name == WHOLE for name, _ in wants):
            return about_whole_gpus(wants, [self._stocks[node] for node in nodes])
        hardest = min((name for name, _ in wants), key=self._board.sizes.index)
        candidates = [
            Candidate(stock=self._stocks[node], gpu=self._stocks[node].gpus[device.gpu], device=device)
            for node in nodes
            if all(any(name in device.pool.serves for device in self._board.devices[node]) for name, _ in wants)
            for device in self._board.devices[node]
            if device.gpu >= 0 and hardest in device.pool.serves
        ]
        if not candidates:
            return _all_closed(closed)
        return blocking(candidates, hardest) or (UnplacedReason.NO_CAPACITY, _full(wants, len(candidates), closed))

    def _closed(self, wants: Wants, nodes: Iterable[int]) -> list[_ClosedOne]:
        """Nodes and GPUs that could hold it but are left out, and why."""
        closed: list[_ClosedOne] = []
        for node in nodes:
            stock = self._stocks[node]
            name = stock.node.name
            if stock.closed is not None:
                closed.append(_ClosedOne(node, f"node {name}", stock.closed, stock.closed_words))
            elif fully_open(stock, wants):
                continue
            elif not label_allows(stock, wants):
                closed.append(_ClosedOne(node, f"node {name}", Closed.OTHER_LABEL, Closed.OTHER_LABEL.value))
            else:
                for gpu in stock.gpus:
                    reason = why_closed(gpu, wants)
                    if reason is not None:
                        words = held_whole(gpu) if reason is Closed.HELD_WHOLE else reason.value
                        closed.append(_ClosedOne(node, f"GPU {gpu.view.index} of {name}", reason, words))
        return closed

    def _no_node_resources(self, ask: Ask, nodes: Sequence[int]) -> Answer:
        """`nodes` have the partitions; the one with most free CPU comes first."""
        rooms = self._board.rooms
        best = next((node for node in nodes[:_LOOKED_AT] if rooms[node].cpu >= ask.cpu), nodes[0])
        room, name = rooms[best], self._stocks[best].node.name
        return UnplacedReason.NO_NODE_RESOURCES, (
            f"GPUs of {counted(len(nodes), 'node')} have room for {spelled(ask.demand.wants)}, best {name}, "
            f"but {lacking(ask, room)}: ask for less, or add a node"
        )


def _kept_off(ask: Ask, nodes: int, reasons: Mapping[str, int]) -> str:
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return (
        f"of {counted(nodes, 'node')} with GPUs for {spelled(ask.demand.wants)}: {told}: "
        "change the pod's tolerations, node selector or affinity, or the nodes' taints and labels"
    )


def _in_flight(closed: Sequence[_ClosedOne]) -> list[tuple[int, Answer]]:
    """Per node what may still serve a pod there; changes before agents that have not reported."""
    changing = [one for one in closed if one.reason is Closed.CHANGING]
    fresh = [one for one in closed if one.reason in (Closed.NO_PLAN, Closed.NOT_REPORTED)]
    about_changes = (
        UnplacedReason.CHANGE_UNDER_WAY,
        f"{listed([one.title for one in changing])} is being changed: the pod is planned again when that has settled",
    )
    about_agents = (
        UnplacedReason.AWAITING_AGENT,
        f"GPUs not reported yet: {listed([one.title for one in fresh])}: see the node agent there",
    )
    return [(one.node, about_changes) for one in changing] + [(one.node, about_agents) for one in fresh]


def _all_closed(closed: Sequence[_ClosedOne]) -> Answer:
    reasons = {one.reason for one in closed}
    if not reasons:
        return UnplacedReason.BLOCKED, "no node offers GPUs for all of its partitions together: ask for one kind"
    if reasons == {Closed.AGENT_SILENT}:
        return UnplacedReason.AWAITING_AGENT, _worded(closed)
    if reasons == {Closed.MIG_MODE_DISABLED}:
        return UnplacedReason.MIG_MODE_DISABLED, _worded(closed)
    return UnplacedReason.BLOCKED, _worded(closed)


def _full(wants: Wants, gpus: int, closed: Sequence[_ClosedOne]) -> str:
    also = f"; besides, {_worded(closed)}" if closed else ""
    which = f"the GPU for {spelled(wants)} is" if gpus == 1 else f"the {gpus} GPUs for {spelled(wants)} are"
    return f"{which} full with pods that are served before it: add a node, or wait{also}"


def _worded(closed: Sequence[_ClosedOne]) -> str:
    """One clause per reason, with the first names."""
    titles: dict[str, list[str]] = {}
    # The server's sentence names the plan: that of the first node stands for all.
    refused = next((one.words for one in closed if one.reason is Closed.WRITE_REFUSED), "")
    for one in closed:
        titles.setdefault(refused if one.reason is Closed.WRITE_REFUSED else one.words, []).append(one.title)
    return "; ".join(f"{listed(names)} {words}" for words, names in titles.items())
