"""The processes of plugin and MPS daemons: they end well on SIGTERM, and the plugin comes back after SIGKILL."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from urllib.request import urlopen

import pytest

from nodeagent.handover.config import Device, DeviceKind, PluginConfig, write_config
from nodeagent.handover.files import boot_id
from sandbox.ports import LOOPBACK, HeldPort
from tests import mps as daemons
from tests.nodeagent.device_plugin.conftest import PluginNode
from tests.nodeagent.device_plugin.devices import GPU_B, SLICE, mps
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.slow

GRACE_SECONDS = 30
"""terminationGracePeriodSeconds of the pods."""
MIG = "nvidia.com/mig-1g.10gb"
CONFIG = PluginConfig.of([Device(id="MIG-0", resource=MIG, gpu="GPU-a", kind=DeviceKind.MIG)])
Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(node: PluginNode) -> Iterator[Spawn]:
    started: list[subprocess.Popen[str]] = []

    def start(module: str = "nodeagent.device_plugin", *more: str) -> "subprocess.Popen[str]":
        folders = {"--state-dir": node.files.directory.parent, "--mps-root": node.mps_root}
        if module == "nodeagent.device_plugin":
            folders |= {"--kubelet-dir": node.kubelet_dir}
        arguments = [str(part) for pair in folders.items() for part in pair]
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, *more],
            stderr=subprocess.PIPE,
            text=True,
            env=node.environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=SECONDS)


def is_another(node: PluginNode, boot_token: str) -> bool:
    loaded = node.loaded()
    return loaded is not None and loaded.boot_token != boot_token


def test_sigterm_ends_it_cleanly(node: PluginNode, kubelet: FakeKubelet, spawn: Spawn) -> None:
    process = spawn()
    node.load(CONFIG)
    second = spawn()
    assert second.wait(timeout=SECONDS) == 1
    assert second.stderr is not None
    assert "another device plugin runs on" in second.stderr.read()
    assert kubelet.open_streams(MIG) == 1

    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    eventually(lambda: kubelet.open_streams(MIG) == 0, "the end of the stream")
    assert not list((node.kubelet_dir / "device-plugins").glob("gpuplan-*"))
    loaded = node.loaded()
    assert loaded is not None
    assert (loaded.hash, loaded.registered) == ("", {MIG: False})


def test_the_plugin_tells_the_probe_that_it_lives(node: PluginNode, kubelet: FakeKubelet, spawn: Spawn) -> None:
    with closing(HeldPort()) as port:
        process = spawn("nodeagent.device_plugin", "--liveness-port", str(port.number))
        node.load(CONFIG)
        for _ in range(2):
            with urlopen(f"http://{LOOPBACK}:{port.number}/healthz", timeout=60) as page:
                assert (page.status, page.read()) == (200, b"ok\n")
            kubelet.stop()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SECONDS) == 0


def test_sigterm_ends_the_supervisor_while_an_mps_daemon_hangs(
    node: PluginNode, kubelet: FakeKubelet, spawn: Spawn
) -> None:
    spawn()
    supervisor = spawn("nodeagent.mps")
    node.load(PluginConfig.of([mps(0)]))
    eventually(lambda: kubelet.healthy(SLICE), "a healthy slice")
    daemons.hang(node.pipe(GPU_B), 3600)

    supervisor.send_signal(signal.SIGTERM)

    assert supervisor.wait(timeout=GRACE_SECONDS) == 0


def test_the_plugin_comes_back_after_sigkill(node: PluginNode, kubelet: FakeKubelet, spawn: Spawn) -> None:
    process = spawn()
    before = node.load(CONFIG)
    kubelet.allocate(MIG)
    for _ in range(2):
        process.kill()
        process.wait(timeout=SECONDS)
        process = spawn()
        eventually(partial(is_another, node, before.boot_token), "another plugin process in loaded.json")
        before = node.load(CONFIG)
        eventually(lambda: kubelet.healthy(MIG) == {"MIG-0"}, "the device at the kubelet")
    assert kubelet.overlaps == []
    assert "MIG-0" in node.files.ledger.read_text()


def test_the_plugin_reads_the_boot_of_the_machine(node: PluginNode, kubelet: FakeKubelet, spawn: Spawn) -> None:
    write_config(node.files, replace(CONFIG, boot_id="another"))
    spawn()
    eventually(
        lambda: MIG in kubelet.resources and kubelet.resources[MIG].devices == {"MIG-0": "Unhealthy"},
        "MIG in kubelet.resources and kubelet.resources[MIG].devices == {'MIG-0': 'Unhealthy'}",
    )

    write_config(node.files, replace(CONFIG, boot_id=boot_id()))
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-0"}, "kubelet.healthy(MIG) == {'MIG-0'}")
