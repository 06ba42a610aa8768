"""Paths of the API objects that the agent reads and writes. Constants and one-line functions only."""

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
