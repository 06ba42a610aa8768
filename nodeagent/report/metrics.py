"""Counts for Prometheus: the agent's series, all beginning with `gpuplan_agent_`.

Takes outcomes and durations, and keeps numbers in a registry of this agent's own, so that several agents fit in one
process. Labels must stay few and bounded: node, profile or size, state, kind of error.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nodeagent.report.outcome import GpuOutcome
from nodeagent.steps.actuator import Actuated

APPLY_BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
PASS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class AgentMetrics:
    def __init__(self, node_name: str, version: str) -> None:
        self.registry = CollectorRegistry()
        self._node = node_name
        self._partitions = self._gauge("partitions", "Partitions that exist on the node.", "node", "profile", "state")
        self._gpus = self._gauge("gpus", "GPUs of the node by the state of their plan.", "node", "state")
        self._generation = self._gauge(
            "confirmed_generation", "Generation of the plan that was confirmed last.", "node"
        )
        self._passes = Histogram(
            "gpuplan_agent_pass_duration_seconds", "Duration of one pass.", buckets=PASS_BUCKETS, registry=self.registry
        )
        self._applied = Histogram(
            "gpuplan_agent_apply_duration_seconds",
            "From a GPU's new item to its being confirmed.",
            buckets=APPLY_BUCKETS,
            registry=self.registry,
        )
        self._steps = self._counter("steps", "MIG instances created and destroyed.", "action")
        self._errors = self._counter("errors", "Errors by what failed: driver call, API write, pass.", "kind")
        self._drifted = self._counter(
            "drift_repaired", "MIG instances changed outside gpuplan on a GPU of the plan, and put right.", "action"
        )
        self._refused = self._counter("refused_pods", "Pods that the kubelet refused for lack of a device.")
        self._gauge("info", "Version of the agent.", "node", "version").labels(node_name, version).set(1)

    def watch_heartbeat(self, age_seconds: Callable[[], float]) -> None:
        """The age of the last heartbeat that the API accepted, read at each scrape."""
        self._gauge("heartbeat_age_seconds", "Since the last heartbeat that the API accepted.").set_function(
            age_seconds
        )

    def watch_status(self, failures: Callable[[], float]) -> None:
        """Status writes that failed since the last one that the API accepted, read at each scrape."""
        text = (
            "Status writes that failed since the last one that the API accepted; from 3 on, while heartbeats get "
            "through, the plan shows CannotReport."
        )
        self._gauge("status_write_failures", text).set_function(failures)

    def pass_took(self, seconds: float) -> None:
        """One pass came to its end."""
        self._passes.observe(seconds)

    def found(self, outcomes: Iterable[GpuOutcome], confirmed_generation: int | None) -> None:
        """What one pass saw."""
        found = tuple(outcomes)
        states = Tally(str(outcome.state) for outcome in found)
        entries = [entry for outcome in found for entry in outcome.partitions]
        partitions = Tally((entry.partition.label, str(entry.state)) for entry in entries)
        self._gpus.clear()
        self._partitions.clear()
        for state, count in sorted(states.items()):
            self._gpus.labels(self._node, state).set(count)
        for (label, state), count in sorted(partitions.items()):
            self._partitions.labels(self._node, label, state).set(count)
        if confirmed_generation is not None:
            self._generation.labels(self._node).set(confirmed_generation)

    def actuated(self, done: Actuated) -> None:
        """What the actuator did on one GPU."""
        self._steps.labels("create").inc(len(done.created))
        self._steps.labels("destroy").inc(len(done.destroyed))
        if done.error is not None and done.fresh:
            self.error(f"driver-{done.error.kind}")

    def drift_repaired(self, created: int, destroyed: int) -> None:
        """What was changed outside gpuplan is undone."""
        self._drifted.labels("create").inc(created)
        self._drifted.labels("destroy").inc(destroyed)

    def confirmed(self, seconds: float) -> None:
        """A GPU became as its item desires it."""
        self._applied.observe(seconds)

    def error(self, kind: str) -> None:
        self._errors.labels(kind).inc()

    def refused_pod(self) -> None:
        self._refused.inc()

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"gpuplan_agent_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gpuplan_agent_{name}", text, labels, registry=self.registry)
