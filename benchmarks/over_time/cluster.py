"""Simulates the cluster around a controller in virtual time: agents, kubelets, kube-scheduler and the jobs.

Takes jobs, the size and the delays; a controller hears of every change, changes GPUs and nominates pods. An
agent destroys and makes instances one after the other on a GPU; the Node shows them at the kubelet's next status tick.
The scheduler binds in its queue's order to the pod's nominated node, else to a random one that shows a free instance,
so that a freed instance goes to a waiting pod of its profile at once; a nomination holds its place against pods that
are no more urgent. The kubelet hands out any free instance of the profile. An MPS slice is one
with its number as start. Not simulated: back-off, CPU and faults.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from benchmarks.over_time.jobs import Job, Size
from benchmarks.over_time.timeline import Delays, Record, Timeline
from partitioning.layouts import Instance, Layout

QUIET_SECONDS = 1_200.0
"""Longer than any deadline of a pass: when nothing runs and nothing happened for so long, nothing will."""


@dataclass(slots=True, kw_only=True, eq=False)
class Gpu:
    node: str
    index: int
    instances: dict[Instance, int | None] = field(default_factory=dict)
    """With the job that holds it. Registered with the kubelet; the Node may not show it yet."""
    coming: tuple[Instance, ...] | None = None
    """Those that the agent is making; () while the Node does not show them yet; None: settled."""
    fresh: frozenset[Instance] = frozenset()
    """Made; the Node does not show them yet."""
    drained: frozenset[Instance] = frozenset()
    """Unhealthy to the kubelet: a holder keeps it, and no pod gets one."""

    @property
    def free(self) -> list[Instance]:
        return sorted(one for one, job in self.instances.items() if job is None and one not in self.drained)


class Controller(Protocol):
    """Decides what GPUs are cut into. `turn` does what is due, and returns the seconds until it wants the next."""

    def pod_changed(self, job: int) -> None: ...

    def node_changed(self, node: str) -> None: ...

    def plan_changed(self, node: str) -> None: ...

    def turn(self) -> float | None: ...


class Cluster:
    """`run` once; `controller` is set before."""

    controller: Controller

    def __init__(self, jobs: list[Job], size: Size, delays: Delays, *, seed: int) -> None:
        self.jobs, self.size, self.timeline = jobs, size, Timeline(delays)
        self.record = Record(jobs, size)
        self.nodes = [f"node-{number:04}" for number in range(size.nodes)]
        self.gpus = {name: [Gpu(node=name, index=index) for index in range(size.gpus)] for name in self.nodes}
        self._rng = random.Random(seed)
        self._numbers = {name: number for number, name in enumerate(self.nodes)}
        self.shown: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        """What each Node shows, by profile."""
        self._bound: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self._tainted = dict.fromkeys(self.nodes, 0.0)
        """Until when."""
        ranked = sorted(range(len(jobs)), key=lambda job: (-jobs[job].priority, int(jobs[job].arrival), jobs[job].name))
        self._rank = {job: rank for rank, job in enumerate(ranked)}
        self.pending: dict[int, None] = {}
        self.running: dict[int, tuple[Gpu, Instance]] = {}
        self.nominated: dict[int, str] = {}
        for job, one in enumerate(jobs):
            self.timeline.at(one.arrival, partial(self._arrive, job))

    def run(self, horizon: float | None) -> Record:
        """Until all jobs have ended, nothing can happen any more, or the horizon is reached."""
        timeline = self.timeline
        happened = timeline.now
        wake: float | None = None
        while timeline.waits or (self.pending and timeline.now - happened < QUIET_SECONDS):
            moment = timeline.next_at
            turn = moment if wake is None else min(moment, timeline.now + wake)
            if turn == math.inf or (horizon is not None and turn > horizon):
                break
            if turn < moment:
                timeline.now = turn
            else:
                happened = moment
                timeline.advance()
            self._schedule()
            wake = self.controller.turn()
            if self._schedule():
                wake = self.controller.turn()
        self.record.ended_at = horizon if horizon is not None and self.pending else happened
        return self.record

    def change(self, node: str, index: int, layout: Layout, *, keep_idle: bool = True) -> None:
        """The agent begins: what goes is withdrawn at once, what comes is there when all is done."""
        gpu = self.gpus[node][index]
        wanted = set(layout)
        gpu.drained &= wanted
        gone = [one for one in sorted(gpu.instances) if one not in wanted or (not keep_idle and one in gpu.free)]
        lost = [one for one in gone if gpu.instances[one] is not None]
        if lost or gpu.coming is not None:
            raise AssertionError(f"GPU {index} of {node}: {lost or 'it changes already'}: a plan that must not be")
        for one in gone:
            del gpu.instances[one]
        gpu.coming = tuple(sorted(wanted - gpu.instances.keys()))
        self.record.changed(created=len(gpu.coming), deleted=len(gone))
        delays = self.timeline.delays
        if gone and delays.write_allocatable:
            self._show(node)
        elif gone:
            self._tainted[node] = max(self._tainted[node], self._next_tick(node))
            self.timeline.at(self._tainted[node], partial(self._tick, node))
        self.timeline.after(delays.agent + delays.cut(len(gpu.coming), len(gone)), partial(self._made, gpu))

    def drain(self, node: str, index: int, drained: Collection[Instance]) -> None:
        """The agent lists these as unhealthy, and no others of the GPU."""
        gpu = self.gpus[node][index]
        if gpu.drained != drained:
            gpu.drained = frozenset(drained)
            self.timeline.at(self._next_tick(node), partial(self._tick, node))

    def nominate(self, job: int, node: str) -> None:
        self.nominated[job] = node
        self.controller.pod_changed(job)

    def queue(self) -> list[int]:
        """The pending jobs in the scheduler's order."""
        return sorted(self.pending, key=self._rank.__getitem__)

    def _arrive(self, job: int) -> None:
        self.pending[job] = None
        self._schedule()
        if job in self.pending:
            self.controller.pod_changed(job)

    def _end(self, job: int) -> None:
        gpu, instance = self.running.pop(job)
        gpu.instances[instance] = None
        self._bound[gpu.node][instance.profile] -= 1
        self.record.ends(self.timeline.now)
        self.controller.pod_changed(job)
        self.controller.plan_changed(gpu.node)

    def _made(self, gpu: Gpu) -> None:
        gpu.instances.update(dict.fromkeys(gpu.coming or ()))
        gpu.fresh, gpu.coming = frozenset(gpu.coming or ()), ()
        self.controller.plan_changed(gpu.node)
        self.timeline.at(self._next_tick(gpu.node), partial(self._tick, gpu.node))

    def _next_tick(self, node: str) -> float:
        return self.timeline.next_tick(self._numbers[node], self.timeline.now)

    def _tick(self, node: str) -> None:
        for gpu in self.gpus[node]:
            if gpu.coming == ():
                gpu.coming, gpu.fresh = None, frozenset()
        self._show(node)
        self.controller.plan_changed(node)

    def _show(self, node: str) -> None:
        shown = Counter(one.profile for gpu in self.gpus[node] for one in gpu.instances.keys() - gpu.drained)
        if shown != self.shown[node]:
            self.shown[node] = shown
            self.controller.node_changed(node)

    def _schedule(self) -> bool:
        """Bind what can be bound; True if there was any."""
        names = [name for name in self.nodes if self._tainted[name] <= self.timeline.now]
        free = {profile for name in names for profile in self._free(name)}
        failed: set[tuple[str, int, str | None]] = set()
        before = len(self.running)
        for job in self.queue() if free else ():
            one, nominated = self.jobs[job], self.nominated.get(job)
            kind = (one.profile, one.priority, nominated)
            if one.profile not in free or kind in failed:
                continue
            fitting = [name for name in names if self._room(name, job)]
            if not fitting:
                failed.add(kind)
                continue
            self._bind(job, nominated if nominated in fitting else self._rng.choice(fitting))
        return len(self.running) > before

    def _free(self, node: str) -> Iterable[str]:
        shown, bound = self.shown[node], self._bound[node]
        return (profile for profile, count in shown.items() if count > bound[profile])

    def _room(self, node: str, job: int) -> bool:
        """The node shows one that no pod has, nor is nominated to before this one; and there is one."""
        one = self.jobs[job]
        kept = sum(
            self.jobs[other].profile == one.profile and self.jobs[other].priority >= one.priority
            for other, name in self.nominated.items()
            if name == node and other != job
        )
        if self.shown[node][one.profile] - self._bound[node][one.profile] <= kept:
            return False
        return any(free.profile == one.profile for gpu in self.gpus[node] for free in gpu.free)

    def _bind(self, job: int, node: str) -> None:
        one = self.jobs[job]
        free = [(gpu, free) for gpu in self.gpus[node] for free in gpu.free if free.profile == one.profile]
        gpu, instance = self._rng.choice(free)
        gpu.instances[instance] = job
        self._bound[node][one.profile] += 1
        del self.pending[job]
        self.nominated.pop(job, None)
        self.running[job] = (gpu, instance)
        self.record.starts(job, self.timeline.now)
        self.timeline.after(one.duration, partial(self._end, job))
        self.controller.pod_changed(job)
        self.controller.plan_changed(node)
