"""The API's part of the world: one plan, one Node, and the writes that the agent makes to them."""

from collections.abc import Iterable, Mapping
from typing import Any

from crds.v1alpha1.names import CHANGING_TAINT
from crds.v1alpha1.names import LABEL_MPS_DAEMONS as MPS_LABEL
from kube.errors import ApiError, Forbidden, Unavailable
from kube.events import EventType, ObjectReference
from kube.latest import LatestVersion
from kube.patches import taint_patch
from nodeagent.advertise.counts_right import POLICY, REFUSAL, Answer, judge
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.report.publish import same
from tests.builders.objects import plan
from tests.nodeagent.items import NODE, Raw
from tests.nodeagent.node_fakes import KubeletMemory
from tests.nodeagent.watched import Effects


class ApiMemory:
    """Status sink, Node writer and Event recorder of the agent under test."""

    def __init__(self, effect: Effects, kubelet: KubeletMemory) -> None:
        self.effect, self.kubelet = effect, kubelet
        self.latest_plan, self.latest_node = LatestVersion[ObservedPlan](), LatestVersion[ObservedNode]()
        self.plan: Raw | None = None
        self.node: Raw = {
            "metadata": {"name": NODE, "uid": "node-uid", "resourceVersion": "1"},
            "spec": {},
            "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}, "nodeInfo": {"bootID": "boot"}},
        }
        self.events: list[tuple[str, str, str]] = []
        self.version = 10
        self.status_refused = ""
        """Why the API server takes no status."""
        self.taint_refused = ""
        """Why the API server refuses writes of the taint."""
        self.counts_refused = ""
        """The same of the amounts."""
        self.policy: ApiError | None = Forbidden(
            f"nodes is forbidden: {POLICY} with binding b denied request: {REFUSAL}"
        )
        """The API server's answer to the dry run of a write that the policy must refuse; None: it allows it."""

    def apply(
        self,
        *gpus: Raw,
        planned: Iterable[Raw] | None = None,
        paused: bool = False,
        backend: str = "",
    ) -> None:
        """A new spec, hence a new generation."""
        spec: Raw = {"gpus": list(gpus)}
        if paused:
            spec["paused"] = True
        if backend:
            spec["devicePlugin"] = {"backend": backend}
        before = self.plan or {"metadata": {"generation": 0}, "status": {}}
        self.version += 1
        generation = before["metadata"]["generation"] + 1
        self.plan = plan(
            NODE,
            version=self.version,
            generation=generation,
            uid="plan-uid",
            spec=spec,
            planned=planned,
            status=before["status"],
        )

    def write(self, plan: ObservedPlan, status: Mapping[str, Any]) -> float | None:
        """StatusSink."""
        if self.plan is None or same(status, plan.status):
            return None
        if self.status_refused:
            raise Unavailable(self.status_refused)
        self.version += 1
        conditions = [c for c in self.plan["status"].get("conditions", []) if c["type"] == "AgentAlive"]
        merged = {**status, "conditions": sorted([*status["conditions"], *conditions], key=lambda c: str(c["type"]))}
        metadata = {**self.plan["metadata"], "resourceVersion": str(self.version)}
        self.plan = {**self.plan, "metadata": metadata, "status": merged}
        self.latest_plan.accept(parse_plan(self.plan))
        self.effect("status")
        return None

    def set_taint(self, present: bool) -> str:
        """NodeWriting, by the product's own patch."""
        if self.taint_refused:
            return self.taint_refused
        for operation in taint_patch(self.node, CHANGING_TAINT, present=present):
            taints = self.node["spec"].setdefault("taints", [])
            if operation["op"] == "add":
                taints.extend(operation["value"] if isinstance(operation["value"], list) else [operation["value"]])
            elif operation["op"] == "remove":
                del taints[int(operation["path"].rpartition("/")[2])]
        self._node_written()
        self.effect(f"taint {present}")
        return ""

    def set_daemons(self, present: bool) -> str:
        """NodeWriting."""
        labels = {name: text for name, text in self.node["metadata"].get("labels", {}).items() if name != MPS_LABEL}
        labels |= {MPS_LABEL: "true"} if present else {}
        self.node = {**self.node, "metadata": {**self.node["metadata"], "labels": labels}}
        self._node_written()
        self.effect(f"label {present}")
        return ""

    def set_counts(self, version: str, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> str:
        """NodeWriting."""
        if self.counts_refused:
            return self.counts_refused
        if version != self.node["metadata"]["resourceVersion"]:
            self.latest_node.accept(parse_node(self.node))
            return "the Node was changed in between: the next pass tries again"
        self.write_counts(allocatable, capacity)
        self.latest_node.accept(parse_node(self.node))
        self.effect("allocatable")
        return ""

    def ask_policy(self) -> Answer | None:
        """NodeWriting."""
        return judge(self.policy)

    def write_counts(self, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> None:
        """By the agent, the kubelet or a person."""
        before = self.node["status"]
        status = {
            **before,
            "capacity": {**before["capacity"], **{name: str(count) for name, count in capacity.items()}},
            "allocatable": {**before["allocatable"], **{name: str(count) for name, count in allocatable.items()}},
        }
        version = str(int(self.node["metadata"]["resourceVersion"]) + 1)
        self.node = {
            **self.node,
            "metadata": {**self.node["metadata"], "resourceVersion": version},
            "status": status,
        }

    def _node_written(self) -> None:
        version = str(int(self.node["metadata"]["resourceVersion"]) + 1)
        self.node = {**self.node, "metadata": {**self.node["metadata"], "resourceVersion": version}}
        self.latest_node.accept(parse_node(self.node))

    def tick(self) -> None:
        """The kubelet writes node.status."""
        self.write_counts({r: len(ids) for r, ids in self.kubelet.devices.items()}, self.kubelet.capacity)

    def make_node_again(self) -> None:
        """It is deleted, which the watch brings, and the kubelet makes another one of what it lists."""
        metadata = self.node["metadata"]
        self.latest_node.on_event(None, parse_node(self.node), None)
        version = str(int(metadata["resourceVersion"]) + 1)
        fresh = {"name": NODE, "uid": f"{metadata['uid']} again", "resourceVersion": version}
        status = {**self.node["status"], "capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}
        self.node = {"metadata": fresh, "spec": {}, "status": status}
        self.tick()

    def emit(self, about: ObjectReference, event_type: EventType, reason: str, message: str) -> None:
        """Events."""
        self.events.append((about.name, reason, message))
