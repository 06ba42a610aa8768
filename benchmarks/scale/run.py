"""One run: the cluster comes up, pods arrive at their rate, and when they are bound the figures are drawn.

Takes programs and sizes, returns one JSON-ready result. Every wait has an end: what is not bound by then is counted
as such. The pods' clock is this process's monotonic one.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient

from benchmarks.scale.figures import Request, accounts, read_request, waits
from benchmarks.scale.processes import usages, used
from benchmarks.scale.recorder import Recorder
from benchmarks.scale.stage import Sizes, Stage
from benchmarks.scale.workload import NAMESPACE, Arrival, arrivals, pod_object
from kube import apply
from kube.transport import request
from tests.e2e.rig.controlplane import Binaries

SENDERS = 6
QUIET_SECONDS = 15.0
"""Before the first pod: a status tick and more, so that every Node shows what its kubelet has."""
STALLED_SECONDS = 120.0
"""Without a further bind after the last pod was created: the rest will not be bound."""
LAST_STATUS_SECONDS = 15.0
LOOK_SECONDS = 0.5
_SERIES = re.compile(r"^(gpuplan_[a-z_]+)(?:\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)
REPORTED = ("passes_total", "plans_applied_total", "nominations_total", "errors_total", "planning_duration_seconds_sum")


def run(
    programs: Binaries,
    sizes: Sizes,
    directory: Path,
    *,
    limit_seconds: float,
    quiet_seconds: float = QUIET_SECONDS,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Raises StageError where the cluster does not come up."""
    began = time.monotonic()
    stage = Stage(programs, sizes, directory, report=report)
    recorder: Recorder | None = None
    try:
        stage.start()
        recorder = Recorder(stage.client("scale-recorder"), time.monotonic)
        recorder.start()
        seen = recorder
        stage.until(lambda: seen.ready_plans() == sizes.nodes, "every node has a plan that is Ready")
        report(f"{sizes.nodes} plans are Ready after {time.monotonic() - began:.0f} s")
        time.sleep(quiet_seconds)
        measured = _measure(stage, sizes, recorder, deadline=began + limit_seconds, report=report)
    finally:
        if recorder is not None:
            recorder.stop()
        last_words = stage.stop()
    return measured | _said_by_agents(last_words) | _requests(stage.audit_log, measured.pop("window"), sizes.pods)


def _measure(
    stage: Stage, sizes: Sizes, recorder: Recorder, *, deadline: float, report: Callable[[str], None]
) -> dict[str, Any]:
    admin = stage.client("scale-load")
    before, counted_before, since = usages(stage.pids()), _all_requests(admin), time.time()
    load_began = time.monotonic()
    late_seconds = _send(admin, recorder, arrivals(sizes.pods, per_second=sizes.per_second, seed=sizes.seed))
    sent_seconds = time.monotonic() - load_began
    report(f"{sizes.pods} pods created in {sent_seconds:.0f} s, {recorder.bound_pods()} bound so far")
    _await_bound(recorder, sizes.pods, deadline)
    bound_seconds = time.monotonic() - load_began
    _await_carried(recorder, deadline)
    after, until, counted = usages(stage.pids()), time.time(), _all_requests(admin) - counted_before
    pods = recorder.pods()
    return {
        "sizes": _described(sizes, stage.plane.version),
        "waits": waits(pods),
        "processes": used(before, after),
        "counts": {
            "pods bound": sum(pod.bound is not None for pod in pods),
            "slices found ready": sum(pod.found_ready for pod in pods),
            "seconds of arrival": round(sent_seconds, 1),
            "latest pod sent late by s": round(late_seconds, 1),
            "seconds until the last bind": round(bound_seconds, 1),
            "requests by the server's count": counted,
            **{f"pods {phase}": count for phase, count in recorder.phases().items()},
            **_controller_counts(stage.controller_page("/metrics")),
        },
        "window": (since, until),
    }


def _send(api: ApiClient, recorder: Recorder, pods: tuple[Arrival, ...]) -> float:
    """Create every pod at its time; by how much the latest was late."""
    began = time.monotonic()
    waiting = threading.Event()  # never set: a sleep of fractions
    late = [0.0]

    def create(pod: Arrival) -> None:
        apply.create(api, f"/api/v1/namespaces/{NAMESPACE}/pods", pod_object(pod))
        recorder.created(pod.name)

    with ThreadPoolExecutor(SENDERS) as pool:
        futures = []
        for pod in pods:
            waiting.wait(max(began + pod.at_seconds - time.monotonic(), 0.0))
            futures.append(pool.submit(create, pod))
        for future in futures:
            future.result()
        late[0] = max(time.monotonic() - began - pods[-1].at_seconds, 0.0) if pods else 0.0
    return late[0]


def _await_bound(recorder: Recorder, pods: int, deadline: float) -> None:
    _while_it_moves(recorder.bound_pods, pods, deadline, STALLED_SECONDS)


def _await_carried(recorder: Recorder, deadline: float) -> None:
    """Plans show holders some seconds after the bind."""
    _while_it_moves(recorder.carried_pods, recorder.bound_pods(), deadline, LAST_STATUS_SECONDS)


def _while_it_moves(count: Callable[[], int], goal: int, deadline: float, patience_seconds: float) -> None:
    known, moved = count(), time.monotonic()
    while known < goal and time.monotonic() < min(deadline, moved + patience_seconds):
        time.sleep(LOOK_SECONDS)
        if (now := count()) != known:
            known, moved = now, time.monotonic()


def _all_requests(api: ApiClient) -> int:
    """By the API server's own count."""
    text = request(api, "GET", "/metrics").decode()
    counts = re.findall(r"^apiserver_request_total\{[^}]*\} ([0-9.e+]+)$", text, re.MULTILINE)
    return int(sum(map(float, counts)))


def _controller_counts(metrics: str) -> dict[str, float]:
    """What the controller counts itself, since its start."""
    sums: dict[str, float] = {}
    for name, value in _SERIES.findall(metrics):
        sums[name] = sums.get(name, 0.0) + float(value)
    return {name: round(sums[f"gpuplan_{name}"], 1) for name in REPORTED if f"gpuplan_{name}" in sums}


def _said_by_agents(last_words: Iterable[str]) -> dict[str, Any]:
    """What their processes have counted, over all of them."""
    found = [json.loads(line) for line in last_words]
    total: Counter[str] = Counter()
    for each in found:
        total.update(each["counts"])
    latest = max((each["latest_bind_seconds"] for each in found), default=0.0)
    return {
        "agents": {**total, "latest bind after a taint, s": round(latest, 2)},
        "refused": [pod for each in found for pod in each["refused"]],
    }


def _requests(log: Path, window: tuple[float, float], pods: int) -> dict[str, Any]:
    with log.open() as lines:
        found = (read for line in lines if (read := read_request(line)) is not None)
        inside: list[Request] = [read for read in found if window[0] <= read.at <= window[1]]
    return {
        "requests": {
            client: asdict(account) | {"per_pod": account.per_pod(pods)} for client, account in accounts(inside).items()
        }
    }


def _described(sizes: Sizes, version: str) -> Mapping[str, Any]:
    return {
        "nodes": sizes.nodes,
        "pods": sizes.pods,
        "GPUs each": sizes.gpus,
        "pods a second": sizes.per_second,
        "(seed)": sizes.seed,
        "(Kubernetes)": version,
        **{f"({name})": value for name, value in (*sizes.settings.items(), *sizes.agent_settings.items())},
    }
