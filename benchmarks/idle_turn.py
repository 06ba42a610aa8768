"""What a turn of the controller costs when nothing happened: `python -m benchmarks.idle_turn --nodes N --pods P`.

Builds a State with N nodes of 8 GPUs whose plans need no change, and P pending pods that are nominated; with
`--slices S` NVIDIA's DRA driver lists the GPUs of each node in S ResourceSlices. Prints
milliseconds of each step of a turn, the least of several rounds: when every name is judged, as before there was an
agenda, and when only what changed or is due is judged. Sends nothing.
"""

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client import CollectorRegistry

from benchmarks.instances import MIXES, instance
from controller.actions.agent_liveness import AgentLiveness
from controller.actions.environment import Environment
from controller.actions.metrics import Metrics
from controller.actions.node_labels import NodeLabels
from controller.actions.nominations import Nominator
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.actions.pod_latency import PodLatency
from controller.actions.reporter import Reporter
from controller.api.plans import ConditionReading, GpuReading, PlanReading, Stage
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache, Deadlines
from controller.cache.informers import OF_DRA, Kind, SchedulingInformers
from controller.cache.state import State
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PlanView
from crds.v1alpha1.names import Reason

ROUNDS = 5
_SILENT_SECONDS = 86_000.0
"""No agent sends heartbeats here."""


@dataclass(frozen=True)
class Turn:
    """The steps of a turn that poll."""

    state: State
    agent_liveness: AgentLiveness
    plan_lifecycle: PlanLifecycle
    node_labels: NodeLabels
    nominator: Nominator
    pod_latency: PodLatency
    reporter: Reporter

    def steps(self) -> dict[str, Callable[[], object]]:
        return {
            "state": self.state.tick,
            "lifecycle": self.plan_lifecycle.run,
            "agents": self.agent_liveness.run,
            "labels": self.node_labels.run,
            "nominator": self.nominator.run,
            "ways": self.pod_latency.follow,
            "report": self.reporter.follow,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--slices", type=int, default=0)
    arguments_read = parser.parse_args(arguments)
    cluster = instance(nodes=arguments_read.nodes, gpus=8, pods=arguments_read.pods, seed=1, mix=MIXES["plain"])
    turn = filled(cluster, arguments_read.slices)
    every = {name: least_ms(step, lambda: touch_all(turn)) for name, step in turn.steps().items()}
    for step in turn.steps().values():
        step()
    due = {name: least_ms(step, lambda: None) for name, step in turn.steps().items()}
    print(f"{arguments_read.nodes} nodes, {arguments_read.pods} pending pods; ms per turn")
    print(f"{'step':12}{'every name':>12}{'what is due':>14}")
    for name, milliseconds in every.items():
        print(f"{name:12}{milliseconds:12.2f}{due[name]:14.3f}")
    print(f"{'sum':12}{sum(every.values()):12.2f}{sum(due.values()):14.3f}")


def filled(cluster: Snapshot, slices: int = 0) -> Turn:
    """As the watches would leave it, with so many ResourceSlices of each node."""
    clock = time.monotonic
    window: Batcher[str] = Batcher(idle_seconds=10, timeout_seconds=60, clock=clock)
    api: Any = _NoApi()
    informers = SchedulingInformers(api, {}, awake=threading.Event())
    for kind in OF_DRA:
        informers._watches[kind] = watch = informers._watch(kind)
        for node in cluster.nodes if kind is Kind.RESOURCE_SLICES else ():
            for number in range(slices):
                watch._put(("", f"{node.name}-{number}"), node.name)
        watch.synced.set()
    deadlines = Deadlines(agent_silent_seconds=_SILENT_SECONDS)
    store = ClusterCache(options=PlannerOptions(), clock=clock, deadlines=deadlines, informers=informers)
    state = State(store, window=window)
    metrics = Metrics(CollectorRegistry())
    environment = Environment(api=api, state=state, metrics=metrics, leading=lambda: True, clock=clock)
    turn = Turn(
        state=state,
        agent_liveness=AgentLiveness(
            environment, agent_silent_seconds=_SILENT_SECONDS, taint_removal_seconds=_SILENT_SECONDS
        ),
        plan_lifecycle=PlanLifecycle(
            environment, Writer(environment), namespace="n", plan_return_seconds=60, orphan_plan_seconds=3600
        ),
        node_labels=NodeLabels(environment, manage_operator=False),
        nominator=Nominator(environment, enabled=True),
        pod_latency=PodLatency(environment),
        reporter=Reporter(environment, api),
    )
    for node in cluster.nodes:
        state.observe_node(node.name, node)
    for view in cluster.plans:
        state.observe_heartbeat(view.name, "first")
        state.observe_heartbeat(view.name, "second")
        state.observe_plan(view.name, replace(reading_of(view), served_by_dra=LISTED if slices else None))
    names = [node.name for node in cluster.nodes]
    for pod in cluster.pods:
        state.observe_pod(pod.key, pod)
    reservations = {pod.uid: names[number % len(names)] for number, pod in enumerate(cluster.pending)}
    for pod in cluster.pending:
        state.observe_pod(pod.key, replace(pod, nominated_node=reservations[pod.uid], nomination_ours=True))
    state.reserve(reservations)
    return turn


LISTED = ConditionReading(status="True", reason=Reason.FOREIGN_OWNER.value, last_transition_time="")


def reading_of(view: PlanView) -> PlanReading:
    """A plan whose agent is alive, with nothing left to write."""
    alive, ready = (
        ConditionReading(status="True", reason=reason.value, last_transition_time="")
        for reason in (Reason.HEARTBEAT, Reason.CONFIRMED)
    )
    gpus = tuple(GpuReading(view=gpu, item_hash="x", stage=Stage.SETTLED) for gpu in view.gpus)
    return PlanReading(
        name=view.name,
        uid=view.uid,
        version="1",
        generation=1,
        deleting=False,
        mode=view.mode,
        paused=view.paused,
        authored=False,
        pinned=(),
        planned=view.planned,
        stale_items=(),
        planned_json="[]",
        observed_generation=1,
        node_uid=view.node_uid,
        handed_back=False,
        relabels=view.relabels,
        gpus=gpus,
        alive=alive,
        ready=ready,
    )


def touch_all(turn: Turn) -> None:
    """Have every name judged in the next turn."""
    for name in turn.state.cluster.names():
        turn.state._notify(name)


def least_ms(step: Callable[[], object], before: Callable[[], None]) -> float:
    """The least of several rounds: other processes only ever add."""
    found = []
    for _ in range(ROUNDS):
        before()
        began = time.perf_counter()
        step()
        found.append(1000 * (time.perf_counter() - began))
    return min(found)


class _NoApi:
    """Nothing is due, so that nothing may be sent."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: an idle turn sends nothing")


if __name__ == "__main__":
    main()
