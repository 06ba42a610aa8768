"""One simulated node with the stand-ins of NVIDIA's device plugin and MPS control daemon, for the tests of both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.driver.machine import GpuOptions, create, observe
from sandbox.nvidia_plugin.mps_daemon import MpsControlDaemon, tell
from sandbox.nvidia_plugin.plugin import NvidiaDevicePlugin
from tests.builders.models import MODELS
from tests.sandbox.kubelet.conftest import KubeletBench
from tests.waiting import eventually

WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PLAIN = "version: v1\n"


def mps(replicas: int, more: str = "") -> str:
    return f"version: v1\nsharing: {{mps: {{{more}resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"


class BothPrograms:
    """Both programs and their one config file, on a kubelet."""

    def __init__(self, root: Path, *options: GpuOptions, key: str = "H100-80GB") -> None:
        self.machine, self.mps_root = root / "machine.json", root / "m"
        create(self.machine, [(MODELS[key], option) for option in options or ({}, {})], "seed")
        self.text = PLAIN
        self.now = 0.0
        self.bench = KubeletBench(root)
        self.daemon = MpsControlDaemon(self.machine, lambda: self.text, self.mps_root)
        self.plugin = NvidiaDevicePlugin(self.machine, lambda: self.text, root, self.mps_root)
        self.bench.kubelet()
        self.bench.wait_serving()

    def start(self, text: str) -> "BothPrograms":
        self.text = text
        self.daemon.start(self.now)
        self.plugin.start(self.now)
        return self

    def sighup(self, text: str) -> None:
        self.text = text
        self.daemon.sighup(self.now)
        self.plugin.sighup(self.now)

    def wait(self, seconds: float) -> None:
        """The kubelet sees the end of the plugin's streams first, as it does while the real one reads its GPUs."""
        if not self.plugin.resources:
            for resource in (WHOLE, SHARED):
                self.offers(resource)
        self.now += seconds
        self.daemon.step(self.now)
        self.plugin.step(self.now)

    def offers(self, resource: str, *ids: str) -> None:
        eventually(lambda: self.bench.offered(resource) == sorted(ids), f"{resource}", seen=self.seen)

    def seen(self) -> object:
        return self.plugin.resources, self.plugin.ended, self.daemon.ended

    @property
    def uuids(self) -> list[str]:
        return [gpu["uuid"] for gpu in observe(self.machine)["gpus"]]

    def modes(self) -> set[int]:
        return {gpu["compute_mode"] for gpu in observe(self.machine)["gpus"]}

    def pipe(self, resource: str = WHOLE) -> Path:
        return self.mps_root / resource / "pipe"

    def limits(self, resource: str = WHOLE) -> tuple[str, str]:
        memory = tell(self.pipe(resource), command="get_default_device_pinned_mem_limit 0")
        return memory.strip(), tell(self.pipe(resource), command="get_default_active_thread_percentage").strip()

    def close(self) -> None:
        self.plugin.terminate(self.now)
        self.bench.close()


@pytest.fixture
def node(root: Path) -> Iterator[BothPrograms]:
    made = BothPrograms(root)
    yield made
    made.close()


def shares(node: BothPrograms, count: int) -> list[str]:
    return [f"{uuid}::{n}" for uuid in node.uuids for n in range(count)]
