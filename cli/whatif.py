"""Reads a cluster from files into the snapshot that the controller would plan with.

Takes raw objects, manifests and dumps mixed; returns a Snapshot made by the controller's own parsers, with what had to
be assumed and what is left out. Every unbound pod counts as tried by the scheduler; agents count as alive unless a
plan's status reports them silent; a status is taken as it is. Never contacts an API server.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.assumptions import assumed_status, hardware_of
from cli.hardware import has_gpus
from cli.impossible import impossible
from cli.whatif_context import CONTEXT_KINDS, STORAGE, context_of
from controller.api.nodes import read_node, replicas
from controller.api.plans import PlanReading, read_plan
from controller.api.pods import read_pod
from controller.api.reading import Unreadable, epoch_seconds
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.cache.informers import FixedInformers
from controller.cache.state import State
from controller.explanation.phrases import counted, joined
from controller.model.demand import is_partition
from controller.model.scheduling import SchedulingContext
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PodView
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.names import KIND, LABEL_PARTITIONING, GpuState
from crds.v1alpha1.plan import effective_items, item_hash, plan_body
from crds.v1alpha1.spec import PlanSpec
from kube.pods import FINISHED
from partitioning.models import GpuModel
from partitioning.mps import VOLTA
from partitioning.resources import WHOLE, MigRequest, classify

Raw = Mapping[str, Any]
Json = dict[str, Any]

KINDS = ("Node", "Pod", KIND, "PriorityClass", *CONTEXT_KINDS)
_KINDS_READ = {"node": "Node", "pod": "Pod", "plan": KIND}
NOT_ENABLED = f"it is not enabled: label it {LABEL_PARTITIONING}=mig, mps or auto"
MIG_OF_CARDS = "an RTX PRO card has MIG once NVIDIA's displaymodeselector has set its mode to compute, not before"
USUAL_SIZE = {"cpu": "96", "memory": "1Ti", "pods": "110"}
"""Of a node whose manifest does not give it; the sandbox uses the same."""
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An object that planning does not see, or whose GPUs it does not use, and why."""

    kind: str
    name: str
    reason: str


@dataclass(slots=True, kw_only=True)
class WhatIf:
    """`readings` are the plans by node, those that were assumed for nodes without one included."""

    snapshot: Snapshot
    readings: Mapping[str, PlanReading]
    left_out: list[LeftOut] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    """Plans that cannot be read, and pins that no agent can make, with the reason."""


def what_if(objects: Iterable[Raw], options: PlannerOptions) -> WhatIf:
    """Read a cluster as it would be planned now."""
    by_kind: dict[str, list[Raw]] = {kind: [] for kind in KINDS}
    for raw in objects:
        by_kind[raw["kind"]].append(raw)
    reader = _Reader(options, context_of(by_kind))
    reader.read_pods(by_kind["Pod"], by_kind["PriorityClass"])
    reader.read_nodes(by_kind["Node"], {raw["metadata"]["name"]: raw for raw in by_kind[KIND]})
    found = reader.result()
    context, claiming = found.snapshot.context, sum(bool(pod.gpu and pod.volumes) for pod in found.snapshot.pending)
    known = zip(STORAGE, (context.claims, context.volumes, context.storage_classes), strict=True)
    lacking = [kind for kind, there in known if there is None]
    if claiming and lacking:
        what = f"the volumes of {counted(claiming, 'pod')} count as within reach of every node"
        found.remarks.append(f"{what}: no {joined(lacking, 'or')} is in the files")
    return found


class _Reader:
    """Fills a State of the controller, as its watches would."""

    def __init__(self, options: PlannerOptions, context: SchedulingContext) -> None:
        window: Batcher[str] = Batcher(idle_seconds=1, timeout_seconds=1, clock=lambda: 0.0)
        cluster = ClusterCache(options=options, clock=lambda: 0.0, informers=FixedInformers(context))
        self._state = State(cluster, window=window)
        self._mps_replicas = options.mps_replicas
        self._holders: dict[str, list[PodView]] = {}
        self._unknown: dict[str, str] = {}
        """Nodes with a pod of which not even the requests can be read, and why they are left out."""
        self._requested: set[str] = set()
        """MIG profiles that pending pods request."""
        self._specs: dict[str, Raw] = {}
        self._left_out: list[LeftOut] = []
        self._unreadable: list[str] = []
        self._remarks: list[str] = []

    def result(self) -> WhatIf:
        readings = {reading.name: reading for reading in self._state.cluster.plans()}
        snapshot = self._state.cluster.snapshot()
        return WhatIf(
            snapshot=snapshot,
            readings=readings,
            left_out=self._left_out,
            remarks=self._remarks,
            impossible=self._unreadable
            + [line for name in readings for line in impossible(readings[name], self._specs[name])],
        )

    def read_pods(self, pods: Sequence[Raw], classes: Sequence[Raw]) -> None:
        priorities = _Priorities(classes)
        latest = max((epoch_seconds(pod["metadata"].get("creationTimestamp")) for pod in pods), default=0)
        for raw in pods:
            view = read_pod(_complete_pod(raw, priorities, latest))
            if isinstance(view, Unreadable):
                self._leave_out(view)
                self._hold_unread(view)
            elif view.phase not in FINISHED:
                self._observe_pod(raw, view)
        for name in sorted(priorities.unknown):
            self._remarks.append(f"PriorityClass {name} is not in the files: its pods count with priority 0")

    def _hold_unread(self, found: Unreadable) -> None:
        """What it may hold counts as in use, as in the controller."""
        if found.held is not None:
            self._holders.setdefault(found.node, []).append(found.held)
            self._state.observe_pod(found.held.key, found.held)
        elif found.node and not found.finished:
            self._unknown[found.node] = f"what pod {found.name} holds there cannot be read"

    def _observe_pod(self, raw: Raw, view: PodView) -> None:
        if view.node and view.gpu:
            self._holders.setdefault(view.node, []).append(view)
        if not view.node:
            # kubectl leaves managedFields out, so that the nominator is unknown; mostly it is gpuplan's controller.
            ours = view.nomination_ours or bool(view.nominated_node and "managedFields" not in raw["metadata"])
            view = replace(view, unschedulable=True, nomination_ours=ours)
            kinds = [classify(resource) for resource, _ in view.gpu]
            self._requested.update(kind.profile for kind in kinds if isinstance(kind, MigRequest))
        self._state.observe_pod(view.key, view)

    def read_nodes(self, nodes: Sequence[Raw], plans: Mapping[str, Raw]) -> None:
        for raw in nodes:
            name = raw["metadata"]["name"]
            if reason := self._unknown.get(name):
                self._left_out.append(LeftOut(kind="Node", name=name, reason=reason))
                continue
            node = _complete_node(raw)
            plan = self._plan_for(node, plans.get(name))
            if plan is not None:
                self._state.observe_heartbeat(name, "as the files show it")
                self._state.observe_plan(name, read_plan(plan))
                self._specs[name] = plan["spec"]
            if plan is None or "uid" not in raw["metadata"] or not _is_reported(plans.get(name)):
                _advertise(node, plan)
            view = read_node(node)
            if isinstance(view, Unreadable):
                self._leave_out(view)
            else:
                self._state.observe_node(name, view)
                if warning := enablement(view.labels).warning:
                    self._remarks.append(f"node {name}: {warning}")
        known = {raw["metadata"]["name"] for raw in nodes}
        for name in sorted(plans.keys() - known):
            self._left_out.append(LeftOut(kind=KIND, name=name, reason="its node is not in the files"))

    def _plan_for(self, node: Json, plan: Raw | None) -> Raw | None:
        """The plan as it is, completed; one that is assumed where no agent has reported; None: left out."""
        if plan is not None:
            reading = read_plan(plan)
            if isinstance(reading, Unreadable):
                self._leave_out(reading)
                self._unreadable.append(f"{KIND} {reading.name} cannot be applied: {reading.reason}")
                return None
            if _is_reported(plan):
                return _complete_plan(plan, node)
        mode = enablement(node["metadata"].get("labels") or {}).mode
        if mode is None and plan is None:
            if has_gpus(node):
                self._left_out.append(LeftOut(kind="Node", name=node["metadata"]["name"], reason=NOT_ENABLED))
            return None
        return self._assumed_plan(node, plan, mode)

    def _assumed_plan(self, node: Json, plan: Raw | None, mode: str | None) -> Raw | None:
        name = node["metadata"]["name"]
        gpus = hardware_of(node)
        if isinstance(gpus, str):
            self._left_out.append(LeftOut(kind="Node", name=name, reason=gpus))
            return None
        mig_on = mode == "mig" or (mode == "auto" and any(self._is_requested(gpu.model) for gpu in gpus))
        if mode == "auto":
            self._remarks.append(f"node {name} is labelled auto: MIG mode is taken as {'on' if mig_on else 'off'}")
        if mode != "mps" and "RTX PRO" in gpus[0].name and not gpus[0].model.mig_capable:
            self._remarks.append(f"node {name}: {MIG_OF_CARDS}")
        spec = plan["spec"] if plan is not None else None
        if gpus[0].model.compute_capability < VOLTA and self._shares_alike(node, spec):
            self._remarks.append(f"node {name}: before Volta the agent makes replicas only with mpsReplicasBeforeVolta")
        status = assumed_status(node, spec, self._holders.get(name, ()), gpus, mig_on=mig_on)
        if isinstance(status, str):
            self._left_out.append(LeftOut(kind="Node", name=name, reason=status))
            return None
        return {**(plan or plan_body({"name": name}, spec={"nodeName": name})), "status": status}

    def _shares_alike(self, node: Json, spec: Raw | None) -> bool:
        """Its plan, its label or the setting requests equal replicas."""
        by_label = replicas(node["metadata"].get("labels") or {})[0]
        items = effective_items(PlanSpec.read(spec)).values() if spec else ()
        of_plan = any(item.mps is not None and item.mps.replicas for item in items)
        return of_plan or bool(self._mps_replicas if by_label is None else by_label)

    def _is_requested(self, model: GpuModel) -> bool:
        return model.confirmed and any(spec.name in self._requested for spec in model.profiles)

    def _leave_out(self, found: Unreadable) -> None:
        self._left_out.append(LeftOut(kind=_KINDS_READ[found.kind], name=found.name, reason=found.reason))


class _Priorities:
    """What the admission plugin of the API server would write into `spec.priority`."""

    def __init__(self, classes: Iterable[Raw]) -> None:
        found = {raw["metadata"]["name"]: raw for raw in classes}
        self._values = {**_PRIORITIES, **{name: int(raw.get("value") or 0) for name, raw in found.items()}}
        self._default = max(
            (int(raw.get("value") or 0) for raw in found.values() if raw.get("globalDefault")), default=0
        )
        self.unknown: set[str] = set()

    def of(self, spec: Raw) -> int:
        name = spec.get("priorityClassName")
        if not name:
            return self._default
        if name not in self._values:
            self.unknown.add(name)
        return self._values.get(name, 0)


def _complete_pod(raw: Raw, priorities: _Priorities, latest: int) -> Json:
    """A pod of a manifest is younger than every pod of a dump."""
    namespace, name = raw["metadata"].get("namespace") or "default", raw["metadata"]["name"]
    born = datetime.fromtimestamp(latest, UTC) + timedelta(seconds=1)
    added = {"namespace": namespace, "uid": f"{namespace}/{name}", "creationTimestamp": born.isoformat()}
    spec = raw["spec"]
    if spec.get("priority") is None:
        spec = {**spec, "priority": priorities.of(spec)}
    given = {key: value for key, value in raw["metadata"].items() if value is not None}
    return {**raw, "metadata": {**added, **given}, "spec": spec}


def _complete_node(raw: Raw) -> Json:
    status = raw.get("status") or {}
    allocatable = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    if "uid" not in raw["metadata"]:
        allocatable = {**USUAL_SIZE, **allocatable}
    metadata = {"uid": f"node-{raw['metadata']['name']}", **raw["metadata"]}
    return {**raw, "metadata": metadata, "status": {**status, "allocatable": allocatable}}


def _is_reported(plan: Raw | None) -> bool:
    return plan is not None and bool((plan.get("status") or {}).get("gpus"))


def _complete_plan(raw: Raw, node: Raw) -> Json:
    """A status that reports Ready is believed where it lacks the proofs that an agent would have written."""
    status = dict(raw["status"])
    items = effective_items(PlanSpec.read(raw["spec"]), {gpu["index"]: gpu.get("uuid") or "" for gpu in status["gpus"]})
    status["node"] = {"uid": node["metadata"]["uid"], **(status.get("node") or {})}
    status["gpus"] = [
        {"planHash": item_hash(items[gpu["index"]]), **gpu}
        if gpu.get("state") == GpuState.READY and gpu["index"] in items
        else gpu
        for gpu in status["gpus"]
    ]
    return {**raw, "status": status}


def _advertise(node: Json, plan: Raw | None) -> None:
    """Let a node's allocatable show the partitions of its plan's status, and no others: of those nothing is known."""
    allocatable = {
        resource: amount for resource, amount in node["status"]["allocatable"].items() if not is_partition(resource)
    }
    gpus = plan["status"]["gpus"] if plan is not None else ()
    whole = [gpu for gpu in gpus if gpu.get("migMode") != "Enabled"]
    if WHOLE in allocatable and len(whole) < len(gpus):
        allocatable[WHOLE] = str(len(whole))
    made = Counter(partition["resource"] for gpu in gpus for partition in gpu.get("partitions") or ())
    made.pop(WHOLE, None)
    node["status"]["allocatable"] = allocatable | made
