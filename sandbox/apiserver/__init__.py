"""A Kubernetes API server in one process, good enough that kubectl and the official client behave as on a cluster."""

from sandbox.apiserver.faults import Delay, Disconnect, Fault, Refuse
from sandbox.apiserver.server import ApiServer

__all__ = ["ApiServer", "Delay", "Disconnect", "Fault", "Refuse"]
