"""Stands in for NVIDIA's GPU feature discovery: the labels that say how a node's GPUs are shared.

Takes the machine and how to read its config file; returns the labels that are due, late, for they go by another object
and another program. Where a GPU is in MIG mode, an MPS config ends it and the old labels stay. Must never be quick:
nothing may take them for proof.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.nvidia_plugin.config_file import MPS, BadConfig, Config, parse
from tests.nvidia_plugin.gpus import WHOLE, gpus

PREFIX = "nvidia.com/"
MPS_CAPABLE = f"{PREFIX}mps.capable"


class FeatureDiscovery:
    """One process."""

    def __init__(self, machine: Path, read: Callable[[], str], *, delay_seconds: float) -> None:
        self.running = False
        self.ended: str | None = None
        self._machine, self._read, self._delay_seconds = machine, read, delay_seconds
        self._labels: Mapping[str, str] = {}
        self._due_at = 0.0

    def start(self, now: float) -> None:
        self.running, self.ended = True, None
        self.hang_up(now)

    def hang_up(self, now: float) -> None:
        """SIGHUP: read the config."""
        if not self.running:
            return
        try:
            config = parse(self._read())
            if config.strategy == MPS and any(gpu.mig for gpu in gpus(self._machine)):
                raise BadConfig("failed to check MPS-capable: MPS sharing is not supported for mig devices")
        except (OSError, BadConfig) as bad:
            self.running, self.ended = False, str(bad)
            return
        self._labels, self._due_at = self._of(config), now + self._delay_seconds

    def terminate(self, now: float) -> None:
        self.running = False

    def step(self, now: float) -> None:
        """Nothing is due but labels."""

    def labels(self, now: float) -> Mapping[str, str]:
        """Those that have arrived at the Node."""
        return self._labels if self.running and now >= self._due_at else {}

    def _of(self, config: Config) -> Mapping[str, str]:
        replicas = dict(config.replicas).get(WHOLE, 1)
        name = gpus(self._machine)[0].name.replace(" ", "-")
        return {
            f"{PREFIX}gpu.product": f"{name}-SHARED" if replicas > 1 and not config.renamed else name,
            f"{PREFIX}gpu.replicas": str(replicas),
            f"{PREFIX}gpu.sharing-strategy": config.strategy,
            MPS_CAPABLE: str(config.strategy == MPS).lower(),
        }
