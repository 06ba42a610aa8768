"""A State with its window on one clock: fed raw objects as the watches would, and read for what woke it.

Takes raw API objects; shows the State itself, and the triggers since the last reading. Starts no API server and no
thread.
"""

from dataclasses import dataclass, field

from controller.api.nodes import read_node
from controller.api.plans import read_plan
from controller.api.pods import read_pod
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.cache.informers import FixedInformers
from controller.cache.state import State
from controller.model.scheduling import SchedulingContext
from controller.model.views import PlannerOptions, PodView
from tests.builders.objects import Json, confirmed, item, node, plan
from tests.clock import Clock


class ChangingInformers(FixedInformers):
    """Informers whose context and changes are set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.required: list[str] = []
        self.changes: set[str] = set()

    def require(self, pod: PodView) -> None:
        self.required.append(pod.name)

    def take_changes(self) -> frozenset[str]:
        taken, self.changes = frozenset(self.changes), set()
        return taken

    def map_to_devices(self, *resources: str) -> None:
        """DeviceClasses map these resources from now on."""
        self.set_context(SchedulingContext(dra_resources=frozenset(resources)))

    def set_context(self, context: SchedulingContext) -> None:
        self._context = context
        self.changes.add("objects")


@dataclass
class StateBench:
    """`triggers` returns what is worth a pass since the last reading."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.window: Batcher[str] = Batcher(idle_seconds=10, timeout_seconds=60, clock=self.clock)
        self.informers = ChangingInformers()
        self.state = State(
            ClusterCache(options=PlannerOptions(), clock=self.clock, informers=self.informers), window=self.window
        )

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


def settled(bench: StateBench) -> None:
    """One node, its plan confirmed, its agent alive, and nothing to do."""
    bench.node(node())
    bench.beat()
    bench.plan(READY)
    bench.triggers()
