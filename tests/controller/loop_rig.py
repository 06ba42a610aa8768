"""A loop on a bench, with a planner that the test plays and a clock that only the test moves."""

from collections.abc import Callable

from controller.actions.agent_liveness import AgentLiveness
from controller.actions.node_labels import NodeLabels
from controller.actions.nominations import Nominator
from controller.actions.nvidia_configs import NvidiaConfigs
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.actions.pod_latency import PodLatency
from controller.actions.reporter import Reporter
from controller.config.settings import NvidiaConfigMap
from controller.lifetime import Lifetime
from controller.loop import Loop, Parts
from controller.model.results import NodeChange, Placed, PlanningResult, Supply
from controller.model.snapshot import Snapshot
from crds.v1alpha1.names import NAMESPACE
from tests.builders.objects import Json
from tests.controller.actions.recorder import Recorder
from tests.controller.actions.writing import planned
from tests.controller.cluster import Bench


class LoopRig:
    """A loop whose watches are `load`, and whose planner returns what `answer` makes of the snapshot."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.snapshots: list[Snapshot] = []
        self.answer: Callable[[Snapshot], PlanningResult] = lambda _: PlanningResult()
        self.synced = True
        self.recorder = Recorder()
        environment = bench.environment
        writer = Writer(environment)
        parts = Parts(
            environment=environment,
            window=bench.window,
            planner=self.plan,
            writer=writer,
            plan_lifecycle=PlanLifecycle(
                environment, writer, namespace=NAMESPACE, plan_return_seconds=60, orphan_plan_seconds=3600
            ),
            agent_liveness=AgentLiveness(environment, agent_silent_seconds=60, taint_removal_seconds=180),
            node_labels=NodeLabels(environment, manage_operator=False),
            nvidia_configs=NvidiaConfigs(environment, NvidiaConfigMap()),
            reporter=Reporter(environment, self.recorder),
            nominator=Nominator(environment, enabled=True),
            pod_latency=PodLatency(environment),
        )
        self.lifetime = Lifetime()
        self.loop = Loop(parts, lifetime=self.lifetime, synced=lambda: self.synced)

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        self.snapshots.append(snapshot)
        return self.answer(snapshot)

    def turn(self, *, after: float = 0.0) -> float:
        """The watches bring what is new, time passes, one turn."""
        self.bench.load()
        self.bench.clock.now += after
        return self.loop.turn()

    def idle(self) -> bool:
        return self.loop.idle

    def settle(self) -> None:
        """Through the first pass."""
        self.turn()
        self.turn(after=10)
        self.snapshots.clear()


def everything_on_n1(*items: Json) -> Callable[[Snapshot], PlanningResult]:
    def answer(snapshot: Snapshot) -> PlanningResult:
        placed = tuple(Placed(uid=p.uid, key=p.key, node="n1", supply=Supply.NEW) for p in snapshot.pending)
        change = NodeChange(node="n1", gpus=tuple(planned(raw) for raw in items), changed=(0,))
        return PlanningResult(placed=placed, node_changes=(change,) if placed else ())

    return answer
