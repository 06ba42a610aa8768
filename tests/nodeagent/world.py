"""A node around the agent, without threads or waiting: simulated driver, strict plugin and kubelet, an API in memory.

Time is a number that only `World` moves. The plugin refuses withdrawn ids, the kubelet hands out what it was told and
nothing else, and a destroyed instance that a container uses fails the test, whatever the driver says of it. Every side
effect of the agent goes through `effect`, which can end the agent right after it, as kill -9 would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube.events import EventType, ObjectReference
from nodeagent.actuator import Actuator
from nodeagent.advertise import Advertiser
from nodeagent.agent import Agent, Parts
from nodeagent.confirm import Confirmer
from nodeagent.driver import ObservedGpu
from nodeagent.holdings import Holdings
from nodeagent.journal import Intent, Journal
from nodeagent.kubelet import Allocatable, CheckpointEntry, Listed, NoAnswer
from nodeagent.look import Observer, Sources
from nodeagent.metrics import AgentMetrics
from nodeagent.node import NodeCell, parse_node
from nodeagent.nvml import NvmlDriver
from nodeagent.plan import PlanCell, PlanSeen, parse_plan
from nodeagent.plugin.config import (
    Allocation,
    Loaded,
    PluginConfig,
    PluginFiles,
    Problem,
    read_config,
    write_ledger,
    write_loaded,
)
from nodeagent.pods import PodBook, PodsSeen, parse_pod
from nodeagent.publish import same
from nodeagent.report import Reporter
from nodeagent.statedir import StateDir
from nodeagent.taint import NodeGuard, _taint_operations
from nodeagent.usage import Votes
from partitioning.layouts import Instance
from partitioning.models import GpuModel
from sandbox.driver import processes
from sandbox.driver.install import install
from sandbox.driver.machine import GpuOptions, create

NODE = "gpu-node-1"
Raw = dict[str, Any]


class Killed(BaseException):
    """kill -9 of the agent."""


class TouchedError(AssertionError):
    """The agent ended something that a container uses."""


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Effects:
    """Counts what the agent does to the world, and kills it after the n-th."""

    kill_after: int = -1
    done: list[str] = field(default_factory=list)

    def __call__(self, what: str) -> None:
        self.done.append(what)
        if len(self.done) == self.kill_after:
            raise Killed(what)


class WatchedDriver(NvmlDriver):
    """The real driver module; each change is an effect, and none may hit what runs."""

    def __init__(self, effect: Effects, running: Callable[[], set[str]]) -> None:
        super().__init__()
        self._effect, self._running = effect, running
        self.before_change: Callable[[], None] = lambda: None

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        self.before_change()
        made = super().create_gpu_instance(gpu_uuid, placed)
        self._effect(f"create GI {placed}")
        return made

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        self.before_change()
        super().create_compute_instance(gpu_uuid, gpu_instance)
        self._effect(f"create CI in {gpu_instance}")

    def destroy_compute_instance(self, gpu_uuid: str, gpu_instance: int, compute_instance: int) -> None:
        self.before_change()
        gpu = next(gpu for gpu in self.observe() if gpu.uuid == gpu_uuid)
        instance = next(instance for instance in gpu.instances if instance.id == gpu_instance)
        if {compute.uuid for compute in instance.compute} & self._running():
            raise TouchedError(str(instance))
        super().destroy_compute_instance(gpu_uuid, gpu_instance, compute_instance)
        self._effect(f"destroy CI {compute_instance} of {instance.placed}")

    def destroy_gpu_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        self.before_change()
        super().destroy_gpu_instance(gpu_uuid, gpu_instance)
        self._effect(f"destroy GI {gpu_instance}")


class WatchedJournal(Journal):
    def __init__(self, directory: Path, effect: Effects) -> None:
        super().__init__(directory)
        self._effect = effect

    def begin(self, gpu_uuid: str, intent: Intent) -> None:
        super().begin(gpu_uuid, intent)
        self._effect(f"journal {intent.action} {intent.placed}")

    def end(self, gpu_uuid: str) -> None:
        super().end(gpu_uuid)
        self._effect("journal end")


class WatchedAdvertiser(Advertiser):
    def __init__(self, files: PluginFiles, effect: Effects) -> None:
        super().__init__(files)
        self._effect = effect

    def advertise(self, config: PluginConfig, *, in_force: bool, overdue: bool) -> bool:
        before = self.config
        written = super().advertise(config, in_force=in_force, overdue=overdue)
        if self.config != before:
            self._effect("config.json")
        return written


class WatchedHoldings(Holdings):
    def __init__(self, path: Path, effect: Effects, clock: Clock) -> None:
        super().__init__(path, clock=clock, slack_seconds=30.0)
        self._file, self._effect = path, effect

    def votes(
        self,
        pods: PodsSeen,
        listed: Listed | NoAnswer,
        allocations: Iterable[Allocation],
        checkpoint: Iterable[CheckpointEntry],
    ) -> Votes:
        before = self._file.read_bytes() if self._file.exists() else b""
        votes = super().votes(pods, listed, allocations, checkpoint)
        if self._file.exists() and self._file.read_bytes() != before:
            self._effect("holdings.json")
        return votes


class Plugin:
    """Loads the config when `step` is called, not before."""

    def __init__(self, files: PluginFiles) -> None:
        self.files = files
        self.config = PluginConfig()
        self.problems: tuple[Problem, ...] = ()
        self.alive = True
        self.allocations: dict[str, Allocation] = {}
        self._serial = 0.0

    def step(self) -> None:
        found = read_config(self.files)
        if not self.alive or not isinstance(found, PluginConfig):
            return
        self.config = found
        resources = {device.resource: True for device in found.devices}
        self._serial += 1
        write_loaded(
            self.files,
            Loaded(hash=found.hash, loaded_at=self._serial, boot_token="t", registered=resources, errors=self.problems),
        )

    def offered(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {device.resource: [] for device in self.config.devices}
        for device in self.config.offered() if self.alive else ():
            found[device.resource].append(device.id)
        return {resource: tuple(ids) for resource, ids in found.items()}

    def allocate(self, device_id: str, resource: str, at: float) -> bool:
        if not any(device.id == device_id for device in self.config.offered()):
            return False
        self.allocations[device_id] = Allocation(id=device_id, resource=resource, at=at)
        write_ledger(self.files, self.allocations.values())
        return True


class FakeKubelet:
    """Devices as of the last `step`; pods as they were admitted."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self.devices: dict[str, tuple[str, ...]] = {}
        self.held: dict[tuple[str, str], dict[str, dict[str, tuple[str, ...]]]] = {}
        self.known: set[tuple[str, str]] = set()
        self.entries: tuple[CheckpointEntry, ...] = ()
        self.age_seconds: float | None = 3600.0
        self.refuses = ""

    def step(self) -> None:
        self.devices = self._plugin.offered()

    def listed(self) -> Listed | NoAnswer:
        if self.refuses:
            return NoAnswer(reason=self.refuses)
        return Listed(pods={key: self.held.get(key, {}) for key in sorted(self.known)})

    def allocatable(self) -> Allocatable | NoAnswer:
        return NoAnswer(reason=self.refuses) if self.refuses else Allocatable(ids=dict(self.devices))

    def checkpoint(self) -> tuple[CheckpointEntry, ...]:
        return self.entries

    def seconds_since_start(self) -> float | None:
        return self.age_seconds


class World:
    """Use `run` or `settle`, then look at `status`, `layout`, `offered`."""

    def __init__(self, path: Path, gpus: Iterable[tuple[GpuModel, GpuOptions]]) -> None:
        self.clock = Clock()
        self.effect = Effects()
        self.machine = path / "machine.json"
        self.undo = install(create(self.machine, gpus, "seed"))
        self.state = StateDir(path / "state")
        self.state.plugin.directory.mkdir(parents=True)
        self.plugin = Plugin(self.state.plugin)
        self.kubelet = FakeKubelet(self.plugin)
        self.plan: Raw | None = None
        self.node: Raw = {
            "metadata": {"name": NODE, "uid": "node-uid", "resourceVersion": "1"},
            "spec": {},
            "status": {"allocatable": {"cpu": "8"}, "nodeInfo": {"bootID": "boot"}},
        }
        self.pods: dict[tuple[str, str], Raw] = {}
        self.running: dict[tuple[str, str], tuple[str, ...]] = {}
        """Truth: devices of containers that run, whatever API and kubelet say."""
        self.events: list[tuple[str, str, str]] = []
        self.node_ticks = True
        self.write_allocatable = False
        self.version = 10
        self.bound = 0
        self.restart()

    # ---------------------------------------------------------------------------------------- the agent

    def restart(self) -> None:
        """A new agent process: nothing but the disk is left of the old one."""
        self.driver = WatchedDriver(self.effect, lambda: {i for ids in self.running.values() for i in ids})
        self.plan_cell, self.node_cell = PlanCell(), NodeCell()
        self.book = PodBook(clock=self.clock, slack_seconds=30.0)
        advertiser = WatchedAdvertiser(self.state.plugin, self.effect)
        journal = WatchedJournal(self.state.journal, self.effect)
        sources = Sources(
            plan=self.plan_cell,
            node=self.node_cell,
            pods=self.book,
            kubelet=self.kubelet,
            driver=self.driver,
            files=self.state.plugin,
            advertiser=advertiser,
            holdings=WatchedHoldings(self.state.holdings, self.effect, self.clock),
            journal=journal,
        )
        self.metrics = AgentMetrics(NODE, "1")
        parts = Parts(
            plan=self.plan_cell,
            node=self.node_cell,
            observer=Observer(sources, kubelet_start_seconds=60.0),
            actuator=Actuator(self.driver, journal, clock=self.clock),
            advertiser=advertiser,
            guard=NodeGuard(self, write_allocatable=self.write_allocatable),
            confirmer=Confirmer(clock=self.clock, loaded_deadline_seconds=60.0, allocatable_deadline_seconds=30.0),
            reporter=Reporter(
                writer=self,
                events=self,
                metrics=self.metrics,
                clock=self.clock,
                now=lambda: f"t{self.clock.now:g}",
                agent_version="1",
                config_path="config.json",
            ),
        )
        self.agent = Agent(parts, clock=self.clock, resync_seconds=10.0)
        self._feed()

    def _feed(self) -> None:
        """What the watches would bring."""
        self.plan_cell.change(None, None, parse_plan(self.plan) if self.plan else None)
        self.node_cell.change(None, None, parse_node(self.node))
        known = self.book.seen()
        for pod in known.pods:
            if pod.key not in self.pods:
                self.book.change(pod.key, pod, None)
        for key, raw in self.pods.items():
            self.book.change(key, None, parse_pod(raw))
        self.book.set_synced()

    def pass_only(self) -> float:
        """One pass, and nothing around the agent moves."""
        self._feed()
        return self.agent.reconcile()

    def run(self, seconds: float = 0.5) -> float:
        """One pass, then everything around the agent moves by one step."""
        due = self.pass_only()
        self.step(seconds)
        return due

    def step(self, seconds: float = 0.5) -> None:
        self.plugin.step()
        self.kubelet.step()
        if self.node_ticks:
            self.tick()
        self.clock.now += seconds

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

    # ------------------------------------------------------------------------------- API: plan and node

    def apply(
        self,
        *gpus: Raw,
        planned: Iterable[Raw] | None = None,
        paused: bool = False,
        backend: str = "",
    ) -> None:
        """A new spec, hence a new generation."""
        spec: Raw = {"nodeName": NODE, "gpus": list(gpus)}
        if planned is not None:
            spec["planned"] = {"gpus": list(planned)}
        if paused:
            spec["paused"] = True
        if backend:
            spec["devicePlugin"] = {"backend": backend}
        before = self.plan or {"metadata": {"generation": 0}, "status": {}}
        self.version += 1
        metadata = {
            "name": NODE,
            "uid": "plan-uid",
            "generation": before["metadata"]["generation"] + 1,
            "resourceVersion": str(self.version),
        }
        self.plan = {
            "apiVersion": "gpuplan.dev/v1alpha1",
            "kind": "GPUPartitionPlan",
            "metadata": metadata,
            "spec": spec,
            "status": before["status"],
        }

    def write(self, plan: PlanSeen, status: Mapping[str, Any]) -> float | None:
        """StatusSink."""
        if self.plan is None or same(status, plan.status):
            return None
        self.version += 1
        conditions = [c for c in self.plan["status"].get("conditions", []) if c["type"] == "AgentAlive"]
        merged = {**status, "conditions": sorted([*status["conditions"], *conditions], key=lambda c: str(c["type"]))}
        metadata = {**self.plan["metadata"], "resourceVersion": str(self.version)}
        self.plan = {**self.plan, "metadata": metadata, "status": merged}
        self.plan_cell.accept(parse_plan(self.plan))
        self.effect("status")
        return None

    def set_taint(self, wanted: bool) -> str:
        """NodeWriting, by the product's own patch."""
        for operation in _taint_operations(self.node, wanted):
            taints = self.node["spec"].setdefault("taints", [])
            if operation["op"] == "add":
                taints.extend(operation["value"] if isinstance(operation["value"], list) else [operation["value"]])
            elif operation["op"] == "remove":
                del taints[int(operation["path"].rpartition("/")[2])]
        self._node_written()
        self.effect(f"taint {wanted}")
        return ""

    def set_allocatable(self, counts: Mapping[str, int]) -> str:
        """NodeWriting."""
        self.node["status"]["allocatable"].update({name: str(count) for name, count in counts.items()})
        self._node_written()
        self.effect("allocatable")
        return ""

    def _node_written(self) -> None:
        version = str(int(self.node["metadata"]["resourceVersion"]) + 1)
        self.node = {**self.node, "metadata": {**self.node["metadata"], "resourceVersion": version}}
        self.node_cell.accept(parse_node(self.node))

    def tick(self) -> None:
        """The kubelet writes node.status."""
        amounts = {resource: str(len(ids)) for resource, ids in self.kubelet.devices.items()}
        status = {**self.node["status"], "allocatable": {**self.node["status"]["allocatable"], **amounts}}
        version = str(int(self.node["metadata"]["resourceVersion"]) + 1)
        self.node = {
            **self.node,
            "metadata": {**self.node["metadata"], "resourceVersion": version},
            "status": status,
        }

    def emit(self, about: ObjectReference, event_type: EventType, reason: str, message: str) -> None:
        """Events."""
        self.events.append((about.name, reason, message))

    # ------------------------------------------------------------------------------------------- pods

    def pod(self, resource: str, name: str = "", count: int = 1, *, device: str = "") -> tuple[str, str]:
        """Bind a pod, let the kubelet admit it, and start its container; the chosen id is the first that fits."""
        self.bound += 1
        key = ("default", name or f"p{self.bound}")
        self.pods[key] = pod_json(key, resource, count, uid=f"uid-{self.bound}")
        taken = {i for held in self.kubelet.held.values() for c in held.values() for ids in c.values() for i in ids}
        free = [i for i in self.kubelet.devices.get(resource, ()) if i not in taken and (not device or i == device)]
        self.kubelet.known.add(key)
        ids = tuple(free[:count])
        if len(ids) < count or not all(self.plugin.allocate(i, resource, self.clock.now) for i in ids):
            self.kubelet.known.discard(key)
            self.pods[key]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"}
            return key
        self.kubelet.held[key] = {"main": {resource: ids}}
        self.kubelet.entries += (CheckpointEntry(pod_uid=f"uid-{self.bound}", ids=ids),)
        self.pods[key]["status"] = {"phase": "Running", "startTime": "t", "containerStatuses": [RUNNING]}
        self.running[key] = ids
        for device_id in ids:
            if "::" not in device_id:
                processes.attach(self.machine, device_id, 1000 + self.bound, 1)
        return key

    def finish(self, key: tuple[str, str]) -> None:
        """The container ends, the kubelet lets go, the pod says Succeeded."""
        self._stop(key)
        self.forget(key)
        self.pods[key]["status"] = {"phase": "Succeeded", "startTime": "t"}

    def forget(self, key: tuple[str, str]) -> None:
        """The kubelet drops the pod from its List and gives its devices away."""
        self.kubelet.known.discard(key)
        self.kubelet.held.pop(key, None)

    def force_delete(self, key: tuple[str, str], *, seen_by_driver: bool = True) -> None:
        """Gone from API and List at once, while the container runs on."""
        self.forget(key)
        uid = self.pods.pop(key)["metadata"]["uid"]
        self.kubelet.entries = tuple(entry for entry in self.kubelet.entries if entry.pod_uid != uid)
        if not seen_by_driver:
            self._detach(key)

    def _stop(self, key: tuple[str, str]) -> None:
        self._detach(key)
        self.running.pop(key, None)

    def end_container(self, key: tuple[str, str]) -> None:
        """The container of a vanished pod ends at last."""
        self._stop(key)

    def _detach(self, key: tuple[str, str]) -> None:
        number = self.running_number(key)
        processes.detach(self.machine, number)

    def running_number(self, key: tuple[str, str]) -> int:
        name = key[1]
        return 1000 + int(name[1:]) if name[1:].isdigit() else 1000 + self.bound

    # --------------------------------------------------------------------------------------- questions

    def gpu(self, index: int = 0) -> ObservedGpu:
        return NvmlDriver().observe()[index]

    def layout(self, index: int = 0) -> str:
        return str(self.gpu(index).layout)

    def offered(self) -> dict[str, int]:
        return {resource: len(ids) for resource, ids in sorted(self.kubelet.devices.items()) if ids}

    def status(self) -> Raw:
        assert self.plan is not None
        return dict(self.plan["status"])

    def gpu_status(self, index: int = 0) -> Raw:
        return next(dict(gpu) for gpu in self.status()["gpus"] if gpu["index"] == index)

    def condition(self, kind: str) -> Raw:
        return next(dict(c) for c in self.status()["conditions"] if c["type"] == kind)

    def found(self, index: int = 0) -> tuple[str, str]:
        """State and reason."""
        gpu = self.gpu_status(index)
        return gpu["state"], gpu["reason"]

    def partitions(self, index: int = 0) -> list[str]:
        return [f"{p['resource'].rpartition('/')[2]} {p['state']}" for p in self.gpu_status(index)["partitions"]]

    def tainted(self) -> bool:
        return any(t["key"] == "gpuplan.dev/changing" for t in self.node["spec"].get("taints") or [])


RUNNING = {"name": "main", "state": {"running": {}}}


def pod_json(key: tuple[str, str], resource: str, count: int, *, uid: str) -> Raw:
    return {
        "metadata": {"namespace": key[0], "name": key[1], "uid": uid},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "resources": {"limits": {resource: str(count)}}}],
        },
        "status": {"phase": "Pending"},
    }


def mig(index: int, *instances: tuple[str, int] | str, uuid: str = "") -> Raw:
    """An item: ("1g.10gb", 0) is exact, "1g.10gb" or "1g.10gb*3" counts."""
    wire: list[Raw] = []
    for instance in instances:
        if isinstance(instance, tuple):
            wire.append({"profile": instance[0], "start": instance[1]})
        else:
            profile, _, count = instance.partition("*")
            wire.append({"profile": profile, **({"count": int(count)} if count else {})})
    return {"index": index, **({"uuid": uuid} if uuid else {}), "mig": {"instances": wire}}


def mps(index: int, *gigabytes: int, threads: int | None = None) -> Raw:
    more = {} if threads is None else {"threadPercent": threads}
    return {"index": index, "mps": {"slices": [{"memoryGB": n, **more} for n in gigabytes]}}


def whole(index: int) -> Raw:
    return {"index": index, "whole": {}}
