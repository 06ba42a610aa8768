"""Limits how many unlike combinations of partitions one pass examines: for each of them many nodes are looked at.

Takes the demands and how many nodes there are; returns the pods that have no turn in this pass, by uid. One partition
is no combination: the board keeps its places in order. Only a user who makes thousands of unlike pods meets the limit;
the namespaces take turns, and pods that had none in the pass before come first in theirs, so that each has one in time.
That of a pod which has a place by now is always examined: a pass would else undo what the last one planned.
Counts and never times, so that the same snapshot leaves out the same pods.
"""

from collections.abc import Collection, Iterable, Sequence

from controller.model.demand import Demand, Wants

LOOKS = 500_000
"""Combinations times nodes: on two cores some ten seconds."""
_LEAST = 100
"""Combinations that are examined in any case: most clusters have a few dozen."""


def without_turn(
    demands: Iterable[Demand], nodes: int, first: Sequence[str] = (), kept: Collection[str] = ()
) -> frozenset[str]:
    """`demands` in queue order; `first`: uids of pods without a turn in the pass before, `kept`: with a place."""
    several = [demand for demand in demands if demand.single is None]
    most = max(_LEAST, LOOKS // max(1, nodes))
    if len({demand.wants for demand in several}) <= most:
        return frozenset()
    turns = {uid: number for number, uid in enumerate(first)}
    own: dict[str, dict[Wants, int]] = {}
    """By namespace, its combinations in the order of their turns."""
    best: dict[Wants, tuple[int, int]] = {}
    for demand in sorted(several, key=lambda one: (-one.pod.priority, turns.get(one.pod.uid, len(turns)))):
        numbers = own.setdefault(demand.pod.namespace, {})
        turn = (-demand.pod.priority, numbers.setdefault(demand.wants, len(numbers)))
        best[demand.wants] = min(best.get(demand.wants, turn), turn)
    examined = {demand.wants for demand in several if demand.pod.uid in kept}
    examined.update(sorted(best.keys() - examined, key=lambda wants: (*best[wants], wants))[:most])
    return frozenset(demand.pod.uid for demand in several if demand.wants not in examined)
