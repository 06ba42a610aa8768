"""A node of which every process can die at every place: `World`, with what faults do to it.

Agent and device plugin end where they are and start again from disk, the kubelet registers the plugin again, the
machine starts without instances and without containers, with or without what was not synced. After each place, and
after each pass, what runs must be there, known to the plugin, and of one container only; what is offered must exist.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kube.errors import Unavailable
from kube.latest import LatestVersion
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.handover.config import DeviceKind, PluginConfig, read_config
from nodeagent.observed.node import parse_node
from nodeagent.report.publish import same
from partitioning.models import GpuModel
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.machine import GpuOptions, observe
from tests import incidents
from tests.crashes.faults import PowerCut, Rebooted
from tests.crashes.points import Kind, Points
from tests.nodeagent.nvidia.nvidia_world import NvidiaWorld
from tests.nodeagent.watched import Killed, TouchedError
from tests.nodeagent.world import World

FULL_SECONDS, GONE_SECONDS = 8.0, 5.0
AGENT, PLUGIN = "agent", "device plugin"
T = TypeVar("T")
Gpus = list[tuple[GpuModel, GpuOptions]]


class Crashing(World):
    """Mixed into a world; `arm` once it is made."""

    def arm(self) -> None:
        """From now on places are hooked; they count once `points.begun`."""
        self.points = points = Points(self.state.root, self.cdi)
        points.check, points.full = (lambda _point: self.check_there()), lambda: self.clock.now < self.full_until
        self.full_until = self.plugin_back_at = 0.0
        self.foreign: set[tuple[str, str]] = set()
        """Pods that got their devices from others."""
        self.kubelet_started = self.clock.now - 3600.0
        self.kubelet.seconds_since_start = lambda: self.clock.now - self.kubelet_started  # type: ignore[method-assign]
        self._on_plugin("step", None)
        self._on_plugin("allocate", False)
        self._undo_hooks = points.install()

    def disarm(self) -> None:
        self._undo_hooks()
        self.undo()

    def _on_plugin(self, name: str, dead: object) -> None:
        own = getattr(self.plugin, name)

        def act(*arguments: Any) -> Any:
            try:
                with self.points.of(PLUGIN):
                    return own(*arguments)
            except Killed as killed:
                self._recover(killed, PLUGIN)
                return dead
            except OSError:  # the disk is full: the real one refuses, and goes on
                return dead

        setattr(self.plugin, name, act)

    # the agent's ways to the outside

    def pass_only(self) -> float:
        """One pass; an agent that dies in it is started again."""
        try:
            with self.points.of(AGENT):
                return super().pass_only()
        except Killed as killed:
            self._recover(killed, AGENT)
            return 0.0

    def run(self, seconds: float = 0.5) -> float:
        due = super().run(seconds)
        self.check()
        return due

    def write(self, plan: ObservedPlan, status: Mapping[str, Any]) -> float | None:
        """StatusSink."""

        def no_answer() -> float | None:
            raise Unavailable("no answer from the API server")

        if self.plan is None or same(status, plan.status):
            return None
        found = self.points.call(Kind.API, "status", lambda: self._unseen(World.write, plan, status), no_answer)
        self.latest_plan.accept(parse_plan(self.plan))
        return found

    def set_taint(self, present: bool) -> str:
        return self._node_write(f"taint {present}", World.set_taint, present)

    def set_daemons(self, present: bool) -> str:
        return self._node_write(f"label {present}", World.set_daemons, present)

    def set_counts(self, version: str, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> str:
        return self._node_write("amounts", World.set_counts, version, allocatable, capacity)

    def _node_write(self, what: str, write: Callable[..., str], *arguments: Any) -> str:
        act = partial(self._unseen, write, *arguments)
        problem = self.points.call(Kind.API, what, act, lambda: "no answer from the API server")
        if not problem:
            self.latest_node.accept(parse_node(self.node))
        return problem

    def _unseen(self, write: Callable[..., T], *arguments: Any) -> T:
        """Who gets no answer hears of the write by its watch only."""
        mine = self.latest_plan, self.latest_node
        self.latest_plan, self.latest_node = LatestVersion(), LatestVersion()
        try:
            return write(self, *arguments)
        finally:
            self.latest_plan, self.latest_node = mine

    def sighup(self, pod_uid: str, program: str) -> str:
        return self.points.call(Kind.SIGNAL, f"SIGHUP {program}", lambda: self._sighup(pod_uid, program), str)

    def _sighup(self, pod_uid: str, program: str) -> str:
        return super().sighup(pod_uid, program)

    # what faults do

    def _recover(self, killed: Killed, process: str) -> None:
        if isinstance(killed, Rebooted):
            if isinstance(killed, PowerCut):
                self.points.disk.cut()
            self._starts_again()
        elif process == AGENT:
            self.restart()
        else:
            self.plugin.restart()

    def _starts_again(self) -> None:
        """Reboot: pods with devices fail, a person switches MIG on where it was, and the agent comes last."""
        cut = [gpu["mig_mode"] for gpu in observe(self.machine)["gpus"]]
        for key in [key for key in self.pods if self.kubelet.held.get(key) or key in self.waiting]:
            self.forget(key)
            self.pods[key]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        self._pids.clear()
        self.waiting.clear()
        self.kubelet.entries, self.kubelet.devices = (), {}
        self.reboot()
        for index, enabled in enumerate(cut):
            if enabled:
                incidents.enable_mig(self.machine, index)
        self.kubelet_restarts()
        self.plugin.restart()
        self.restart()

    def others_die(self, process: str) -> None:
        if process == AGENT:
            self.plugin.alive, self.plugin_back_at = False, self.clock.now + GONE_SECONDS
        else:
            self.restart()

    def kubelet_restarts(self) -> None:
        """With its checkpoint; it has no devices until the plugin has registered."""
        self.plugin.socket, self.plugin.admitting = (self.plugin.socket[0] + 1, 1), True
        self.kubelet.devices = dict.fromkeys(self.kubelet.devices, ())
        self.kubelet_started = self.clock.now

    def disk_fills(self) -> None:
        self.full_until = self.clock.now + FULL_SECONDS

    def step(self, seconds: float = 0.5) -> None:
        if not self.plugin.alive and self.clock.now >= self.plugin_back_at:
            self.plugin.alive = True
            self.plugin.restart()
        super().step(seconds)

    # what must hold

    def there(self) -> set[str]:
        """MIG devices and GPUs of the machine."""
        gpus = observe(self.machine)["gpus"]
        devices = {mig_device_uuid(gpu, *parts) for gpu in gpus for parts in mig_devices(gpu)}
        return devices | {gpu["uuid"] for gpu in gpus}

    def gpus_there(self) -> tuple[str, ...]:
        return tuple(gpu["uuid"] for gpu in observe(self.machine)["gpus"])

    def check_there(self) -> None:
        """At each place."""
        running = {i.partition("::")[0] for ids in self.running.values() for i in ids}
        if gone := running - self.there():
            raise TouchedError(f"{sorted(gone)} are gone, and containers run on them")
        offered = {i.partition("::")[0] for ids in self.kubelet.devices.values() for i in ids}
        assert offered <= self.there(), f"a pod could get {sorted(offered - self.there())}, which are gone"

    def check(self) -> None:
        """After a pass."""
        config = self.plugin.config
        on_disk = read_config(self.state.plugin)
        known = {device.id for device in on_disk.devices} if isinstance(on_disk, PluginConfig) else None
        running = {i for key, ids in self.running.items() if key not in self.foreign for i in ids}
        assert known is None or running <= known, f"{sorted(running - known)} run, and the plugin does not know them"
        kinds: dict[str, set[DeviceKind]] = {}
        for device in config.advertised():
            kinds.setdefault(device.gpu, set()).add(device.kind)
        for gpu, found in kinds.items():
            assert len(found) == 1, f"{gpu} is offered as {sorted(found)}"


class CrashWorld(Crashing):
    """A node on which gpuplan's own plugin serves."""

    def __init__(self, path: Path, gpus: Gpus) -> None:
        self.points = Points()
        World.__init__(self, path, gpus)
        self.arm()


class CrashNvidiaWorld(Crashing, NvidiaWorld):
    """A node on which NVIDIA's plugin serves."""

    def __init__(self, path: Path, gpus: Gpus) -> None:
        self.points = Points()
        NvidiaWorld.__init__(self, path, gpus)
        self.arm()
