"""A node around the agent, without threads or waiting: simulated driver, strict plugin and kubelet, an API in memory.

Time is a number that only `World` moves. The plugin refuses withdrawn ids, the kubelet hands out what it was sent and
nothing else, and a destroyed instance that a container uses fails the test, whatever the driver reports of it. Every
side effect of the agent goes through `effect`, which can end the agent right after it, as kill -9 would.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from crds.v1alpha1.names import Condition
from docs.generate.conditions import WHERE_ABSENT
from nodeagent.assembly import Parts, assemble
from nodeagent.cache import NodeCache
from nodeagent.desired.plan import parse_plan
from nodeagent.handover.config import DeviceListStrategy, PluginConfig
from nodeagent.hardware.driver import GpuDriver, GpuInstance, ObservedGpu
from nodeagent.hardware.driver_thread import ThreadedDriver
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.node import parse_node
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import NodePod, parse_pod
from nodeagent.report.metrics import AgentMetrics
from nodeagent.report.reporter import Reporter
from nodeagent.settings import Settings
from nodeagent.statedir import StateDir
from partitioning.layouts import check_layout
from partitioning.models import GpuModel
from sandbox.driver.machine import GpuOptions, create
from sandbox.driver.procfs import proc_of
from tests import faults, incidents
from tests.clock import Clock
from tests.nodeagent.api_memory import ApiMemory
from tests.nodeagent.items import NODE, Raw
from tests.nodeagent.node_fakes import KubeletMemory, PluginMemory
from tests.nodeagent.pods_memory import PodsMemory
from tests.nodeagent.watched import (
    Effects,
    Killed,
    WatchedConfigFile,
    WatchedDelivery,
    WatchedDriver,
    WatchedHoldings,
    WatchedJournal,
)
from tests.quirks import Quirks


class World(ApiMemory, PodsMemory):
    """Use `run` or `settle`, then read `status`, `layout`, `advertised`."""

    def __init__(self, path: Path, gpus: Iterable[tuple[GpuModel, GpuOptions]], quirks: Quirks | None = None) -> None:
        self.clock = Clock()
        self.machine = path / "machine.json"
        self.undo = faults.install(create(self.machine, gpus, "seed"), quirks)
        self.state = StateDir(path / "state")
        self.state.plugin.directory.mkdir(parents=True)
        self.plugin = PluginMemory(self.state.plugin)
        self.plugin.boot = "boot-1"
        ApiMemory.__init__(self, Effects(), KubeletMemory(self.plugin))
        PodsMemory.__init__(self, self.machine, self.kubelet, self.plugin, self.clock)
        self.by_hand: set[str] = set()
        """Truth: MIG devices that an administrator has just made and uses."""
        self.before_destroy: Callable[[str, GpuInstance], object] = lambda _uuid, _instance: None
        self.node_ticks = True
        self.api_refuses = ""
        """Why it lists no pods."""
        self.pods_late = False
        """The watch of pods brings nothing for now."""
        self.node_late = False
        """Nor does that of the Node."""
        self.write_allocatable = True
        self.device_list_strategy = DeviceListStrategy.ENVVAR
        self.exclusive = True
        self.cdi = path / "cdi"
        """From the next `restart` on, as are the others."""
        self.driver_timeout_seconds = 0.0
        """Above zero the agent's driver calls have threads and this deadline, from the next `restart` on."""
        self.threaded: list[ThreadedDriver] = []
        self.restart()

    def restart(self) -> None:
        """A new agent process: nothing but the disk is left of the old one."""
        self.driver = WatchedDriver(
            self.effect,
            lambda: self.by_hand.union(*self.running.values()),
            self._meanwhile,
        )
        driver: GpuDriver = self.driver
        if self.driver_timeout_seconds:
            driver = ThreadedDriver(driver, timeout_seconds=self.driver_timeout_seconds, clock=self.clock)
            self.threaded.append(driver)
        self.cache = NodeCache(PodBook(clock=self.clock), wake=lambda: None)
        self.latest_plan, self.latest_node = self.cache.plan, self.cache.node
        self.agents_driver = driver
        self.metrics = AgentMetrics("1", clock=self.clock)
        delivery = WatchedDelivery(
            self.cdi,
            self.effect,
            proc=proc_of(self.machine),
            strategy=self.device_list_strategy,
            clock=self.clock,
        )
        reporter = Reporter(
            write=self.write,
            emit=self.emit,
            metrics=self.metrics,
            clock=self.clock,
            now=lambda: f"t{self.clock.now:g}",
            version="1",
        )
        self.agent = assemble(
            Parts(
                state=self.state,
                cache=self.cache,
                driver=driver,
                kubelet=self.kubelet,
                file=WatchedConfigFile(self.state.plugin, self.effect, self.plugin.boot),
                journal=WatchedJournal(self.state.journal, self.effect),
                holdings=WatchedHoldings(self.state.holdings, self.effect, self.clock, self.plugin.boot),
                processes=self,
                fresh_pods=self.fresh_pods,
                node=self,
                delivery=delivery,
                reporter=reporter,
                clock=self.clock,
                sighup=self.sighup,
            ),
            Settings.model_validate(self.settings()),
        )
        self.pods_late = False
        self._feed()

    def settings(self) -> Raw:
        """As in the agent's file."""
        return {
            "writeAllocatable": self.write_allocatable,
            "mpsExclusiveProcess": self.exclusive,
            "procDir": str(proc_of(self.machine)),
        }

    def fresh_pods(self) -> tuple[NodePod, ...] | NoAnswer:
        """What the API server itself has, whatever the watch brought."""
        if self.api_refuses:
            return NoAnswer(reason=self.api_refuses)
        return tuple([parse_pod(raw) for raw in self.pods.values()])

    def sighup(self, pod_uid: str, program: str) -> str:
        """No program of NVIDIA's runs here."""
        return f"no {program} in {pod_uid}"

    def reboot(self, order: Sequence[int] | None = None) -> None:
        """The machine starts: no process and no MIG instance is left, and the plugin runs before the agent does.

        `order` are the old indexes of the GPUs that it finds.
        """
        incidents.reboot(self.machine, order)
        self.running.clear()
        self.plugin.boot = f"boot after {self.plugin.boot}"
        self.plugin.config = PluginConfig()
        self.plugin.step()
        self.kubelet.devices = {}
        self.kubelet.step()

    def _feed(self) -> None:
        """What the watches would bring."""
        self.cache.on_plan(("", NODE), None, parse_plan(self.plan) if self.plan else None)
        if not self.node_late:
            self.cache.on_node(("", NODE), None, parse_node(self.node))
        if self.pods_late:
            return
        known = self.cache.pods.observed()
        for pod in known.pods:
            if pod.key not in self.pods:
                self.cache.pods.on_event(pod.key, pod, None)
        for key, raw in self.pods.items():
            self.cache.pods.on_event(key, None, parse_pod(raw))
        self.cache.pods.set_synced()

    def pass_only(self) -> float:
        """One pass, and nothing around the agent moves."""
        self._feed()
        return self.agent.reconcile().due_seconds

    def run(self, seconds: float = 0.5) -> float:
        """One pass, then everything around the agent moves by one step."""
        due = self.pass_only()
        self.step(seconds)
        return due

    def step(self, seconds: float = 0.5) -> None:
        self.plugin.step()
        self.kubelet.step()
        self.start_waiting()
        if self.node_ticks:
            self.tick()
        self.clock.now += seconds

    def run_for(self, seconds: float) -> None:
        """In steps as long as the pace of its passes; none takes less than a second, and none more than ten."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            due = self.pass_only()
            self.step(min(max(due, 1.0), 10.0))

    def settle(self, passes: int = 0) -> None:
        """Run so many passes, or until nothing happens any more; a kill brings a new agent."""
        quiet = 0
        for _ in range(passes or 30):
            before = len(self.effect.done)
            try:
                self.run()
            except Killed:
                self.restart()
            quiet = 0 if len(self.effect.done) > before else quiet + 1
            if quiet == 5 and not passes:
                return

    def wait(self, seconds: float, times: int = 1) -> None:
        """So long with a pass at its beginning, so many times, and what follows."""
        for _ in range(times):
            self.run(seconds)
        self.settle()

    def _meanwhile(self, gpu_uuid: str, instance: GpuInstance) -> None:
        self.before_destroy(gpu_uuid, instance)

    def recut_by_hand(self, gpu_uuid: str, instance: GpuInstance) -> bool:
        """Replace an instance by one of another profile that gets its ids; False where there is no such profile."""
        hand = NvmlDriver()
        gpu = next(gpu for gpu in hand.observe() if gpu.uuid == gpu_uuid)
        assert gpu.model is not None
        others = gpu.layout.without([instance.placed])
        for spec in gpu.model.profiles:
            placed = replace(instance.placed, profile=spec.name)
            if placed != instance.placed and check_layout(gpu.model, others.union([placed])) is None:
                for compute in instance.compute:
                    hand.destroy_compute_instance(gpu_uuid, instance, compute)
                hand.destroy_gpu_instance(gpu_uuid, instance)
                made = hand.create_gpu_instance(gpu_uuid, placed)
                assert made == instance.id
                hand.create_compute_instance(gpu_uuid, made)
                found = next(gpu for gpu in hand.observe() if gpu.uuid == gpu_uuid).at(placed)
                assert found is not None
                assert found.uuid is not None
                self.by_hand.add(found.uuid)
                return True
        return False

    def gpu(self, index: int = 0) -> ObservedGpu:
        return NvmlDriver().observe_gpu(index)

    def layout(self, index: int = 0) -> str:
        return str(self.gpu(index).layout)

    def advertised(self) -> dict[str, int]:
        return {resource: len(ids) for resource, ids in sorted(self.kubelet.devices.items()) if ids}

    def status(self) -> Raw:
        assert self.plan is not None
        return dict(self.plan["status"])

    def gpu_status(self, index: int = 0) -> Raw:
        return next(dict(gpu) for gpu in self.status()["gpus"] if gpu["index"] == index)

    def condition(self, kind: str) -> Raw:
        """One that is not there, as what its absence means."""
        there = {c["type"]: dict(c) for c in self.status()["conditions"]}
        return there.get(kind) or {"status": WHERE_ABSENT[Condition(kind)], "reason": "", "message": ""}

    def found(self, index: int = 0) -> tuple[str, str]:
        """State and reason."""
        gpu = self.gpu_status(index)
        return gpu["state"], gpu.get("reason") or {"Ready": "Confirmed", "Unmanaged": "Unmanaged"}[gpu["state"]]

    def partitions(self, index: int = 0) -> list[str]:
        return [
            f"{p['resource'].rpartition('/')[2]} {p['state']}" for p in self.gpu_status(index).get("partitions", ())
        ]

    def tainted(self) -> bool:
        return any(t["key"] == "gpuplan.dev/changing" for t in self.node["spec"].get("taints") or [])
