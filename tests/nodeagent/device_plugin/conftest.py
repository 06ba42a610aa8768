"""A node's directories on short paths, the MPS command's stand-in, and plugin services that stop with their test."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO

import pytest

from nodeagent.device_plugin.registration import RegistrationTiming
from nodeagent.device_plugin.service import PluginService, ServiceTiming
from nodeagent.handover.config import Loaded, PluginConfig, PluginFiles, read_loaded, write_config
from nodeagent.handover.mps_state import MpsDaemon, MpsState, hold_mps_lock, write_mps
from nodeagent.mps.daemons import DaemonTiming
from nodeagent.mps.supervisor import MpsSupervisor
from sandbox.mps import search_path
from tests import folders
from tests.nodeagent.device_plugin.devices import GPU_A, GPU_B, GPU_C
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually


@dataclass(frozen=True)
class PluginNode:
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
        return {**os.environ, "PATH": search_path(os.environ["PATH"])}

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
def node() -> Iterator[PluginNode]:
    root = Path(tempfile.mkdtemp(prefix="gp", dir=folders.short()))  # sockets lie below: 107 bytes in all
    yield PluginNode(root)
    shutil.rmtree(root)


@pytest.fixture
def kubelet(node: PluginNode) -> Iterator[FakeKubelet]:
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


@dataclass
class Supervised:
    """A supervisor of MPS daemons, with the lock that its process would hold."""

    supervisor: MpsSupervisor
    thread: threading.Thread
    lock: IO[str]

    def stop(self) -> None:
        self.supervisor.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.lock.close()


StartMps = Callable[..., Supervised]


@pytest.fixture
def daemons_answer(node: PluginNode) -> Iterator[None]:
    """As a supervisor reports that every daemon answers; none runs."""
    lock = hold_mps_lock(node.files)
    assert lock is not None
    with lock:
        answering = tuple(MpsDaemon(gpu=gpu, ready=True) for gpu in (GPU_A, GPU_B, GPU_C))
        write_mps(node.files, MpsState(daemons=answering))
        yield


@pytest.fixture
def start_mps(node: PluginNode) -> Iterator[StartMps]:
    """Starts the supervisor of MPS daemons, of which `daemon_check_seconds` is the time between two checks."""
    started: list[Supervised] = []

    def start(daemon_check_seconds: float = 10.0, **timing: float) -> Supervised:
        lock = hold_mps_lock(node.files)
        assert lock is not None, "another supervisor runs"
        supervisor = MpsSupervisor(
            state_dir=node.files.directory.parent,
            mps_root=node.mps_root,
            environment=node.environment,
            timing=DaemonTiming(check_seconds=daemon_check_seconds, **timing),
        )
        thread = threading.Thread(target=supervisor.run, name="mps")
        thread.start()
        started.append(Supervised(supervisor, thread, lock))
        return started[-1]

    yield start
    for running in started:
        running.stop()
    # A check that still runs writes into the folders that are removed next.
    eventually(lambda: all(each.name != "mps" for each in threading.enumerate()), "the end of all checks")


@pytest.fixture
def start_plugin(node: PluginNode) -> Iterator[Start]:
    started: list[Running] = []

    def start(boot_id: str = "", **timing: float) -> Running:
        own = {field.name for field in fields(RegistrationTiming)} & timing.keys()
        registration = replace(RegistrationTiming(poll_seconds=0.5), **{name: timing.pop(name) for name in own})
        service = PluginService(
            state_dir=node.files.directory.parent,
            kubelet_dir=node.kubelet_dir,
            mps_root=node.mps_root,
            timing=ServiceTiming(registration=registration, **timing),
            boot_id=boot_id,
        )
        thread = threading.Thread(target=service.run, name="plugin")
        thread.start()
        started.append(Running(service, thread))
        return started[-1]

    yield start
    for running in started:
        running.stop()
