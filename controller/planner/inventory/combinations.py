"""Limits how many unlike combinations of partitions one pass examines: for each of them many nodes are looked at.

Takes the demands and how many nodes there are; returns the pods that have no turn in this pass, by uid. One partition
is no combination: the board keeps its places in order. Only a user who makes thousands of unlike pods meets the limit.
Namespaces take turns, in each the highest priority first, then pods that had none in the pass before; a gang has its
turn as a whole. What a pod requests that has a place by now is always examined: a pass would else undo what the last
one planned. A pod without a turn that the scheduler has not tried yet reserves nothing, since where it may go is not
known: it is bound or tried within seconds, and the next pass plans again what it has taken. Counts and never times, so
that the same snapshot leaves out the same pods.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from controller.model.demand import Demand, Wants

LOOKS = 250_000
"""Combinations times nodes: on two cores some ten seconds."""
_LEAST = 100
"""Combinations that are examined in any case: most clusters have a few dozen."""


def most_examined(nodes: int) -> int:
    """Unlike combinations in one pass, in a cluster of so many nodes."""
    return max(_LEAST, LOOKS // max(1, nodes))


def without_turn(
    demands: Iterable[Demand], nodes: int, first: Sequence[str] = (), kept: Collection[str] = ()
) -> frozenset[str]:
    """`demands` in queue order; `first`: uids of pods without a turn in the pass before, `kept`: with a place."""
    several = [demand for demand in demands if demand.single is None]
    most = most_examined(nodes)
    if len({demand.wants for demand in several}) <= most:
        return frozenset()
    waits = defaultdict(lambda: len(first), {uid: number for number, uid in enumerate(first)})
    own = defaultdict[str, dict[Hashable, int]](dict)
    """By namespace, its units in the order of their turns."""
    best: dict[Hashable, tuple[int, int, Wants]] = {}
    members = defaultdict[Hashable, set[Wants]](set)
    for demand in sorted(several, key=lambda one: (-one.pod.priority, not one.tried, waits[one.pod.uid])):
        unit = _unit(demand)
        numbers = own[demand.pod.namespace]
        turn = (numbers.setdefault(unit, len(numbers)), waits[demand.pod.uid], demand.wants)
        best[unit] = min(best.get(unit, turn), turn)
        members[unit].add(demand.wants)
    examined = set[Wants]().union(*(members[_unit(demand)] for demand in several if demand.pod.uid in kept))
    left = most
    for unit in sorted(best, key=lambda unit: best[unit]):
        more = members[unit] - examined
        if len(more) > most:
            continue  # a gang that has more of them than a pass may examine
        if len(more) > left:
            break
        examined |= more
        left -= len(more)
    return frozenset(demand.pod.uid for demand in several if demand.wants not in examined)


def _unit(demand: Demand) -> Hashable:
    pod = demand.pod
    return (pod.namespace, pod.gang) if pod.gang else demand.wants
