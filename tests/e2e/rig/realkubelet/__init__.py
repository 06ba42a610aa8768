"""A real kubelet with a scripted container runtime, for tests that the stand-in must not judge itself.

`RealKubelet` is one node: kubelet and runtime as processes, in a mount namespace of their own. `obstacle` tells why
it cannot run here, `scripted_runtime` builds the runtime (Go, `cri/`). Nothing of it is part of the product.
"""

from tests.e2e.rig.realkubelet.build import scripted_runtime
from tests.e2e.rig.realkubelet.kubelet import RealKubelet
from tests.e2e.rig.realkubelet.obstacles import obstacle
from tests.e2e.rig.realkubelet.runtime import Container, Runtime

__all__ = ["Container", "RealKubelet", "Runtime", "obstacle", "scripted_runtime"]
