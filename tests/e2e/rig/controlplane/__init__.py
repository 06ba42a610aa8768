"""A real control plane on loopback: etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

The embedded API server (sandbox.apiserver) teaches newcomers and keeps tests fast; this one judges. Takes programs that
`binaries` found or built; gives a kubeconfig, and servers that run until `stop` and never outlive the parent.
"""

from tests.e2e.rig.controlplane.binaries import CURRENT, OLDEST, Binaries, Places, obtain
from tests.e2e.rig.controlplane.gobuild import GoBuild, Missing
from tests.e2e.rig.controlplane.plane import RealControlPlane

__all__ = [
    "CURRENT",
    "OLDEST",
    "Binaries",
    "GoBuild",
    "Missing",
    "Places",
    "RealControlPlane",
    "obtain",
]
