"""A real control plane on loopback: etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

The embedded API server (sandbox.apiserver) teaches newcomers and keeps tests fast; this one judges. In: programs that
`binaries` found or built. Out: a kubeconfig, and servers that run until `stop` and never outlive the parent.
"""

from sandbox.controlplane.binaries import CURRENT, OLDEST, Binaries, Places, obtain
from sandbox.controlplane.gobuild import GoBuild, Missing
from sandbox.controlplane.part import ControlPlaneFailed
from sandbox.controlplane.plane import RealControlPlane

__all__ = [
    "CURRENT",
    "OLDEST",
    "Binaries",
    "ControlPlaneFailed",
    "GoBuild",
    "Missing",
    "Places",
    "RealControlPlane",
    "obtain",
]
