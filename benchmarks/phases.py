"""Which phase of a planning pass placed which pods, and how long each took.

`Phases()` is an `on_phase` of `plan`: give it to one pass, then read `placed` and `seconds`. A pod counts for the phase
after which it had its final node. Measures CPU time of the calling thread; changes nothing in the pass.
"""

import time
from collections import Counter
from collections.abc import Mapping


class Phases:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._by: dict[str, tuple[str, str]] = {}
        """Node and phase by pod."""
        self._since = time.thread_time()

    def __call__(self, phase: str, nodes: Mapping[str, str]) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.thread_time() - self._since
        self._by = {
            uid: known if (known := self._by.get(uid, ("", "")))[0] == node else (node, phase)
            for uid, node in nodes.items()
        }
        self._since = time.thread_time()

    @property
    def placed(self) -> Counter[str]:
        return Counter(phase for _, phase in self._by.values())
