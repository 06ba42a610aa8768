"""How long each phase of a planning pass took.

`Phases()` is an `on_phase` of `plan`: give it to one pass, then read `seconds`. Measures CPU time of the calling
thread; changes nothing in the pass.
"""

import time


class Phases:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.thread_time()

    def __call__(self, phase: str) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.thread_time() - self._since
        self._since = time.thread_time()
