"""Paths of the API objects that controller and agent read and write. Constants and one-line functions only."""

from crds.v1alpha1.names import API_VERSION, PLURAL

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
PLANS = f"/apis/{API_VERSION}/{PLURAL}"


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
