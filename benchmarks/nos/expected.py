"""How many pods a given set of slices serves at most: nos' expectations are geometries, ours are pods.

Takes what each pod needs and what each node has, returns the largest number of pods that can be served. Exact for the
few pods of a test case; beyond that the pods that need least are counted first. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache

from controller.model.views import PodView

MOST_EXACT = 12

Pool = Mapping[str, int]
"""Slices by resource name."""


def needed(pod: PodView) -> Pool:
    """The slices that a pod requests; none where it requests no GPU."""
    return dict(pod.gpu)


def most_pods(pods: Sequence[Pool], pools: Sequence[Pool]) -> int:
    """A pod's slices come from one node; a pod that requests none is not counted."""
    asking = sorted((pod for pod in pods if pod), key=lambda pod: (sum(pod.values()), sorted(pod.items())))
    names = sorted({name for pod in asking for name in pod})
    wants = [tuple(pod.get(name, 0) for name in names) for pod in asking]
    nodes = tuple(tuple(pool.get(name, 0) for name in names) for pool in pools)
    exact = len(wants) <= MOST_EXACT

    @cache
    def most(position: int, left: tuple[tuple[int, ...], ...]) -> int:
        if position == len(wants):
            return 0
        want = wants[position]
        best = 0
        for node in {has: number for number, has in enumerate(left)}.values():
            after = tuple(has - count for has, count in zip(left[node], want, strict=True))
            if min(after, default=0) >= 0:
                best = max(best, 1 + most(position + 1, (*left[:node], after, *left[node + 1 :])))
                if not exact:
                    return best
        return max(best, most(position + 1, left))

    return most(0, nodes)


def first_matching(possible: Sequence[Sequence[int]]) -> list[int] | None:
    """One place of its own for everyone out of those possible for it, as early as can be; None if there is none."""
    chosen: list[int] = []
    for position, places in enumerate(possible):
        for place in places:
            if place not in chosen and _can_match(possible[position + 1 :], {*chosen, place}):
                chosen.append(place)
                break
        else:
            return None
    return chosen


def _can_match(possible: Sequence[Sequence[int]], taken: Collection[int]) -> bool:
    holder: dict[int, int] = {}

    def seat(who: int, seen: set[int]) -> bool:
        for place in possible[who]:
            if place not in taken and place not in seen:
                seen.add(place)
                if place not in holder or seat(holder[place], seen):
                    holder[place] = who
                    return True
        return False

    return all(seat(who, set()) for who in range(len(possible)))
