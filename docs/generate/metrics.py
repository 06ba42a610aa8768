"""docs/metrics.md, made from the registries of controller and agent: every series with type, labels, unit and help.

`registries` builds both as the programs do, without an API server or a driver; the page and the tests of alerts and
dashboards read names and labels from them. A label without a meaning here ends the run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from controller.actions.cluster_gauges import UNDECIDED, ClusterGauges
from controller.actions.metrics import PLACED, ErrorStage, Metrics
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.model.results import Supply
from controller.model.views import PlannerOptions
from crds.v1alpha1.names import Condition, GpuState, PartitionState
from docs.generate.tables import table
from kube import clients
from kube.events import EventRecorder
from kube.telemetry import PlumbingGauges, RequestMetrics, export_build
from nodeagent.report.metrics import AgentMetrics

PARTS = Path(__file__).parent / "metrics_page"
"""The page's text around the tables."""

LABELS = {
    "GPU_I_ID": "id of the GPU instance on its GPU, empty without MIG",
    "GPU_I_PROFILE": "MIG profile, empty without MIG",
    "UUID": "of the GPU",
    "action": "create, destroy",
    "by": "paused, Manual",
    "code": "HTTP status, or none",
    "condition": ", ".join(Condition),
    "gpu": "index of the GPU on its node",
    "kind": "of object (node, plan, pod), or of error: driver-…, status, pass",
    "method": "of HTTP",
    "model": "name of the GPU model, as NVML has it",
    "modelName": "name of the GPU model, as NVML has it",
    "namespace": "of the pod",
    "node": "name of the Node",
    "path": "of the API, as it is watched",
    "phase": "of a pod's way, of a GPU's change, or of the planner",
    "pod": "name of the pod",
    "profile": "MIG profile, or size of an MPS slice",
    "program": "controller, agent",
    "python": "version",
    "reason": f"as in status, Events and `/decisions`; of pending pods also {PLACED} and {UNDECIDED}",
    "resource": "as pods request it",
    "slot": "first memory slice, or number of the MPS slice",
    "stage": ", ".join(ErrorStage),
    "state": f"of a GPU: {', '.join(GpuState)}; of a partition: {', '.join(PartitionState)}; "
    "of GPU memory: used, idle, free",
    "status": "True, False, Unknown",
    "supply": ", ".join(Supply),
    "version": "of gpuplan",
    "use": "mig, mps, whole, mixed, none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One family, as the page lists it."""

    program: str
    name: str
    """With a counter's `_total`."""
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        words = self.name.removesuffix("_total").split("_")
        return next((word for word in reversed(words) if word in ("seconds", "ratio", "slices")), "")


def registries() -> dict[str, CollectorRegistry]:
    """By program, with everything that it exports."""
    recorder, clock = EventRecorder(clients.for_url("http://localhost"), "docs"), lambda: 0.0
    metrics = Metrics(CollectorRegistry())
    window: Batcher[str] = Batcher(idle_seconds=1, timeout_seconds=1, clock=clock)
    cluster = ClusterCache(options=PlannerOptions(), clock=clock)
    metrics.registry.register(ClusterGauges(cluster, window, metrics, clock=clock))
    export_build(metrics.registry, "controller", "")
    agent = AgentMetrics("", clock=clock, name_pods=True)
    found = {"controller": metrics.registry, "agent": agent.registry}
    for registry in found.values():
        RequestMetrics(registry)
        registry.register(PlumbingGauges(recorder, lambda: {}))
    return found


def series() -> list[Series]:
    """Of both programs, by name."""
    found = [
        one
        for program, registry in registries().items()
        for collector in _collectors(registry)
        for one in _of(collector, program)
    ]
    return sorted(found, key=lambda one: (one.program != "controller", one.name))


def label_names() -> dict[str, set[str]]:
    """The labels of each family, by its name without a counter's `_total`."""
    return {one.name.removesuffix("_total"): set(one.labels) for one in series()}


def page() -> str:
    """docs/metrics.md."""
    before, after = ((PARTS / name).read_text() for name in ("before.txt", "after.txt"))
    found = series()
    parts = [before]
    for program in ("controller", "agent"):
        rows = [_row(one) for one in found if one.program == program]
        parts += [f"## {program.capitalize()}\n", table(("series", "type", "labels", "meaning"), rows)]
    used = sorted({label for one in found for label in one.labels})
    parts += ["## Labels\n", table(("label", "values"), [(f"`{label}`", LABELS[label]) for label in used]), after]
    return "\n".join(parts)


def _row(one: Series) -> tuple[str, ...]:
    unit = f", {one.unit}" if one.unit else ""
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"`{one.name}`", f"{one.type}{unit}", labels, one.help


def _collectors(registry: CollectorRegistry) -> Iterable[Collector]:
    return list(vars(registry)["_collector_to_names"])


def _of(collector: Collector, program: str) -> Iterator[Series]:
    for family in collector.collect():
        holder: Any = collector if "_labelnames" in vars(collector) else family  # the client has no other way
        suffix = "_total" if family.type == "counter" else ""
        yield Series(
            program=program,
            name=family.name + suffix,
            type=family.type,
            labels=tuple(vars(holder)["_labelnames"]),
            help=family.documentation,
        )
