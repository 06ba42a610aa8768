"""Paths of the API objects that the controller reads and writes. Constants and one-line functions only."""

from crds.v1alpha1.names import PLANS_PATH

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
PLANS = PLANS_PATH


def plan(name: str) -> str:
    """One GPUPartitionPlan."""
    return f"{PLANS}/{name}"


def node(name: str) -> str:
    """One Node."""
    return f"{NODES}/{name}"


def config_map(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def pod_status(namespace: str, name: str) -> str:
    """The status subresource of one Pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}/status"
