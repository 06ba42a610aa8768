"""Places the pods of all priority levels on the board, so that no lower level costs a higher one a pod.

Takes the board and the assignments by level, the highest first. All are first placed in one go, admitted level by level
on counts: a level that is placed alone takes no account of what the next one needs. That stays where every level but
the last is served in full. Otherwise the levels are placed one after the other, each on what the others leave it, then
those that can move are placed in one go. What serves most of all this stays, compared from the top. In one go means:
pods are divided among node groups; in each, they are admitted on counts, whether constrained or not. Constrained ones
have their places first, then the others get what is ready as long as the rest still fits then, and are placed hardest
first. What is left is filled, cheapest first, and lower levels give way to single pods of upper ones. Never moves a pod
with a reservation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from controller.model.results import PlannerPhase
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.bound import upper_bound
from controller.planner.changing_places import change_places
from controller.planner.giving_way import give_way
from controller.planner.improvement import exchange
from controller.planner.placement.admission import admit
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.existing_supply import keep_reservations, use_ready
from controller.planner.placement.gangs import Gangs
from controller.planner.placement.making_room import make_room
from controller.planner.placement.shares import measure
from controller.planner.placement.split import split

LOOKS = 2_000_000
"""At pods and nodes, for levels that are placed one after the other: some seconds. Further ones take what they find."""
_GROUP = 16
"""Measured: a group costs a level as much as so many nodes."""
_ROUNDS, _MORE_ROUNDS = 2, 8
"""Of pods that change places, give way, and are exchanged: each finds what the other left. More: for upper levels."""

Cost = Callable[[Assignment], float]
Levels = Sequence[Sequence[Assignment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every level."""

    reservations: Mapping[str, int]
    """Node numbers by pod uid."""
    constrained: ConstrainedPlacement
    gangs: Gangs
    improve_steps: int
    most: int = 0
    """No plan places more pods than this."""
    remarks: list[str]
    """Gets what this pass could not do."""
    report: Callable[[PlannerPhase], None]
    """Called with the name of each phase after it."""

    def moves(self, one: Assignment) -> bool:
        """It moves alone, and is not placed where it has a reservation."""
        return moves_alone(one) and not (one.placed and self.reservations.get(one.pod.uid) == one.node)


def moves_alone(assignment: Assignment) -> bool:
    """It may be placed by itself: it is in no gang, and neither other pods nor volumes decide where it goes."""
    return assignment.tried and not assignment.pod.gang and not assignment.constrained


def place_levels(board: Board, levels: Levels, rules: Rules) -> None:
    """Place all of them; what cannot be served stays without a place."""
    upper = [one for level in levels[:-1] for one in level if one.tried]
    at_once: Found | None = None
    if upper and upper_bound(board, upper, rules.remarks) == len(upper):
        _place(board, levels, rules, rules.most)
        # Where no work was left for a pod, there is none for another try.
        if all(one.placed or one.pod.uid in rules.constrained.unexamined for one in upper) or board.effort.hurries():
            return
        at_once = Found(levels, rules)
        begin_again(board, levels, rules)
    left = rules.most
    apart = 1 + LOOKS // (1 + sum(map(len, levels)) + len(board.nodes) + _GROUP * len(board.groups))
    for members in levels[:apart]:
        left -= _place(board, [members], rules, left)
    board.demand(_resources(chain.from_iterable(levels[apart:])))
    for members in levels[apart:]:
        _place_one_by_one(board, members, rules)
    _place_together(board, levels, rules)
    if at_once and Found(levels, rules).served < at_once.served:
        at_once.put_back(board)  # a pod of an upper level may need one of a lower level next to it


class Found:
    """Where every pod of these levels is, and how many the levels have served."""

    def __init__(self, levels: Levels, rules: Rules) -> None:
        self.served = tuple(sum(one.placed and one.tried for one in level) for level in levels)
        reserved = rules.reservations
        self.kept = [sum(one.placed and reserved.get(one.pod.uid) == one.node for one in level) for level in levels]
        self._all, self._rules = list(chain.from_iterable(levels)), rules
        self._placed = [(one, one.node, one.taken) for one in self._all if one.placed]
        self._phases = [(one, one.noted, one.phase) for one in self._all]
        self._gangs, self._unexamined = dict(rules.gangs.found), set(rules.constrained.unexamined)

    def put_back(self, board: Board) -> None:
        """As they were."""
        board.restore(self._all, self._placed)
        for one, noted, phase in self._phases:
            one.noted, one.phase = noted, phase
        self._rules.gangs.found, self._rules.constrained.unexamined = dict(self._gangs), set(self._unexamined)


def begin_again(board: Board, levels: Levels, rules: Rules) -> None:
    """As if none of them had been placed."""
    board.clear(chain.from_iterable(levels))
    rules.gangs.found.clear()
    rules.constrained.begin()


def _place_one_by_one(board: Board, level: Sequence[Assignment], rules: Rules) -> None:
    """Each pod has the first place that there is for it."""
    keep_reservations(board, level, rules.reservations)
    waiting = (one for one in level if not one.placed and not (one.tried and one.constrained))
    for one in sorted(waiting, key=lambda one: (one.tried, board.hardness(one))):
        if not board.place(one, reach=Reach.UNDER_WAY if one.tried else Reach.EXISTING) and one.tried:
            board.place(one)
    tried = [one for one in level if one.tried]
    rules.constrained.place(one for one in tried if one.constrained and not one.placed)
    _settle(board, tried, rules)


def _place(board: Board, levels: Levels, rules: Rules, most: int) -> int:
    """Place these levels in one go, the higher ones admitted first; returns how many are placed, at most `most`."""
    members = list(chain.from_iterable(levels))
    tried = [one for one in members if one.tried]
    keep_reservations(board, members, rules.reservations)
    rules.report(PlannerPhase.RESERVATIONS)
    for one in members:
        if not one.placed and not one.tried:
            board.place(one, reach=Reach.EXISTING)
    rules.report(PlannerPhase.UNTRIED)
    waiting = [one for one in tried if not one.placed]
    constrained = [one for one in waiting if one.constrained]
    first = _first(board, waiting)
    if (constrained or first) and upper_bound(board, waiting, rules.remarks) == len(waiting):
        # The pods that may go to any node of their groups take what these leave.
        board.demand(_resources(waiting))
        for one in sorted(first, key=board.hardness):
            board.place(one)
        _place_constrained(board, sorted([one for one in constrained if not one.placed], key=board.hardness), rules)
    unknown = {one.pod.uid for one in constrained if not one.placed and rules.constrained.unknown(one)}
    known = [[one for one in level if one.tried and not one.placed and one.pod.uid not in unknown] for level in levels]
    _place_at_once(board, known, rules, most - sum(one.placed for one in tried))
    _place_constrained(board, [one for one in constrained if not one.placed], rules)
    if rules.gangs.needs:
        _settle(board, tried, rules)
        rules.report(PlannerPhase.GANGS)
    return sum(one.placed for one in tried)


def _first(board: Board, assignments: Sequence[Assignment]) -> list[Assignment]:
    """Those that were left out before, or may use one node alone where others have a choice."""
    choice = not all(len(one.groups) == 1 for one in assignments)

    def has_none(one: Assignment) -> bool:
        return choice and len(one.groups) == 1 and len(board.groups[one.groups[0]].nodes) == 1

    return [one for one in assignments if has_none(one) or (one.left_out and not one.constrained)]


def _place_constrained(board: Board, assignments: Sequence[Assignment], rules: Rules) -> None:
    if assignments:
        board.demand(_resources(assignments))
        rules.constrained.place(assignments)
    rules.report(PlannerPhase.CONSTRAINED)


def _place_together(board: Board, levels: Levels, rules: Rules) -> None:
    """Place again in one go all that can move, where levels below the highest miss pods; what serves more stays."""
    movable = [[one for one in level if rules.moves(one)] for level in levels]
    if board.effort.hurries() or all(one.placed for level in movable[1:] for one in level):
        return
    before = Found(movable, rules)
    board.clear(chain.from_iterable(movable))
    others = sum(one.placed for level in levels for one in level if one.tried)
    _place_at_once(board, movable, rules, rules.most - others)
    if Found(movable, rules).served <= before.served:
        before.put_back(board)
    rules.report(PlannerPhase.TOGETHER)


def _place_at_once(board: Board, levels: Levels, rules: Rules, most: int) -> None:
    """At most `most` of these can find a place."""
    for number, level in enumerate(levels):
        for one in level:
            one.rank = number
    members = list(chain.from_iterable(levels))
    cost = place_once(board, members, rules)
    rules.report(PlannerPhase.GREEDY)
    _improve(board, levels, cost, rules, most - sum(one.placed for one in members))
    rules.report(PlannerPhase.EXCHANGED)


def _improve(board: Board, levels: Levels, cost: Cost, rules: Rules, most: int) -> None:
    """Serve up to `most` more of them. Gangs move whole or not at all, and constrained pods stay, so not here."""
    singles = [[one for one in level if moves_alone(one)] for level in levels]
    left = most
    for number in range(_MORE_ROUNDS):
        before = left
        full = all(one.placed for level in levels[:-1] for one in level)
        if number >= _ROUNDS and (full or not board.effort.spare()):
            break
        if left > 0 and not board.effort.hurries():
            left -= change_places(board, list(chain.from_iterable(singles)), cost, left)
        if board.effort.spare():  # its looks would cost what comes after it
            left -= give_way(board, levels, cost, rules.improve_steps)
        for level in singles if not board.effort.hurries() else ():
            left -= exchange(board, level, cost, rules.improve_steps, left)
        if left == before:
            break


def _resources(assignments: Iterable[Assignment]) -> set[str]:
    return {resource for one in assignments for resource, _ in one.wants}


def place_once(board: Board, assignments: Sequence[Assignment], rules: Rules) -> Cost:
    """Returns what one of them costs, compared with the others.

    Of those that are admitted, pods that may go to any node of their groups take what constrained ones leave.
    """
    resources = _resources(assignments)
    board.effort.looks += len(board.nodes) + _GROUP * len(board.groups)
    board.demand(resources)
    capacities = [measure(board, group, resources) for group in range(len(board.groups))]

    costs: dict[int, float] = {}
    kinds = [(one.cpu, one.memory, *one.gpu.items()) for one in capacities]  # thousands of groups are alike

    def cost(one: Assignment) -> float:
        """Its dominant share of a whole group, in the group where that is least."""
        if one.shape not in costs:
            unlike = {kinds[group]: capacities[group] for group in one.groups}.values()
            costs[one.shape] = min((max(capacity.shares(one.demand)) for capacity in unlike), default=0.0)
        return costs[one.shape]

    assigned = split(assignments, capacities, cost, board.effort.hurries)
    admitted = [admit(board, group, members, capacities[group]) for group, members in enumerate(assigned)]
    make_room(board, admitted, cost)
    members = [one for found in admitted for one in found.members]
    _place_constrained(board, sorted((one for one in members if one.constrained), key=board.hardness), rules)
    for group, found in enumerate(admitted):
        members = sorted((one for one in found.members if not one.constrained), key=board.hardness)
        _place_new(board, group, use_ready(board, group, members))
    rest = [one for one in assignments if not one.placed and not one.constrained]
    _backfill(board, sorted(rest, key=lambda one: (one.rank, cost(one), one.pod.created, one.pod.key)))
    for one in assignments:
        one.missed += not one.placed
    return cost


def _settle(board: Board, assignments: Sequence[Assignment], rules: Rules) -> None:
    """Complete gangs or take them off, and give to others what that leaves."""
    rules.gangs.settle(board, assignments)
    left = [one for one in assignments if not (one.placed or one.pod.gang)]
    for one in sorted(left, key=lambda one: (one.needs.cpu_milli, one.pod.created, one.pod.key)):
        if not one.constrained:
            board.place(one)
    rules.constrained.place(one for one in left if one.constrained)


def _place_new(board: Board, group: int, assignments: Sequence[Assignment]) -> None:
    """Place in this order."""
    last = {resource: number for number, one in enumerate(assignments) for resource, _ in one.wants}
    board.demand(last, group)
    for number, assignment in enumerate(assignments):
        board.place(assignment, (group,))
        for resource in [resource for resource, _ in assignment.wants if last[resource] == number]:
            del last[resource]
            board.demand(last, group)


def _backfill(board: Board, assignments: Sequence[Assignment]) -> None:
    """Give them what is ready or under way, then what fits."""
    board.demand(())
    for reach in (Reach.UNDER_WAY, Reach.NEW):
        for assignment in assignments:
            if not assignment.placed:
                board.place(assignment, reach=reach)
