"""A State with its window on one clock: fed raw objects as the watches would, and asked what woke it.

In: raw API objects. Out: the State itself, and the triggers since the last look. No API server, no thread.
"""

from dataclasses import dataclass, field

from controller.api.nodes import read_node
from controller.api.plans import read_plan
from controller.api.pods import read_pod
from controller.cache.batcher import Batcher
from controller.cache.state import State
from controller.model.views import PlannerOptions
from tests.builders.objects import Json, confirmed, item, node, plan
from tests.clock import Clock


@dataclass
class Bench:
    """`triggers` tells what is worth a pass since the last look."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.window: Batcher[str] = Batcher(idle_seconds=10, timeout_seconds=60, clock=self.clock)
        self.state = State(window=self.window, options=PlannerOptions(), clock=self.clock)

    def pod(self, raw: Json) -> None:
        self.state.observe_pod((raw["metadata"]["namespace"], raw["metadata"]["name"]), read_pod(raw))

    def gone(self, name: str) -> None:
        self.state.observe_pod(("default", name), None)

    def node(self, raw: Json) -> None:
        self.state.observe_node(raw["metadata"]["name"], read_node(raw))

    def plan(self, raw: Json) -> None:
        self.state.observe_plan(raw["metadata"]["name"], read_plan(raw))

    def beat(self, name: str = "n1") -> None:
        self.state.observe_heartbeat(name, f"at {self.clock.now}")

    def triggers(self) -> tuple[str, ...]:
        return self.window.take()


READY = plan(planned=[item(0, 3)]) | {"status": confirmed(plan(planned=[item(0, 3)]))}


def settled(bench: Bench) -> None:
    """One node, its plan confirmed, its agent alive, and nothing to do."""
    bench.node(node())
    bench.beat()
    bench.plan(READY)
    bench.triggers()
