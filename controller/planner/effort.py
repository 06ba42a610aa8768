"""Limits the work of one pass, counted in pods and terms that are looked at, and shares it among namespaces.

A namespace may use its share at any time, and what others leave once none of their pods waits for its turn. Work is
counted and not timed, so that the same snapshot has the same plan; the clock is the last resort, and takes away what is
left. Starting a pass again does not renew it. Never decides what is placed.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from controller.model.results import CutShort
from controller.model.views import PodView

WORK = 2_000_000
"""Of one pass. On two cores that is less than 20 seconds."""
FILTERS = 20
"""What it takes to try one pod on one node, where a visit of a pod or a term takes 1."""
LOOKS = 4_000_000
"""For places: after so many, a pass does nothing more that only improves its plan. Benchmarks take a twentieth."""
_UNHURRIED = 8
"""A pass that begins again more often improves nothing any more."""
OWN_VISITS = 200_000
"""A pod that must be compared with more pods and terms than this is not examined."""


def never() -> bool:
    """No clock."""
    return False


class Effort:
    """Made once per pass, whatever has to be tried again in it."""

    def __init__(self, work: int = WORK, out_of_time: Callable[[], bool] = never) -> None:
        self._left = self.most = work
        self._out_of_time = out_of_time
        self._later = self._kept = self.looks = 0
        """For what comes after; for namespaces that wait, of their shares; at nodes and GPUs, for whichever pods."""
        self._shares: dict[str, int] = {}
        self._spent: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._by_pod: Counter[str] = Counter()
        self.cut = self._late = False
        """Some pod is not examined at all; no time is left."""
        self._tries = 0

    def start(self, size: int) -> None:
        """The pass begins, or begins again: with so many pods."""
        self._tries += 1
        self._left -= size if self._tries > 1 else 0

    def begin(self, waiting: Mapping[str, int], *, half: bool = False, first: str = "") -> None:
        """So many pods of each namespace wait for their turn. `half`: the rest is for what comes after it.

        `first`: it has waited longest, and has as much again as all have together: one pod may need more than a share.
        """
        self._waiting = Counter(waiting)
        self._spent.clear()
        self._later = max(0, self._left) // 2 if half else 0
        left = max(0, self._left - self._later)
        more = left // 2 if first in self._waiting else 0
        share = (left - more) // max(1, len(self._waiting))
        self._shares = {name: share + (more if name == first else 0) for name in self._waiting}
        self._kept = sum(map(self._unused, self._waiting))

    def keep_no_shares(self) -> None:
        """What is left is for who comes first."""
        self._waiting.clear()
        self._kept = 0

    def done(self, namespace: str) -> None:
        """One of its pods has had its turn."""
        unused = self._unused(namespace)
        self._waiting[namespace] -= 1
        self._kept -= unused - self._unused(namespace)

    def may(self, namespace: str) -> bool:
        """Whether a pod of the namespace may be examined further."""
        return not self.over() and self.free(namespace) > 0

    def free(self, namespace: str) -> int:
        """So much is left for it, whatever the clock says: the rest of its share, or what is kept for no namespace."""
        left = self._left - self._later
        return max(0, min(left, max(self._unused(namespace), left - self._kept)))

    def spend(self, pod: PodView, work: int) -> None:
        unused = self._unused(pod.namespace)
        self._spent[pod.namespace] += work
        self._kept -= unused - self._unused(pod.namespace)
        self._left -= work
        self._by_pod[f"{pod.namespace}/{pod.name}"] += work

    def over(self) -> bool:
        """Nothing is left, or no time."""
        self._late = self._late or self._out_of_time()
        return self._late or self._left <= self._later

    def hurries(self) -> bool:
        """What only improves a plan is left out: time or looks are over, or the pass had to begin again too often."""
        return (self.over() and self._late) or self._tries > _UNHURRIED or self.looks > LOOKS

    def spare(self) -> bool:
        """Most of it is left: what is done may be tried once more."""
        return not self.hurries() and self._left > self.most * 3 // 4 and self.looks < LOOKS // 4

    @property
    def cut_short(self) -> CutShort | None:
        """What ended the pass before all pods were examined."""
        if self._late:
            return CutShort.TIME
        return CutShort.WORK if self.cut or self._left <= 0 or self.looks > LOOKS or self._tries > _UNHURRIED else None

    def remarks(self) -> tuple[str, ...]:
        """For the log: that the pass was cut short, and what took most."""
        if self.cut_short is None:
            return ()
        most = ", ".join(f"{name} ({work})" for name, work in self._by_pod.most_common(3) if work > FILTERS)
        why = "had no time left" if self._late else "used up its work"
        return (f"The pass {why} before every pod was examined everywhere. Most work took: {most or 'no single pod'}.",)

    def _unused(self, namespace: str) -> int:
        return max(0, self._shares[namespace] - self._spent[namespace]) if self._waiting[namespace] > 0 else 0
