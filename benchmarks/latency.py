"""From a pod's creation to Running, on a real control plane: `python -m benchmarks.latency`, or `make latency`.

Starts the servers of Kubernetes, the controller, and two nodes of 16 GPUs with the real agent and device plugin;
hardware and kubelets are simulated. Pods come alone, in a trickle, in a burst, alone
while other pods come and go and one has no place, and alone for a slice of a GPU that is shared already. Each needs a
partition that is not there yet. Prints seconds, and the phases by the controller's own histograms. Exit code 2 where
the cluster does not come up, 1 where a pod does not run.
"""

import argparse
import json
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import yaml

from crds.v1alpha1 import names
from kube import apply
from kube.reflector import Reflector
from sandbox.cluster import Cluster, ClusterSettings
from sandbox.control_plane import ControlPlaneFailed
from tests.e2e.rig.controlplane import Binaries, Missing, Places, RealControlPlane, obtain
from tests.e2e.rig.controlplane.tenants import RealServers

PODS = "/api/v1/namespaces/default/pods"
NOS = {"batchWindowIdleSeconds": 10, "batchWindowTimeoutSeconds": 60}
GPUS = 16
"""Of each node."""
TICK_SECONDS = 10.0
"""A kubelet's."""
QUIET_SECONDS = 8.0
"""Between two runs: the controller sees no burst."""
TURN_SECONDS = 1.5
"""Until the controller has counted the last pod that runs."""
START_SECONDS = 180.0
RUN_SECONDS = 150.0
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_SUMS = re.compile(r'^gpuplan_pod_phase_duration_seconds_sum{phase="([a-z-]+)"} (\S+)$', re.MULTILINE)


class NotRunningError(Exception):
    """A pod, or the cluster, did not come up in time."""


@dataclass(slots=True)
class Seen:
    """Moments of pods, as a bystander's watch has them."""

    running: dict[str, float] = field(default_factory=dict)

    def changed(self, _key: object, _old: object, new: tuple[str, str] | None) -> None:
        if new is not None and new[1] == "Running":
            self.running.setdefault(new[0], time.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One scenario: the seconds of each run's pods in order of creation, and mean seconds of each phase."""

    runs: list[list[float]]
    phases: dict[str, float]


class Rig:
    """The cluster of one setting of the window."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.seen, self._number = cluster, Seen(), 0

    def pod(self, resource: str, amount: int = 1) -> str:
        """Create one that never ends; returns its name."""
        self._number += 1
        name = f"p{self._number}"
        main = {
            "name": "main",
            "image": "busybox",
            "command": ["sleep", "infinity"],
            "resources": {"limits": {resource: amount}},
        }
        spec = {"terminationGracePeriodSeconds": 1, "containers": [main]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        apply.create(self.cluster.api, PODS, body)
        return name

    def run(self, resources: Sequence[str], *, gap_seconds: float) -> list[float]:
        """Pods one after the other; how long each took."""
        created = {}
        for number, resource in enumerate(resources):
            if number:
                time.sleep(gap_seconds)
            began = time.monotonic()
            created[self.pod(resource)] = began
        self.until(lambda: created.keys() <= self.seen.running.keys(), f"{', '.join(created)} to run", RUN_SECONDS)
        return [round(self.seen.running[name] - began, 2) for name, began in created.items()]

    def phases(self) -> dict[str, float]:
        """Sums of seconds, by the controller's own page."""
        port = yaml.safe_load((self.cluster.directory / "controller.yaml").read_text())["metricsPort"]
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return sums(answer.read().decode())

    def until(self, holds: Callable[[], object], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise NotRunningError(f"not in {seconds:.0f} s: {what}")
            time.sleep(0.05)

    @contextmanager
    def news(self) -> Iterator[None]:
        """One pod has no place, and others come and go all the time."""
        ends = threading.Event()
        waiting = self.pod("nvidia.com/mig-7g.80gb", GPUS + 1)

        def churn() -> None:
            while not ends.is_set():
                name = self.pod("nvidia.com/gpu-20gb")
                ends.wait(1.5)
                apply.delete(self.cluster.api, f"{PODS}/{name}")
                ends.wait(1.0)

        thread = threading.Thread(target=churn, daemon=True)
        thread.start()
        try:
            time.sleep(QUIET_SECONDS)
            yield
        finally:
            ends.set()
            thread.join(10)
            apply.delete(self.cluster.api, f"{PODS}/{waiting}")


def sums(page: str) -> dict[str, float]:
    """Of each phase, from a page of metrics."""
    return {phase: float(value) for phase, value in _SUMS.findall(page)}


def measured(
    rig: Rig, runs: Sequence[Sequence[str]], *, gap_seconds: float = 0.0, pause: Callable[[float], None] = time.sleep
) -> Found:
    """Each run after a quiet time."""
    before, found = rig.phases(), []
    for resources in runs:
        pause(QUIET_SECONDS)
        found.append(rig.run(resources, gap_seconds=gap_seconds))
    pause(TURN_SECONDS)
    pods = sum(map(len, runs))
    after = rig.phases()
    return Found(runs=found, phases={name: (after[name] - before.get(name, 0.0)) / pods for name in after})


def scenarios(rig: Rig, runs: int) -> Iterator[tuple[str, Found]]:
    """In an order in which every pod finds a place."""
    small = "nvidia.com/mig-1g.10gb"
    yield "lone", measured(rig, [[f"nvidia.com/mig-{PROFILES[number % 5]}"] for number in range(runs)])
    yield "lone, MPS on a shared GPU", measured(rig, [["nvidia.com/gpu-5gb"] for _ in range(runs)])
    yield "trickle, 2 s apart", measured(rig, [[small] * 5 for _ in range(runs)], gap_seconds=2.0)
    yield "burst of 8", measured(rig, [[small] * 8 for _ in range(runs)])
    with rig.news():
        yield "lone, with news", measured(rig, [["nvidia.com/mig-2g.20gb"] for _ in range(runs)])


def node(name: str, partitioning: str) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "250"}
    labels = {
        names.LABEL_PARTITIONING: partitioning,
        names.LABEL_PRODUCT: "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": str(GPUS),
        "nvidia.com/gpu.memory": "81559",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    }


@contextmanager
def started(settings: dict[str, Any], directory: Path, programs: Binaries | None) -> Iterator[Rig]:
    """Without programs the API server and the scheduler are the sandbox's."""
    servers = None if programs is None else RealServers(RealControlPlane(programs, directory=directory))
    cluster = Cluster(ClusterSettings(status_tick_seconds=TICK_SECONDS, controller=settings), control_plane=servers)
    rig = Rig(cluster)
    try:
        cluster.start([node("mig", "mig"), node("shared", "mps")])
        rig.until(lambda: _ready(cluster) == 2, "both plans are Ready", START_SECONDS)
        watch = Reflector(cluster.api, PODS, project=_phase, on_change=rig.seen.changed)
        watch.start()
        try:
            rig.run(["nvidia.com/gpu-5gb"], gap_seconds=0.0)  # the watches of the first pod are there; a GPU is shared
            yield rig
        finally:
            watch.stop()
    finally:
        cluster.stop()


def _ready(cluster: Cluster) -> int:
    conditions = [c for plan in cluster.plans() for c in plan.get("status", {}).get("conditions", ())]
    return sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _phase(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["metadata"]["name"], pod.get("status", {}).get("phase", "")


def rows(window: str, name: str, found: Found) -> Iterator[str]:
    pods = [seconds for run in found.runs for seconds in run]
    first, others = [run[0] for run in found.runs], [seconds for run in found.runs for seconds in run[1:]]
    parts = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in found.phases.items() if seconds >= 0.005)
    later = f"{statistics.median(others):.2f} / {max(others):.2f}" if others else "-"
    yield f"| {window} | {name} | {len(pods)} | {statistics.median(first):.2f} / {max(first):.2f} | {later} | {parts} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of each scenario")
    parser.add_argument("--windows", default="default,nos", help="of default,nos: the controller's settings")
    parser.add_argument("--embedded", action="store_true", help="with the sandbox's own API server and scheduler")
    parser.add_argument("--json", action="store_true", help="one object a line")
    arguments = parser.parse_args(argv)
    programs = None
    if not arguments.embedded:
        programs = obtain(os.environ.get("K8S") or None, Places.of(os.environ, Path.home()), report=_report)
    if isinstance(programs, Missing):
        _report(programs.message)
        return 2
    if not arguments.json:
        print("| window | pods come | pods | first or lone, s: median / max | the others | phases, s in the mean |")
        print("|---|---|---:|---:|---:|---|")
    try:
        for window in arguments.windows.split(","):
            with (
                TemporaryDirectory() as directory,
                started(NOS if window == "nos" else {}, Path(directory) / "plane", programs) as rig,
            ):
                for name, found in scenarios(rig, arguments.runs):
                    if arguments.json:
                        print(json.dumps({"window": window, "pods": name, "runs": found.runs, "phases": found.phases}))
                    else:
                        print(*rows(window, name, found), sep="\n", flush=True)
    except ControlPlaneFailed as error:
        _report(str(error))
        return 2
    except NotRunningError as error:
        _report(str(error))
        return 1
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
