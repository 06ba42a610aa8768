"""A node's directories on short paths, the MPS command's stand-in, and plugin services that stop with their test."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import sandbox
from nodeagent.device_plugin.mps_daemons import DaemonTiming
from nodeagent.device_plugin.registration import RegistrationTiming
from nodeagent.device_plugin.service import PluginService, ServiceTiming
from nodeagent.handover.config import Loaded, PluginConfig, PluginFiles, read_loaded, write_config
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

STAND_IN = Path(next(iter(sandbox.__path__))) / "mps"


@dataclass(frozen=True)
class Node:
    root: Path

    @property
    def files(self) -> PluginFiles:
        return PluginFiles(self.root / "s")

    @property
    def kubelet_dir(self) -> Path:
        return self.root / "k"

    @property
    def mps_root(self) -> Path:
        return self.root / "m"

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PATH": f"{STAND_IN}:{os.environ['PATH']}"}

    def pipe(self, gpu: str) -> Path:
        return self.mps_root / gpu[:13] / "pipe"

    def loaded(self) -> Loaded | None:
        found = read_loaded(self.files)
        return found if isinstance(found, Loaded) else None

    def load(self, config: PluginConfig) -> Loaded:
        """Write a config as the agent does and wait until the plugin reports that it is in force and registered."""
        write_config(self.files, config)

        def in_force() -> bool:
            loaded = self.loaded()
            return loaded is not None and loaded.hash == config.hash and all(loaded.registered.values())

        eventually(in_force, f"loaded.json of {config.hash}")
        loaded = self.loaded()
        assert loaded is not None
        return loaded


@pytest.fixture
def node() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="gp", dir="/tmp"))  # sockets lie below: 107 bytes in all
    yield Node(root)
    shutil.rmtree(root)


@pytest.fixture
def kubelet(node: Node) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(node.kubelet_dir)
    fake.start()
    yield fake
    fake.stop()


@dataclass
class Running:
    service: PluginService
    thread: threading.Thread

    def stop(self) -> None:
        self.service.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


Start = Callable[..., Running]


@pytest.fixture
def start_plugin(node: Node) -> Iterator[Start]:
    started: list[Running] = []

    def start(boot_id: str = "", **timing: float) -> Running:
        registration = RegistrationTiming(
            poll_seconds=0.5,
            verify_again_seconds=timing.pop("verify_again_seconds", 10),
            unanswered_seconds=timing.pop("unanswered_seconds", 60),
        )
        daemons = DaemonTiming(
            check_seconds=timing.pop("daemon_check_seconds", 10),
            confirm_seconds=timing.pop("confirm_seconds", 15),  # the stand-in starts Python for each command
        )
        service = PluginService(
            state_dir=node.files.directory.parent,
            kubelet_dir=node.kubelet_dir,
            mps_root=node.mps_root,
            environment=node.environment,
            timing=ServiceTiming(registration=registration, daemons=daemons, **timing),
            boot_id=boot_id,
        )
        thread = threading.Thread(target=service.run, name="plugin")
        thread.start()
        started.append(Running(service, thread))
        return started[-1]

    yield start
    for running in started:
        running.stop()
