"""A real kubelet with a scripted container runtime, for tests that the stand-in must not judge itself.

`RealKubelet` is one node: kubelet and runtime as processes, in a mount namespace of their own. `obstacle` says why
it cannot run here, `scripted_runtime` builds the runtime (Go, `cri/`). Nothing of it is part of the product.
"""

from sandbox.realkubelet.build import scripted_runtime
from sandbox.realkubelet.kubelet import RealKubelet
from sandbox.realkubelet.obstacles import obstacle
from sandbox.realkubelet.runtime import Container, Runtime

__all__ = ["Container", "RealKubelet", "Runtime", "obstacle", "scripted_runtime"]
