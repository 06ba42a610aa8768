"""The controller's part of the crash test: each of its writes is a place, and the lead may move at each.

One node with two GPUs on an API server, and pods that come, run and end, as `tests.controller.chaos` plays them, in one
order and one request at a time. Harmed is a plan that leaves out what its status names as used, and a write of a
controller that does not lead; at the end every pod has run.
"""

import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Self

from kube import concurrency, transport
from kube.errors import Unavailable
from tests.controller.chaos import Life
from tests.controller.cluster import ApiCluster
from tests.controller.late_bench import IDLE_SECONDS, TIMEOUT_SECONDS
from tests.crashes.faults import Fault
from tests.crashes.points import Answer, Kind, NoStrike, Point, Points, Strike
from tests.nodeagent.watched import Killed

STORY = "lead of the controller"
FAULTS = frozenset({Fault.KILL, Fault.TWICE, Fault.OTHERS, Fault.TIMEOUT, Fault.LOST})
"""That the others die is here that one of them leads."""
CONTROLLER = "controller"
STEPS = 7


class LeadLife(Life):
    """One controller at a time leads; the one before may not know yet."""

    def __init__(self, cluster: ApiCluster, strike: Callable[["LeadLife"], Strike]) -> None:
        self.points, self.moved = Points(), False
        self.strike: Strike = NoStrike()
        super().__init__(cluster, seed=1)
        self.strike = strike(self)

    def start(self) -> None:
        super().start()
        self.rng = random.Random(1)
        self.moved = False

    def step(self, number: int) -> None:
        """In the same order each time."""
        self.clock.now += 30
        self.end_pods()
        for _ in range(2 if number < STEPS - 3 else 0):
            self.come()
        self.obey()
        self.schedule()
        self.beat()
        for after in (0.0, IDLE_SECONDS, TIMEOUT_SECONDS):
            self.turn(after)

    def run(self) -> None:
        for number in range(STEPS):
            self.step(number)
        self.finish()

    def turn(self, after: float = 0.0, late: Any = ()) -> None:
        try:
            super().turn(after, late)
        except Killed:
            self.start()
        if self.moved:
            self.start()

    def request(self, own: Callable[..., Any], api: Any, method: str, path: str, **more: Any) -> Any:
        """As `transport.open_response`."""
        if method == "GET" or api is not self.bench.environment.api:
            return own(api, method, path, **more)
        if self.moved:
            self.harmed.append(f"{method} {path} by a controller that does not lead")
        point = Point(len(self.points.reached) + 1, CONTROLLER, Kind.API, f"{method} {path}")
        self.points.reached.append(point)
        answer = self.strike.answer(point)
        if answer is Answer.REFUSED:
            raise Unavailable("no answer from the API server")
        found = own(api, method, path, **more)
        self.strike.happen(point)
        if answer is Answer.LOST:
            transport.read_all(found)
            raise Unavailable("no answer from the API server")
        return found

    # what faults do

    def others_die(self, _process: str) -> None:
        """Another one leads from now on; this one's turn is not over."""
        self.bench.leads, self.moved = False, True

    def kubelet_restarts(self) -> None:
        raise NotImplementedError

    def disk_fills(self) -> None:
        raise NotImplementedError


def live(strike: Callable[[LeadLife], Strike]) -> tuple[tuple[Point, ...], Mapping[str, object]]:
    """Its places and its end; raises where something was harmed."""
    cluster = ApiCluster()
    life = LeadLife(cluster, strike)
    own, pool = transport.open_response, getattr(concurrency, "ThreadPoolExecutor")  # noqa: B009
    setattr(transport, "open_response", lambda *words, **more: life.request(own, *words, **more))  # noqa: B010
    setattr(concurrency, "ThreadPoolExecutor", OneAfterTheOther)  # noqa: B010
    try:
        life.run()
    finally:
        setattr(transport, "open_response", own)  # noqa: B010
        setattr(concurrency, "ThreadPoolExecutor", pool)  # noqa: B010
        cluster.server.stop()
    assert life.harmed == [], life.harmed
    waiting = sorted(one.name for one in life.pods.values() if not one.node)
    return tuple(life.points.reached), {"pods that never ran": waiting}


class OneAfterTheOther:
    """A pool without threads, so that requests come in one order."""

    def __init__(self, **_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, act: Callable[[Any], Any], item: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(act(item))
        except Exception as error:  # noqa: BLE001 - the caller's
            future.set_exception(error)
        return future
