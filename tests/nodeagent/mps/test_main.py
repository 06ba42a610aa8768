"""The supervisor process: it ends well on SIGTERM whatever hangs, keeps a second one away, and leaves daemons alone."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from nodeagent.handover.config import PluginConfig, write_config
from nodeagent.handover.mps_state import MpsState, read_mps
from sandbox.mps import clients
from tests.mps import connected, hang
from tests.nodeagent.device_plugin.conftest import PluginNode
from tests.nodeagent.device_plugin.devices import GPU_B, mps
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.slow

Spawn = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def spawn(node: PluginNode) -> Iterator[Spawn]:
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        folders = ["--state-dir", str(node.files.directory.parent), "--mps-root", str(node.mps_root)]
        command = [sys.executable, "-m", "nodeagent.mps", *folders]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=node.environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=SECONDS)


def is_ready(node: PluginNode) -> bool:
    found = read_mps(node.files)
    return isinstance(found, MpsState) and [daemon.ready for daemon in found.daemons] == [True]


def test_sigterm_ends_it_while_a_daemon_hangs_and_the_next_one_adopts_the_daemon(
    node: PluginNode, spawn: Spawn
) -> None:
    write_config(node.files, PluginConfig.of([mps(0)]))
    process = spawn()
    eventually(lambda: is_ready(node), "a daemon that answers")
    clients.connect(node.pipe(GPU_B), 77, GPU_B)
    second = spawn()
    assert second.wait(timeout=60) == 1
    assert second.stderr is not None
    assert "another supervisor of MPS daemons runs on" in second.stderr.read()

    hang(node.pipe(GPU_B), 3600)
    write_config(node.files, PluginConfig.of([mps(0), mps(1, thread_percent=20)]))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0
    assert read_mps(node.files) is None, "what it left is not believed"

    hang(node.pipe(GPU_B), 0)
    spawn()
    eventually(lambda: is_ready(node), "the daemon answers the next supervisor")
    assert connected(node.pipe(GPU_B)) == [77]
