"""What NVIDIA's three programs have in common, and the smallest of them, GPU feature discovery.

Each takes the machine and how to read its config file, which it does at its start and on SIGHUP only; times are
arguments. Feature discovery returns labels, late, for they go by another object and another program; where a GPU is in
MIG mode, an MPS config ends it and the old labels stay. Must never be quick: nothing may take its labels for proof.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.driver.machine import observe
from sandbox.driver.state import GpuState
from sandbox.nvidia_plugin.config_file import MPS, PREFIX, BadConfig, Config, parse

RETRY_SECONDS = 30.0
MPS_CAPABLE = f"{PREFIX}mps.capable"


@dataclass(eq=False)
class Program:
    """One process, and its restarts."""

    machine: Path
    read: Callable[[], str]
    running: bool = field(default=False, init=False)
    ended: str | None = field(default=None, init=False)
    """Why it exited 1."""

    def start(self, now: float) -> None:
        self.running, self.ended = True, None
        self.load(now)

    def load(self, now: float) -> None:
        """Read the config and do what it says."""
        raise NotImplementedError

    def hang_up(self, now: float) -> None:
        """SIGHUP."""
        if self.running:
            self.load(now)

    def terminate(self, now: float) -> None:  # noqa: ARG002 - others wait
        """SIGTERM."""
        self.running = False

    def step(self, now: float) -> None:
        """Do what is due."""

    @property
    def gpus(self) -> Sequence[GpuState]:
        """By index."""
        return observe(self.machine)["gpus"]

    def config(self) -> Config:
        """Raises BadConfig."""
        try:
            return parse(self.read())
        except OSError as error:
            raise BadConfig(str(error)) from error

    def end(self, message: str) -> None:
        """It exits 1."""
        self.running, self.ended = False, message


@dataclass(eq=False)
class FeatureDiscovery(Program):
    """One process of it."""

    delay_seconds: float
    _labels: Mapping[str, str] = field(default_factory=dict, init=False)
    _due_at: float = field(default=0.0, init=False)

    def load(self, now: float) -> None:
        try:
            config = self.config()
            if config.strategy == MPS and any(gpu["mig_mode"] for gpu in self.gpus):
                raise BadConfig("failed to check MPS-capable: MPS sharing is not supported for mig devices")
        except BadConfig as bad:
            self.end(str(bad))
            return
        name = self.gpus[0]["name"].replace(" ", "-")
        self._due_at = now + self.delay_seconds
        self._labels = {
            f"{PREFIX}gpu.product": f"{name}-SHARED" if config.of_gpus > 1 and not config.renamed else name,
            f"{PREFIX}gpu.replicas": str(config.of_gpus),
            f"{PREFIX}gpu.sharing-strategy": config.strategy,
            MPS_CAPABLE: str(config.strategy == MPS).lower(),
        }

    def labels(self, now: float) -> Mapping[str, str]:
        """Those that have arrived at the Node."""
        return self._labels if self.running and now >= self._due_at else {}
