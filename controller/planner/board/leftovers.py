"""What some nodes have left, sorted by resource: tells at once that none of them has all that a pod needs.

Takes the nodes' free capacity, which it reads when it is first asked. Nodes only lose room until something is taken off
the board, so that "none has it" stays true until then. Never looks at partitions.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from operator import or_

from controller.model.capacity import Capacity


class Leftovers:
    def __init__(self, nodes: Callable[[], Iterable[Capacity]]) -> None:
        self._nodes = cache(nodes)
        self._sorted: dict[str, tuple[list[int], list[int]]] = {}
        """By resource: what nodes have, negated and least first; and which have as much or more, a bit for each."""

    def may_hold(self, needs: Capacity) -> bool:
        """False: none of them has all of it."""
        able = -1
        for name, amount in (*((name, needs[name]) for name in ("cpu", "memory", "pods")), *needs.other):
            if amount > 0:
                amounts, nodes = self._sorted.get(name) or self._sort(name)
                able &= nodes[bisect_right(amounts, -amount)]
        return able != 0

    def _sort(self, name: str) -> tuple[list[int], list[int]]:
        found = sorted((-free[name], 1 << number) for number, free in enumerate(self._nodes()))
        nodes = accumulate((bit for _, bit in found), or_, initial=0)
        self._sorted[name] = [amount for amount, _ in found], list(nodes)
        return self._sorted[name]
