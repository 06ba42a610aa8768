"""When what happened to pods and plans, as two watches show it.

Takes watch events and records the moments of each pod: the write of the plan, the plan's Ready, the bind. A pod's slice
is the partition that its node's plan shows it to hold; its plan was Ready when a Ready=True first came with that
partition in it. Moments are those of the event's arrival here, on the monotonic clock.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client import ApiClient

from benchmarks.scale.figures import PodTimes
from benchmarks.scale.workload import NAMESPACE
from crds.v1alpha1 import names
from kube.reflector import Reflector


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod of the load."""

    node: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPlan:
    """What of a plan is measured."""

    generation: int
    ready_generation: int | None
    """None: Ready is not True."""
    partitions: tuple[tuple[str, str], ...]
    """Id and holder (namespace/name, or nothing)."""


@dataclass(slots=True)
class _Plan:
    written: dict[int, float] = field(default_factory=dict)
    """By generation."""
    ready: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """By partition: since when it is in a plan that was Ready, and when that plan was written."""
    is_ready: bool = False


class Recorder:
    """Safe from any thread."""

    def __init__(self, api: ApiClient, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._created: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._phases: dict[str, str] = {}
        self._slices: dict[str, tuple[float, float | None]] = {}
        self._plans: dict[str, _Plan] = {}
        self._reflectors: tuple[Reflector[Any], ...] = (
            Reflector(
                api,
                f"/api/v1/namespaces/{NAMESPACE}/pods",
                project=seen_pod,
                on_change=lambda key, _old, new: self.see_pod(key[1], new),
            ),
            Reflector(
                api,
                f"/apis/{names.API_VERSION}/{names.PLURAL}",
                project=seen_plan,
                on_change=lambda key, _old, new: self.see_plan(key[1], new),
            ),
        )

    def start(self) -> None:
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()

    def created(self, pod: str) -> None:
        """The API server has just taken it."""
        now = self._clock()
        with self._lock:
            self._created[pod] = now

    def see_pod(self, name: str, new: SeenPod | None) -> None:
        if new is not None:
            with self._lock:
                self._phases[name] = new.phase
                if new.node:
                    self._bound.setdefault(name, self._clock())

    def see_plan(self, name: str, new: SeenPlan | None) -> None:
        now = self._clock()
        with self._lock:
            plan = self._plans.setdefault(name, _Plan())
            if new is None:
                return
            plan.is_ready = new.ready_generation == new.generation
            plan.written.setdefault(new.generation, now)
            listed = {partition for partition, _ in new.partitions}
            plan.ready = {partition: at for partition, at in plan.ready.items() if partition in listed}
            if new.ready_generation is not None:
                for partition in sorted(listed - plan.ready.keys()):
                    plan.ready[partition] = (now, plan.written.get(new.ready_generation))
            for partition, pod in new.partitions:
                if pod and partition in plan.ready:
                    self._slices.setdefault(pod.partition("/")[2], plan.ready[partition])

    def ready_plans(self) -> int:
        """How many plans are Ready in their newest version."""
        with self._lock:
            return sum(plan.is_ready for plan in self._plans.values())

    def bound_pods(self) -> int:
        with self._lock:
            return len(self._bound)

    def carried_pods(self) -> int:
        """How many bound pods a Ready plan shows as holders."""
        with self._lock:
            return len(self._slices.keys() & self._bound.keys())

    def phases(self) -> dict[str, int]:
        """How many pods are in which."""
        with self._lock:
            found = list(self._phases.values())
        return {phase: found.count(phase) for phase in sorted(set(found))}

    def pods(self) -> tuple[PodTimes, ...]:
        """Every pod that was created."""
        with self._lock:
            return tuple(
                PodTimes(
                    created=created,
                    ready=self._slices[name][0] if name in self._slices else None,
                    written=self._slices[name][1] if name in self._slices else None,
                    bound=self._bound.get(name),
                )
                for name, created in sorted(self._created.items())
            )


def seen_pod(raw: Mapping[str, Any]) -> SeenPod:
    return SeenPod(node=raw["spec"].get("nodeName", ""), phase=(raw.get("status") or {}).get("phase", ""))


def seen_plan(raw: Mapping[str, Any]) -> SeenPlan:
    status = raw.get("status") or {}
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready" and c["status"] == "True"), None)
    return SeenPlan(
        generation=raw["metadata"]["generation"],
        ready_generation=ready.get("observedGeneration") if ready else None,
        partitions=tuple(
            (partition["uuid"], partition.get("pod", ""))
            for gpu in status.get("gpus") or ()
            for partition in gpu.get("partitions") or ()
        ),
    )
