"""One simulated node: the product's own agent, on hardware and a kubelet that are not there.

Takes what the shared watches bring, and sends every request that the agent and the kubelet of such a node would send:
the agent's passes, taints, status writes, Events and heartbeats are those of `nodeagent`, unchanged; plugin and kubelet
answer at once, but the Node's counts change at the kubelet's status tick. What differs from a real node: one watch
serves many nodes, and no pass is made just because ten seconds are over (it would send nothing).
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient

from benchmarks.scale.hardware import PodKey, SimulatedDriver, SimulatedKubelet
from benchmarks.scale.timetable import Job, Timetable
from benchmarks.scale.workload import ANNOTATION_SECONDS, Gpu
from crds.v1alpha1 import names
from kube import apply, errors
from kube.budget import RequestBudget
from kube.events import EventRecorder
from kube.leases import Heartbeat
from kube.timestamps import api_time
from nodeagent.advertise.config_file import ConfigFile
from nodeagent.advertise.delivery import ContainerDelivery
from nodeagent.advertise.node_writer import NodeWriter
from nodeagent.advertise.taint import stale
from nodeagent.agent import Agent
from nodeagent.assembly import Parts, assemble
from nodeagent.cache import NodeCache
from nodeagent.cdi.publisher import SpecificationPublisher
from nodeagent.desired.plan import ObservedPlan
from nodeagent.handover.config import DeviceListStrategy, Loaded, write_loaded
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import NodePod, parse_pod
from nodeagent.observed.processes import Processes
from nodeagent.process import LEAST_PAUSE_SECONDS
from nodeagent.report.metrics import AgentMetrics
from nodeagent.report.publish import StatusFailures, StatusWriter
from nodeagent.report.reporter import Reporter
from nodeagent.settings import Settings
from nodeagent.statedir import StateDir
from nodeagent.steps.journal import Journal

HISTORY = 20
"""Events of a node that are shown with a pod that it refuses."""
RESYNC_SECONDS = 600.0
TICK_SECONDS = 10.0
"""The kubelet's default nodeStatusUpdateFrequency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """A pod of the shared watch."""

    node: str
    pod: NodePod
    phase: str
    seconds: float | None
    """How long its container runs; None: on and on."""


def bound_pod(raw: Mapping[str, Any]) -> BoundPod | None:
    """None while it has no node."""
    node = raw["spec"].get("nodeName", "")
    seconds = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_SECONDS)
    phase = (raw.get("status") or {}).get("phase", "")
    found = BoundPod(node=node, pod=parse_pod(raw), phase=phase, seconds=float(seconds) if seconds else None)
    return found if node else None


class SimulatedNode:
    """`plan_changed`, `node_changed` and `pod_changed` from the watches; the rest is done on the timetable."""

    def __init__(
        self,
        name: str,
        gpus: tuple[Gpu, ...],
        *,
        api: ApiClient,
        kubelet_api: ApiClient,
        root: Path,
        settings: Settings,
        timetable: Timetable,
    ) -> None:
        self.name = name
        self.passes = self.begun = 0
        self.refused: list[str] = []
        """Each pod that was refused, with what came before it."""
        self._history: deque[str] = deque(maxlen=HISTORY)
        self._tainted_at: float | None = None
        self.latest_bind_seconds = 0.0
        """From a taint until a pod was seen that was bound all the same: a shorter list must wait for longer."""
        self._api, self._kubelet_api, self._settings, self._timetable = api, kubelet_api, settings, timetable
        self._state = StateDir(root / name)
        self._state.plugin.directory.mkdir(parents=True)
        self._passing = Job(self._pass, pause_seconds=LEAST_PAUSE_SECONDS)
        pods = PodBook(clock=time.monotonic)
        self._cache = NodeCache(pods, wake=partial(timetable.wake, self._passing))
        self._kubelet = SimulatedKubelet()
        self._driver = SimulatedDriver(gpus, self._kubelet)
        self._file = ConfigFile(self._state.plugin)
        self._loaded_hash = ""
        self._events = EventRecorder(api, names.AGENT_MANAGER, instance=name)
        self._heartbeat = Heartbeat(
            api,
            namespace=settings.namespace,
            name=names.agent_lease(name),
            identity=name,
            manager=names.AGENT_MANAGER,
            lease_seconds=4 * settings.heartbeat_seconds,
            renew_seconds=settings.heartbeat_seconds,
        )
        self._budget = RequestBudget()
        self._agent = self._build_agent()

    def _build_agent(self) -> Agent:
        settings, clock, state = self._settings, time.monotonic, self._state
        # No container runtime is simulated, so there is none to describe devices to.
        publisher = SpecificationPublisher(state.root / "cdi", proc=state.root, folders=())
        return assemble(
            Parts(
                state=state,
                cache=self._cache,
                driver=self._driver,
                kubelet=self._kubelet,
                file=self._file,
                journal=Journal(state.journal),
                holdings=Holdings(state.holdings, clock=clock, slack_seconds=settings.release_slack_seconds),
                processes=Processes(),
                fresh_pods=tuple,
                node=NodeWriter(self._api, self.name, self._cache.node, self._budget, clock=clock),
                delivery=ContainerDelivery(publisher, strategy=DeviceListStrategy.ENVVAR, containerd=dict, clock=clock),
                reporter=self._build_reporter(),
                clock=clock,
            ),
            settings.model_copy(update={"resync_seconds": RESYNC_SECONDS}),
        )

    def _build_reporter(self) -> Reporter:
        clock, interval_seconds = time.monotonic, self._settings.status_interval_seconds
        status = StatusWriter(
            self._api,
            self.name,
            self._cache.plan,
            self._budget,
            beats=self._heartbeat,
            failures=StatusFailures(),
            clock=clock,
            interval_seconds=interval_seconds,
        )
        return Reporter(
            write=status.write,
            emit=self._events.emit,
            metrics=AgentMetrics("scale", clock=clock),
            clock=clock,
            now=api_time,
            version="scale",
        )

    def start(self, *, offset_seconds: float) -> None:
        """Once the watches have been read; `offset_seconds` spreads what nodes do at intervals."""
        self._events.start()
        self._cache.pods.set_synced()
        self._timetable.wake(self._passing)
        self._timetable.wake(Job(self._beat), offset_seconds)
        self._timetable.wake(Job(self._tick), offset_seconds)

    def plan_changed(self, key: PodKey, old: ObservedPlan | None, new: ObservedPlan | None) -> None:
        self._cache.on_plan(key, old, new)

    def node_changed(self, key: PodKey, old: ObservedNode | None, new: ObservedNode | None) -> None:
        if new is not None and (old is None or old.without_version != new.without_version):
            self._note(f"Node shows {_some(new.allocatable)}{', tainted' if new.changing else ''}")
            self._tainted_at = (self._tainted_at or time.monotonic()) if new.changing else None
        self._cache.on_node(key, old, new)

    def pod_changed(self, key: PodKey, old: BoundPod | None, new: BoundPod | None) -> None:
        self._cache.on_pod(key, old.pod if old else None, new.pod if new else None)
        if new is None:
            self._kubelet.release(key)
        elif new.phase == "Pending" and new.pod.containers and not new.pod.handled and old is None:
            self._admit(new)
        self._timetable.wake(self._passing)

    def _pass(self) -> float:
        self._budget.renew()
        due_seconds = self._agent.reconcile().due_seconds
        self.passes += 1
        if self._file.config.hash != self._loaded_hash:
            self._load()
            return LEAST_PAUSE_SECONDS  # the plugin's file wakes the agent
        return due_seconds

    def _load(self) -> None:
        """What the device plugin does with a new config."""
        config = self._file.config
        registered = self._kubelet.load(config)
        self._note(f"listed {_some(self._kubelet.counts())}")
        loaded = Loaded(hash=config.hash, boot_token=self.name, registered=registered, mps_root="/run/mps")
        write_loaded(self._state.plugin, loaded)
        self._loaded_hash = config.hash

    def _beat(self) -> float:
        self._heartbeat.beat()
        return self._settings.heartbeat_seconds

    def _tick(self) -> float:
        node = self._cache.node.get()
        if node is not None and (wrong := stale(node, self._kubelet.counts())):
            capacities = self._kubelet.capacities()
            body = {
                "status": {
                    "capacity": {name: str(capacities.get(name, 0)) for name in sorted(wrong)},
                    "allocatable": {name: str(count) for name, count in sorted(wrong.items())},
                }
            }
            apply.merge_patch(self._kubelet_api, f"/api/v1/nodes/{self.name}/status", body)
            self._note(f"tick wrote {_some(wrong)}")
        return TICK_SECONDS

    def _admit(self, found: BoundPod) -> None:
        if self._tainted_at is not None:
            self.latest_bind_seconds = max(self.latest_bind_seconds, time.monotonic() - self._tainted_at)
        if why := self._kubelet.admit(found.pod):
            self._note(f"pod {found.pod.key[1]} refused: {why}")
            self.refused.append(f"{self.name}: {'; '.join(self._history)}")
            status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": why}
            self._timetable.once(lambda: self._write_status(found, status))
            return
        self._note(f"pod {found.pod.key[1]} admitted")
        self.begun += 1
        now = api_time()
        running = {"running": {"startedAt": now}}
        self._timetable.once(lambda: self._write_status(found, _containers("Running", now, running)))
        if found.seconds is not None:
            self._timetable.once(lambda: self._end(found, now), found.seconds)

    def _end(self, found: BoundPod, began: str) -> None:
        # A kubelet frees the devices before it writes the phase, by which the scheduler knows that it may bind another.
        self._kubelet.release(found.pod.key)
        self._note(f"pod {found.pod.key[1]} released")
        ended = {"terminated": {"exitCode": 0, "startedAt": began, "finishedAt": api_time(), "reason": "Completed"}}
        self._write_status(found, _containers("Succeeded", began, ended))
        self._timetable.wake(self._passing)

    def _note(self, what: str) -> None:
        self._history.append(f"{time.time() % 1000:.3f} {what}")

    def _write_status(self, found: BoundPod, status: Mapping[str, Any]) -> None:
        namespace, name = found.pod.key
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        try:
            apply.merge_patch(self._kubelet_api, path, {"metadata": {"uid": found.pod.uid}, "status": status})
        except (errors.NotFound, errors.Conflict):
            return  # it was deleted


def _some(counts: Mapping[str, int]) -> str:
    """Without the resources of which there are none."""
    return ", ".join(f"{count} {name.rpartition('/')[2]}" for name, count in sorted(counts.items()) if count) or "none"


def _containers(phase: str, began: str, state: Mapping[str, Any]) -> dict[str, Any]:
    main = {"name": "main", "image": "example.invalid/work", "imageID": "", "restartCount": 0}
    ready = phase == "Running"
    return {"phase": phase, "startTime": began, "containerStatuses": [{**main, "ready": ready, "state": state}]}
