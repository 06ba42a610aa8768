"""Why a pod found no place: one reason from the closed set, one message with the remedy, and details.

Takes the finished board, returns an Unplaced for each pod that waits. The questions go from what never fits to what
nearly does: could any GPU hold it, does the scheduler allow it there, may those GPUs be changed, is something already
going on, do the nodes have the CPU, which release would help. Where nodes are labelled for this kind of partition, only
those count; nodes of the other kind are a hint in the details. Never changes the board.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import NamedTuple

from controller.explanation.blockers import Candidate, blocking, taken_by_others
from controller.explanation.capability import Prospects, could_hold, equivalence_classes
from controller.explanation.causes import Cause, causes_of, is_meant_for
from controller.explanation.drained_gpus import causes_of_drains, to_owner
from controller.explanation.filtered import (
    NO_WORK_LEFT,
    TOO_COSTLY,
    cordoned,
    kept_off,
    kept_off_by_others,
    uncordoned,
    unmarked,
)
from controller.explanation.gangs import about_broken, about_incomplete, about_too_large, about_too_unlike
from controller.explanation.never_fits import no_gpu
from controller.explanation.phrases import Answer
from controller.explanation.remedies import WAIT_FOR_RELEASE, also, in_flight, nearest
from controller.explanation.shortfalls import no_large_node, no_such_resource, too_little_left
from controller.explanation.whole_gpus import about_whole_gpus
from controller.model.capacity import Capacity
from controller.model.demand import Wants
from controller.model.reasons import UnplacedReason
from controller.model.results import CutShort, Unplaced
from controller.model.views import NodeView, PodView
from controller.planner.board.assignment import Assignment
from controller.planner.board.nodes import NodeCapacity
from controller.planner.effort import Effort, never
from controller.planner.inventory.node_groups import cost_on_node
from controller.planner.inventory.stock import Ineligible
from controller.planner.placement.gangs import GangKey, key_of
from controller.planner.search import Finished
from controller.simulator.verdicts import DoesNotFit
from partitioning.resources import WHOLE

_NOT_FOR_ROOM = frozenset(
    {
        UnplacedReason.NEVER_FITS,
        UnplacedReason.BLOCKED,
        UnplacedReason.MIG_MODE_DISABLED,
        UnplacedReason.FILTERED_BY_SCHEDULER,
        UnplacedReason.AWAITING_AGENT,
    }
)
"""For these no pod of a gang would be placed, whatever its size: to wait for room does not help."""
LOOKS = 200_000
"""Nodes that one pass looks at to tell pods with different requests why they wait: some seconds."""
_GLANCES = 16
"""Nodes that are compared by their size alone, where one is looked at."""
_TOGETHER = 500
"""Looks that it takes to find out whether GPUs of one kind could hold several partitions at once."""
UNEXPLAINED = Answer(
    UnplacedReason.NO_CAPACITY,
    "No GPU has a place for it now, and this pass had no work left to find out why: too many pods wait that request "
    "different things. Wait, or delete pods that can never run.",
)
_ADMINISTRATORS = (UnplacedReason.BLOCKED, UnplacedReason.MIG_MODE_DISABLED)


@dataclass(slots=True, kw_only=True)
class _Outlook:
    """What is known of a request for partitions, whatever CPU and memory the pod requests."""

    in_flight: list[tuple[int, Answer]]
    """Nodes where something is going on that may serve it."""
    answer: Answer | None
    """None where GPUs have space: then it is the nodes that have not."""
    with_partitions: list[tuple[NodeView, NodeCapacity]]
    """The one with most free CPU first."""


class _Able(NamedTuple):
    """Nodes whose GPUs could hold a request, empty."""

    nodes: list[int]
    """Those that are there for this kind of partition."""
    others: list[Cause]
    """Why the others are not."""
    sizes: Set[tuple[int, int]]
    """CPU in milli and memory in bytes that one of those nodes has, empty."""
    resources: Set[str]
    """Of which any of them has some, besides these."""


def why_unplaced(finished: Finished, out_of_time: Callable[[], bool] = never) -> tuple[Unplaced, ...]:
    """All pending pods that request partitions and have no place, those that no planning could help first."""
    explainer = _Explainer(finished, out_of_time)
    return (
        *finished.demands.refused,
        *(_unplaced(one.pod, about_incomplete(one)) for one in finished.gangs.incomplete),
        *(_unplaced(one.pod, explainer.explain(one)) for one in explainer.waiting),
    )


def _unplaced(pod: PodView, answer: Answer) -> Unplaced:
    return Unplaced(uid=pod.uid, key=pod.key, reason=answer.reason, message=answer.message, detail=answer.detail)


class _Explainer:
    """Made once per pass, after the last request was placed."""

    def __init__(self, finished: Finished, out_of_time: Callable[[], bool]) -> None:
        self.waiting = [one for one in finished.tried if not one.placed]
        self._effort = Effort(LOOKS, out_of_time)
        self._effort.begin(Counter(one.pod.namespace for one in self.waiting))
        self._gangs = finished.gangs
        self._stocks = finished.stocks
        self._board = finished.board
        self._constrained = finished.constrained
        self._groups = finished.groups
        self._drains = finished.drains.found
        self._able: dict[Wants, _Able] = {}
        self._no_gpu = cache(lambda wants: no_gpu(self._stocks, [self._stocks[one[0]] for one in self._alike], wants))
        self._prospects = Prospects(finished.stocks, finished.board.devices)
        self._outlooks: dict[tuple[Wants, tuple[int, ...]], _Outlook] = {}
        self._large_gangs: dict[GangKey | None, Answer | None] = {}
        self._unlike_gangs: dict[GangKey | None, Answer | None] = {}
        self._answers: dict[Hashable, Answer] = {}
        """Thousands of pods wait for the same reason, and to find it takes a look at every node."""

    @cached_property
    def _alike(self) -> list[list[int]]:
        return equivalence_classes(self._stocks)

    def explain(self, assignment: Assignment) -> Answer:
        found = self._explained(assignment)
        self._effort.done(assignment.pod.namespace)
        return found

    def _explained(self, assignment: Assignment) -> Answer:
        if assignment.pod.gang and self._groups.unexamined(assignment.pod):
            return self._unexamined_gang(key_of(assignment.pod)) or NO_WORK_LEFT
        broken = about_broken(assignment.pod, self._gangs)
        if broken is not None:
            own = self._alone(assignment)
            return own if own.reason in _NOT_FOR_ROOM else self._too_large(assignment.pod) or broken
        drain = next((one for one in self._drains if one.assignment is assignment), None)
        if drain is not None:
            return self._with_hint(assignment, to_owner(drain, self._board))
        return self._alone(assignment)

    def _unexamined_gang(self, gang: GangKey | None) -> Answer | None:
        if gang not in self._unlike_gangs:
            members = [one.demand for one in self._members[gang]]
            self._unlike_gangs[gang] = about_too_unlike(members, len(self._stocks))
        return self._unlike_gangs[gang]

    def _too_large(self, pod: PodView) -> Answer | None:
        """Of a gang that would not fit if nothing else were there."""
        gang = key_of(pod)
        if gang not in self._large_gangs and self._effort.may(pod.namespace):
            members = self._members[gang]
            able = [self._able_nodes(wants) for wants in {one.wants for one in members}]
            nodes = {node for found in able for node in (*found.nodes, *(cause.node for cause in found.others))}
            stocks = [self._stocks[node] for node in sorted(nodes)]
            self._effort.spend(pod, len(stocks))
            self._large_gangs[gang] = about_too_large([one.demand for one in members], self._gangs, stocks)
        return self._large_gangs.get(gang)

    @cached_property
    def _members(self) -> dict[GangKey | None, list[Assignment]]:
        """Of each gang, those that wait."""
        found: dict[GangKey | None, list[Assignment]] = {}
        for one in self.waiting:
            found.setdefault(key_of(one.pod), []).append(one)
        return found

    def _alone(self, assignment: Assignment) -> Answer:
        """As of a pod in no gang."""
        same = self._constrained.equivalence_class(assignment)
        found = self._answers.get(same)
        if found is None and not self._effort.may(assignment.pod.namespace):
            return NO_WORK_LEFT if self._effort.cut_short is CutShort.TIME else UNEXPLAINED
        if found is None:
            found = self._answers[same] = self._with_hint(assignment, self._answer(assignment))
        return found

    def _with_hint(self, assignment: Assignment, found: Answer) -> Answer:
        able = self._able_nodes(assignment.wants)
        more = also(able.others, said=f"{found.message} {found.detail}") if able.nodes else ""
        return found._replace(detail=f"{found.detail} {more}".strip())

    def _answer(self, assignment: Assignment) -> Answer:
        if self._groups.unexamined(assignment.pod):
            return TOO_COSTLY if self._groups.too_costly(assignment.pod) else NO_WORK_LEFT
        wants = assignment.wants
        if wants not in self._able:
            each = 1 if len(wants) == 1 else _TOGETHER
            self._effort.spend(assignment.pod, len(self._alike) * each + len(self._stocks) // _GLANCES)
        able = self._able_nodes(wants)
        needs = assignment.needs
        self._effort.spend(assignment.pod, 1 + len(able.sizes) // _GLANCES)
        beyond = self._beyond_empty_nodes(needs, able) if able.nodes else None
        if beyond is not None:
            return self._had_elsewhere(assignment, able) or beyond
        self._effort.spend(assignment.pod, (len(able.nodes) + len(able.others)) // _GLANCES)
        if not able.nodes:
            others = [cause.node for cause in able.others]
            return self._elsewhere(assignment, able.others, others) if others else self._no_gpu(wants)
        nodes = [node for node in able.nodes if self._groups.may_use(assignment.pod, node)]
        large = [node for node in nodes if self._stocks[node].is_large_enough(assignment.needs)]
        if not large:
            named = self._named(assignment.pod, able.nodes)
            if not named:
                return self._elsewhere(assignment, able.others, able.nodes)
            return self._on_cordoned_nodes(assignment, able.nodes) or self._filtered(assignment, able.nodes, named)
        if assignment.constrained:
            refusals = {node: self._constrained.refusal(assignment, node) for node in large}
            refused = self._refused(assignment, refusals)
            if refused is not None:
                return refused
            nodes = [node for node in large if not refusals[node]]
        outlook = self._outlook(assignment, nodes)
        for node, answer in outlook.in_flight:
            if self._board.fits(assignment, node):
                return answer
        if outlook.answer is not None and outlook.answer.reason in _ADMINISTRATORS:
            return self._on_cordoned_nodes(assignment, able.nodes) or outlook.answer  # to uncordon is less work
        return outlook.answer or too_little_left(assignment.demand, outlook.with_partitions)

    def _beyond_empty_nodes(self, needs: Capacity, able: _Able) -> Answer | None:
        if not any(needs.cpu_milli <= cpu and needs.memory_bytes <= memory for cpu, memory in able.sizes):
            return no_large_node(needs, able.sizes)
        absent = [name for name, _ in needs.other if name not in able.resources]
        return no_such_resource(absent) if absent else None

    def _had_elsewhere(self, assignment: Assignment, able: _Able) -> Answer | None:
        """Why a node that has what those lack is none of them."""
        self._effort.spend(assignment.pod, len(able.others) // _GLANCES)
        needs = assignment.needs
        causes = [cause for cause in able.others if self._stocks[cause.node].is_large_enough(needs)]
        causes = [cause for cause in causes if self._resources(cause.node).issuperset(name for name, _ in needs.other)]
        named = self._named(assignment.pod, [cause.node for cause in causes])
        own = [cause for cause in causes if cause.node in named]
        return self._elsewhere(assignment, own, ()) if own else None

    def _resources(self, node: int) -> set[str]:
        """Of which its plugins have some, or DRA serves it there."""
        had = (*self._stocks[node].node.capacity.other, *self._board.nodes[node].free.other)
        return {name for name, amount in had if amount > 0}

    def _refused(self, assignment: Assignment, refusals: Mapping[int, str]) -> Answer | None:
        """Filters that read other pods keep it off all nodes, or off all that have room."""
        self._effort.spend(assignment.pod, len(refusals))
        reasons = Counter(refusals.values())
        if not reasons[""]:
            return kept_off_by_others(len(refusals), reasons)
        roomy = [node for node in refusals if self._board.fits(assignment, node)]
        roomy = [node for node in roomy if self._board.has_partitions(assignment, node)]
        reasons = Counter(refusals[node] for node in roomy)
        return kept_off_by_others(len(roomy), reasons, "every node with room") if roomy and not reasons[""] else None

    def _on_cordoned_nodes(self, assignment: Assignment, nodes: Sequence[int]) -> Answer | None:
        """Nodes that nothing but the cordon keeps from it."""
        names = [
            node.name
            for number in nodes
            if (node := self._stocks[number].node).unschedulable
            and self._stocks[number].is_large_enough(assignment.needs)
            and not self._causes(number, assignment.wants)
            and self._refusal(assignment.pod, uncordoned(node)) is None
        ]
        return cordoned(names) if names else None

    def _elsewhere(self, assignment: Assignment, causes: Sequence[Cause], nodes: Sequence[int]) -> Answer:
        """Why nodes that the pod names are not there for it; where it names none of them, why not `nodes`."""
        named = self._named(assignment.pod, [cause.node for cause in causes])
        own = [cause for cause in causes if cause.node in named]
        first = [cause for cause in own if cause.ineligible is Ineligible.NOT_ENABLED]
        return nearest(first or own) if own else self._filtered(assignment, nodes, named)

    def _named(self, pod: PodView, nodes: Sequence[int]) -> frozenset[int]:
        """Those that its selector and affinity do not exclude: no remedy must lead it to others."""
        return frozenset([number for number in nodes if self._names(pod, self._stocks[number].node)])

    def _names(self, pod: PodView, node: NodeView) -> bool:
        refusal = self._refusal(pod, node)
        if refusal is not None and (node.unschedulable or node.taints):
            refusal = self._refusal(pod, unmarked(node))  # a taint comes before the selector
        return refusal is None or refusal.plugin != "NodeAffinity"

    def _causes(self, number: int, wants: Wants) -> list[Cause]:
        """Whole GPUs need no label."""
        found = causes_of(self._stocks[number], number, wants)
        whole = all(name == WHOLE for name, _ in wants)
        return [cause for cause in found if not (whole and cause.ineligible is Ineligible.NOT_ENABLED)]

    def _refusal(self, pod: PodView, node: NodeView) -> DoesNotFit | None:
        self._effort.spend(pod, cost_on_node(pod))
        return self._groups.why_not(pod, node)

    def _outlook(self, assignment: Assignment, nodes: Sequence[int]) -> _Outlook:
        """Of nodes whose GPUs could hold it, and that the scheduler allows."""
        wants = assignment.wants
        key = (wants, tuple(nodes))
        found = self._outlooks.get(key)
        if found is None:
            self._effort.spend(assignment.pod, len(nodes) * sum(min(count, 8) for _, count in wants))
            with_partitions = [
                node
                for node in nodes
                if self._board.has_partitions(assignment, node)
                and (not self._board.nodes[node].lacks(assignment.demand) or self._prospects.would_serve(node, wants))
            ]
            with_partitions.sort(key=lambda node: -self._board.nodes[node].free.cpu_milli)
            causes = [cause for node in nodes for cause in causes_of(self._stocks[node], node, wants)]
            causes += causes_of_drains(self._drains, wants, nodes)
            found = self._outlooks[key] = _Outlook(
                in_flight=in_flight(causes),
                answer=None if with_partitions else self._about_gpus(assignment, nodes, causes),
                with_partitions=[(self._stocks[node].node, self._board.nodes[node]) for node in with_partitions],
            )
        return found

    def _able_nodes(self, wants: Wants) -> _Able:
        found = self._able.get(wants)
        if found is None:
            holding = (nodes for nodes in self._alike if could_hold(self._stocks[nodes[0]], wants))
            able = sorted(chain.from_iterable(holding))
            meant = [number for number in able if is_meant_for(self._stocks[number], wants)]
            rest = sorted(set(able).difference(meant))
            others = [cause for node in rest for cause in causes_of(self._stocks[node], node, wants)]
            sizes = {(one.cpu_milli, one.memory_bytes) for one in (self._stocks[node].node.capacity for node in meant)}
            found = self._able[wants] = _Able(meant, others, sizes, set().union(*map(self._resources, meant)))
        return found

    def _filtered(self, assignment: Assignment, nodes: Sequence[int], named: Set[int]) -> Answer:
        large = [number for number in nodes if self._stocks[number].is_large_enough(assignment.needs)] or list(nodes)
        large = [number for number in large if number in named] or large
        causes = {number: self._causes(number, assignment.wants) for number in large}
        eligible = [number for number in large if not causes[number]] or large  # others need more than one remedy
        kept = [(node, self._refusal(assignment.pod, node)) for node in (self._stocks[one].node for one in eligible)]
        rejected = [(node, refusal) for node, refusal in kept if refusal is not None]
        found = kept_off(assignment.pod, rejected, self._refusal)
        more = [cause for number in eligible for cause in causes[number]]
        return found._replace(message=f"{found.message} {nearest(more).message}") if more else found

    def _about_gpus(self, assignment: Assignment, nodes: Sequence[int], causes: Sequence[Cause]) -> Answer:
        wants = assignment.wants
        hopeful = {node for node in nodes if self._prospects.could_give(node, wants, WAIT_FOR_RELEASE)}
        lasting = [one for one in causes if one.node in hopeful or one.ineligible not in WAIT_FOR_RELEASE]
        if any(name == WHOLE for name, _ in wants):
            if len(wants) > 1 and not hopeful:
                return nearest(lasting)
            return about_whole_gpus(wants, [self._stocks[node] for node in nodes], causes)
        hardest = min((name for name, _ in wants), key=self._board.sizes.index)
        candidates = [
            Candidate(stock=self._stocks[node], gpu=self._stocks[node].gpus[device.gpu], device=device)
            for node in nodes
            if self._prospects.could_give(node, wants)
            for device in self._board.devices[node]
            if device.gpu >= 0 and hardest in device.pool.serves and not device.drained
        ]
        if not candidates:
            return nearest(lasting)
        found = blocking(candidates, hardest) or taken_by_others(len(candidates))
        return found._replace(detail=f"{found.detail} {also(causes)}".strip())
