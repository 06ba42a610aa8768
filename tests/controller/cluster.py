"""The sandbox's API server with the CRD, seen through short verbs: what the controller's tests change and observe."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiClient
from prometheus_client import CollectorRegistry

from controller.actions.cluster_gauges import ClusterGauges
from controller.actions.environment import Environment
from controller.actions.metrics import Metrics
from controller.api.nodes import read_node
from controller.api.plans import read_plan
from controller.api.pods import read_pod
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.cache.state import State
from controller.cache.watches import read_beat
from controller.model.views import PlannerOptions
from crds.v1alpha1 import paths
from crds.v1alpha1.names import AGENT_MANAGER, NAMESPACE, agent_lease
from kube import apply, clients
from kube.leases import lease_path
from tests.apiserver import ApiServer, Fault, Refuse
from tests.builders.objects import Json, binding, confirmed, crd, lease, manifest, plan
from tests.clock import Clock


class ApiCluster:
    """One API server; `load` brings a State up to date as the watches would."""

    def __init__(self) -> None:
        self.server = ApiServer().start()
        self.api: ApiClient = clients.for_url(self.server.url)
        apply.create(self.api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
        apply.create(
            self.api,
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        )

    def plan(self, name: str = "n1", **spec: Any) -> Json:
        return apply.create(self.api, paths.PLANS, manifest(plan(name, spec=spec)), manager="people")

    def node(self, raw: Json) -> Json:
        """With its status, and without the uid that only the server gives."""
        return apply.create(self.api, paths.NODES, manifest(raw))

    def pod(self, raw: Json) -> Json:
        created = apply.create(self.api, "/api/v1/namespaces/default/pods", manifest(raw))
        return apply.merge_patch(
            self.api, paths.pod_status("default", created["metadata"]["name"]), {"status": raw["status"]}
        )

    def bind(self, name: str, node: str) -> None:
        apply.create(self.api, f"/api/v1/namespaces/default/pods/{name}/binding", binding(name, node))

    def agent_status(self, name: str, status: Json) -> Json:
        """What the node's agent writes."""
        body = manifest(plan(name, status=status))
        del body["spec"]
        return apply.apply_status(self.api, paths.plan(name), body, manager=AGENT_MANAGER)

    def confirm(self, name: str = "n1", *, used: Iterable[int] = ()) -> Json:
        """The agent has carried out the plan, on the Node that is there now."""
        status = confirmed(self.get_plan(name), used=used)
        status["node"]["uid"] = self.get_node(name)["metadata"]["uid"]
        return self.agent_status(name, status)

    def beat(self, name: str, moment: str) -> None:
        spec = {"holderIdentity": name, "renewTime": moment}
        body = lease(agent_lease(name), spec, namespace=NAMESPACE)
        apply.apply(self.api, lease_path(NAMESPACE, agent_lease(name)), body, manager=AGENT_MANAGER, force=True)

    def pin(self, name: str, *items: Json, manager: str = "people") -> Json:
        return apply.merge_patch(self.api, paths.plan(name), {"spec": {"gpus": list(items)}}, manager=manager)

    def get_plan(self, name: str = "n1") -> Json:
        return apply.get(self.api, paths.plan(name))

    def get_node(self, name: str = "n1") -> Json:
        return apply.get(self.api, paths.node(name))

    def get_pod(self, name: str = "p") -> Json:
        return apply.get(self.api, f"/api/v1/namespaces/default/pods/{name}")

    def plans(self) -> list[str]:
        return [item["metadata"]["name"] for item in apply.get(self.api, paths.PLANS)["items"]]

    def events(self) -> list[Json]:
        found: list[Json] = apply.get(self.api, "/api/v1/events")["items"]
        return found

    def conditions(self, name: str = "n1") -> dict[str, Json]:
        return {c["type"]: c for c in self.get_plan(name).get("status", {}).get("conditions", [])}

    def load(self, state: State, *, late: Collection[str] = ()) -> None:
        """Everything the watches would bring, but the late ones; what is gone is not noticed."""
        for raw in apply.get(self.api, paths.NODES)["items"] if "nodes" not in late else ():
            state.observe_node(raw["metadata"]["name"], read_node(raw))
        for raw in apply.get(self.api, paths.PLANS)["items"] if "plans" not in late else ():
            state.observe_plan(raw["metadata"]["name"], read_plan(raw))
        for raw in apply.get(self.api, paths.PODS)["items"] if "pods" not in late else ():
            state.observe_pod((raw["metadata"]["namespace"], raw["metadata"]["name"]), read_pod(raw))
        for raw in apply.get(self.api, lease_path(NAMESPACE))["items"]:
            if beat := read_beat(raw):
                renew_time, problem, version = beat
                name = raw["metadata"]["name"].removeprefix(agent_lease(""))
                state.observe_lease(name, version)
                state.observe_heartbeat(name, renew_time, problem)

    def refuse(self, method: str, part: str, code: int = 500) -> Fault:
        """Refuse requests whose path holds `part`, until the fault is removed from `server.faults`."""

        def fault(request: Any) -> Refuse | None:
            return Refuse(code=code) if request.method == method and part in request.path else None

        self.server.faults.append(fault)
        return fault


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Bench:
    """A State on a clock of its own, fed from a Cluster."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.cluster = cluster
        self.clock = Clock()
        self.window: Batcher[str] = Batcher(idle_seconds=10, timeout_seconds=60, clock=self.clock)
        self.options = PlannerOptions()
        self.state = State(ClusterCache(options=self.options, clock=self.clock), window=self.window)
        self.metrics = Metrics(CollectorRegistry())
        self.metrics.registry.register(ClusterGauges(self.state.cluster, self.window, self.metrics, clock=self.clock))
        self.leads = True

    def leading(self) -> bool:
        return self.leads

    @property
    def environment(self) -> Environment:
        """For the actions that work on this state."""
        return Environment(
            api=self.cluster.api,
            state=self.state,
            metrics=self.metrics,
            leading=self.leading,
            clock=self.clock,
            now=lambda: NOON,
        )

    def load(self) -> None:
        self.cluster.load(self.state)

    def errors(self, stage: str) -> float:
        return self.metrics.registry.get_sample_value("gpuplan_errors_total", {"stage": stage}) or 0.0
