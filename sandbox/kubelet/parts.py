"""What the parts of one kubelet share: its settings, the pods and devices that it knows, and what it works with.

Values and references only; each of them says itself which threads may use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kube.kubelet_api.paths import KubeletPaths
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.claims import PreparedClaims
from sandbox.kubelet.devices import DeviceTable
from sandbox.kubelet.lifecycle import PodBook
from sandbox.kubelet.node_status import NodeReading
from sandbox.kubelet.registration import Endpoints
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Timings
from sandbox.loop import Loop


@dataclass(eq=False, kw_only=True)
class KubeletParts:
    node_name: str
    paths: KubeletPaths
    api: ClusterApi
    runtime: ScriptedRuntime
    loop: Loop
    table: DeviceTable
    random: Random
    timings: Timings
    cdi_dirs: Sequence[Path] = ()
    endpoints: Endpoints = field(default_factory=dict)
    book: PodBook = field(default_factory=PodBook)
    claims: PreparedClaims = field(init=False)
    node: NodeReading | None = None
    """As the API has it; None until it is seen."""

    def __post_init__(self) -> None:
        self.claims = PreparedClaims(self.paths.claims, self.book)
