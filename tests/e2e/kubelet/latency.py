"""From an instance that is made to a pod that runs in it: one sample, split by the part that took the time.

Takes a GPU node, a layout without and one with the instance; returns `Phases` in seconds. A pod waits for the instance
from the start; hardware and kubelet are polled every few hundredths of a second, Node and pod are watched.
"""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from typing import Any

from kube import apply
from kube.reflector import Reflector
from partitioning.resources import mig_resource
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, Raw, mig_item
from tests.waiting import eventually

PROFILE = "1g.10gb"
RESOURCE = mig_resource(PROFILE)
WITHOUT = mig_item(("3g.40gb", 4))
WITH = mig_item((PROFILE, 0), ("3g.40gb", 4))
POLL_SECONDS = 0.03  # pod-resources answers a hundred calls a second, and the agent needs some of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds, each from the end of the one before."""

    plan: float
    """The plan was written; the agent has made the instance."""
    plugin: float
    """The plugin has advertised it, and the kubelet has registered it."""
    node: float
    """The Node shows it: at the kubelet's status tick, or because the agent wrote it."""
    scheduler: float
    """The waiting pod is bound."""
    admission: float
    """The kubelet has requested it of the plugin (Allocate)."""
    start: float
    """The runtime has started the container."""
    report: float
    """The pod is Running at the API."""

    @property
    def from_instance(self) -> float:
        """Slice made to pod Running."""
        return float(sum(astuple(self))) - self.plan


class Moments:
    """When each thing was first seen, in epoch seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, float] = {}

    def see(self, name: str, at: float | None = None) -> None:
        with self._lock:
            self._found.setdefault(name, at if at is not None else time.time())

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> float:
        return self._found[name]


def sample(node: GpuNode, number: int, pause_seconds: float) -> Phases:
    """One pod; `pause_seconds` after the node had settled, so that the tick comes at any moment."""
    node.write_plan(WITHOUT)
    node.wait_ready()
    eventually(lambda: node.offers(RESOURCE, 0), "nothing is left of the sample before", SECONDS)
    pod = node.create_pod(f"sample-{number}", RESOURCE)
    eventually(lambda: _unschedulable(node, pod), "the pod waits", SECONDS)
    time.sleep(pause_seconds)

    moments = Moments()
    ends: list[Callable[[], None]] = [_watch_pod(node, pod, moments), _watch_node(node, moments)]
    ends.append(_poll(lambda: _observe_node(node, moments)))
    try:
        began = time.time()
        node.write_plan(WITH)
        names = ("made", "taken", "node", "bound", "running")
        eventually(lambda: all(name in moments for name in names), f"{pod['metadata']['name']} runs", SECONDS)
    finally:
        for end in ends:
            end()
    found = _phases(node, pod, moments, began)
    apply.delete(node.cluster.admin, f"{PODS}/{pod['metadata']['name']}")
    return found


def _phases(node: GpuNode, pod: Raw, moments: Moments, began: float) -> Phases:
    container = node.wait_running(pod)
    device = container.options.env["NVIDIA_VISIBLE_DEVICES"]
    ledger = json.loads(node.files.ledger.read_text())["allocations"]
    (allocated,) = [float(entry["at"]) for entry in ledger if entry["id"] == device]
    assert container.started_at is not None
    steps = [began, moments["made"], moments["taken"], moments["node"], moments["bound"]]
    steps += [allocated, container.started_at, moments["running"]]
    lengths = [later - earlier for earlier, later in pairwise(steps)]
    return Phases(**dict(zip((field.name for field in fields(Phases)), lengths, strict=True)))


def table(title: str, samples: Sequence[Phases]) -> str:
    """Median and maximum of each phase."""
    rows = [f"{title}, {len(samples)} samples, seconds: p50 / max"]
    columns = {field.name: [getattr(each, field.name) for each in samples] for field in fields(Phases)}
    columns["from instance made to pod running"] = [each.from_instance for each in samples]
    rows += [f"  {name:33} {statistics.median(values):6.2f} / {max(values):6.2f}" for name, values in columns.items()]
    return "\n".join(rows)


def _observe_node(node: GpuNode, moments: Moments) -> None:
    if "made" not in moments and any(profile == PROFILE for profile, _ in node.slices().values()):
        moments.see("made")
    if "made" in moments and "taken" not in moments and node.offered(RESOURCE):
        moments.see("taken")


def _poll(look: Callable[[], None]) -> Callable[[], None]:
    quit_ = threading.Event()

    def run() -> None:
        while not quit_.wait(POLL_SECONDS):
            look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> None:
        quit_.set()
        thread.join(5)

    return end


def _watch_pod(node: GpuNode, pod: Raw, moments: Moments) -> Callable[[], None]:
    def changed(_key: object, _old: object, new: tuple[bool, str] | None) -> None:
        if new is not None and new[0]:
            moments.see("bound")
        if new is not None and new[1] == "Running":
            moments.see("running")

    return _watch(
        Reflector[tuple[bool, str]](
            node.cluster.admin,
            PODS,
            params={"fieldSelector": f"metadata.name={pod['metadata']['name']}"},
            project=lambda raw: (bool(raw["spec"].get("nodeName")), str(raw["status"].get("phase"))),
            on_change=changed,
        )
    )


def _watch_node(node: GpuNode, moments: Moments) -> Callable[[], None]:
    def changed(_key: object, _old: object, new: str | None) -> None:
        if new == "1":
            moments.see("node")

    return _watch(
        Reflector[str](
            node.cluster.admin,
            "/api/v1/nodes",
            params={"fieldSelector": f"metadata.name={node.name}"},
            project=lambda raw: str(raw["status"]["allocatable"].get(RESOURCE)),
            on_change=changed,
        )
    )


def _watch(reflector: Reflector[Any]) -> Callable[[], None]:
    reflector.start()
    assert reflector.synced.wait(60)
    return reflector.stop


def _unschedulable(node: GpuNode, pod: Raw) -> bool:
    found = apply.get(node.cluster.admin, f"{PODS}/{pod['metadata']['name']}")
    conditions: Iterable[Raw] = found["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)
