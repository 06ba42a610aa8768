"""Two nodes with the pods that deploy/ puts on them, and the tokens that their kubelets fetch for the agents.

Takes a cluster with deploy/ applied; gives nodes without hardware, DaemonSet pods that the real scheduler has bound,
and clients that hold real tokens: each agent's bound to its pod and node, the controller's as its Deployment's pods
have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.builders import objects as builders
from tests.e2e.real_cluster import AGENT, CONTROLLER, NODES, PODS, RealCluster
from tests.waiting import eventually

KEPT_TAINT = {"key": "example.dev/kept", "effect": "NoSchedule"}


def node(name: str, **labels: str) -> dict[str, Any]:
    """An enabled node with CPU and memory."""
    raw = builders.node(
        name,
        labels={names.LABEL_PARTITIONING: "mig", "zone": "z", **labels},
        metadata={"annotations": {"kept": "yes"}},
        spec={"taints": [KEPT_TAINT]},
    )
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    return builders.manifest(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledNode:
    """One node and what runs on it."""

    name: str
    agent_pod: Mapping[str, Any]
    plugin_pod: Mapping[str, Any]
    token: str
    agent: ApiClient


def enable(cluster: RealCluster, name: str) -> EnabledNode:
    """Create the node, wait for its DaemonSet pods, fetch the agent's token as its kubelet does."""
    apply.create(cluster.admin, NODES, node(name))
    agent_pod = eventually(lambda: daemon_pod(cluster, AGENT, name), f"an agent pod on {name}")
    plugin_pod = eventually(lambda: daemon_pod(cluster, "gpuplan-device-plugin", name), f"a plugin pod on {name}")
    token = cluster.token(AGENT, pod=agent_pod, requester=cluster.kubelet(name))
    return EnabledNode(name=name, agent_pod=agent_pod, plugin_pod=plugin_pod, token=token, agent=cluster.bearer(token))


def daemon_pod(cluster: RealCluster, daemon_set: str, node_name: str) -> dict[str, Any] | None:
    """The pod of a DaemonSet that the scheduler has bound to the node."""
    query = {"labelSelector": f"app.kubernetes.io/name={daemon_set}", "fieldSelector": f"spec.nodeName={node_name}"}
    pods = [pod for pod in apply.get(cluster.admin, PODS, query=query)["items"]]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return live[0] if live else None


def controller(cluster: RealCluster) -> ApiClient:
    """The controller's own credentials."""
    return cluster.bearer(cluster.token(CONTROLLER))
