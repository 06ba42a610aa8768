"""What a program's own plumbing exports: which build it is, requests to the API server, watches, the queue of Events.

`RequestMetrics` is given to a client, `PlumbingGauges` reads watches and queue at each scrape. Controller and agents
export the same names; the job that Prometheus adds distinguishes them. Labels are methods, status codes and watched
paths; never the name of an object.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kube.events import EventRecorder

REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


Series: TypeAlias = Any
"""The value of a family's only label, or a tuple with one of each."""


def gauge(name: str, text: str, labels: str, values: Mapping[Series, float]) -> GaugeMetricFamily:
    """One series for each key."""
    family = GaugeMetricFamily(name, text, labels=labels.split())
    for key, value in sorted(values.items()):
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family


def export_build(registry: CollectorRegistry, program: str, version: str) -> None:
    """Which build runs."""
    Gauge(
        "gpuplan_build_info",
        "1; the version of the program and of the Python that runs it.",
        ["program", "version", "python"],
        registry=registry,
    ).labels(program, version, platform.python_version()).set(1)


class RequestMetrics:
    """One per client; called from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "gpuplan_api_requests",
            "Requests to the API server, by method and status code; code `none` where no answer came.",
            ["method", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "gpuplan_api_request_duration_seconds",
            "Time until the head of the API server's answer.",
            ["method"],
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )

    def answered(self, method: str, code: int | None, seconds: float) -> None:
        """One request; `code` is None where no answer came."""
        self._requests.labels(method, "none" if code is None else str(code)).inc()
        self._seconds.labels(method).observe(seconds)


class PlumbingGauges(Collector):
    """Read at each scrape."""

    def __init__(self, recorder: EventRecorder, stale_seconds: Callable[[], Mapping[str, float]]) -> None:
        """`stale_seconds` of each watch, by path: how long neither a list nor an open watch kept it up to date."""
        self._recorder, self._stale_seconds = recorder, stale_seconds

    def collect(self) -> Iterable[Metric]:
        text = "How long neither a list nor an open watch has kept the copy of this path up to date; 0 while one does."
        yield gauge("gpuplan_watch_stale_seconds", text, "path", self._stale_seconds())
        yield GaugeMetricFamily("gpuplan_events_queued", "Events that wait to be written.", value=self._recorder.queued)
        yield CounterMetricFamily(
            "gpuplan_events_lost",
            "Events that were not written: the queue was full, or the API server refused them.",
            value=self._recorder.dropped,
        )
