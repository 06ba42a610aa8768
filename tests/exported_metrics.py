"""What controller and agent export: their registries with every series registered, and the labels of each."""

from prometheus_client import CollectorRegistry

from controller.actions.metrics import ClusterGauges, Metrics
from controller.cache.batcher import Batcher
from controller.cache.state import State
from controller.model.views import PlannerOptions
from nodeagent.report.metrics import AgentMetrics
from tests.clock import Clock


def registries() -> tuple[CollectorRegistry, CollectorRegistry]:
    """The controller's and an agent's."""
    metrics, agent = Metrics(CollectorRegistry()), AgentMetrics("a", "1")
    agent.watch_heartbeat(lambda: 0.0)
    agent.watch_status(lambda: 0.0)
    clock = Clock()
    window: Batcher[str] = Batcher(idle_seconds=1, timeout_seconds=1, clock=clock)
    state = State(window=window, options=PlannerOptions(), clock=clock)
    metrics.registry.register(ClusterGauges(state, window))
    return metrics.registry, agent.registry


def label_names() -> dict[str, set[str]]:
    """By the name of the series, without a counter's `_total`. prometheus_client shows labels of given values only."""
    found: dict[str, set[str]] = {}
    for registry in registries():
        for collector in registry._collector_to_names:
            if isinstance(collector, ClusterGauges):
                found |= {family.name: set(vars(family)["_labelnames"]) for family in collector.collect()}
            else:
                found[vars(collector)["_name"]] = set(vars(collector)["_labelnames"])
    return found
