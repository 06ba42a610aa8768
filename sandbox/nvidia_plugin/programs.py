"""What NVIDIA's three programs have in common.

Each takes the machine and how to read its config file, which it does at its start and on SIGHUP only; times are
arguments. Must never read the config at any other time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.driver.machine import observe
from sandbox.driver.state import GpuState
from sandbox.nvidia_plugin.config_file import PREFIX, UNREADABLE, BadConfig, Config, parse

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

    def sighup(self, now: float) -> None:
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
            raise BadConfig(f"{UNREADABLE.rpartition(': ')[0]}: error opening config file: {error}") from error

    def end(self, message: str) -> None:
        """It exits 1."""
        self.running, self.ended = False, message
