"""The stand-in of NVIDIA's MPS control daemon below its device plugin, fact by fact."""

from pathlib import Path

import pytest

from sandbox.mps import clients
from sandbox.nvidia_plugin.mps_daemon import DEFAULT, EXCLUSIVE_PROCESS, tell
from tests import mps as daemons
from tests.sandbox.kubelet.conftest import root
from tests.sandbox.nvidia_plugin.bench import PLAIN, WHOLE, BothPrograms, mps, node, shares

__all__ = ["node", "root"]  # fixtures


@pytest.mark.parametrize(
    ("replicas", "limits"),
    [(2, ("40779M", "50.0")), (3, ("27186M", "33.0")), (7, ("11651M", "14.0")), (48, ("1699M", "2.0"))],
)
def test_limits_are_equal_shares(root: Path, replicas: int, limits: tuple[str, str]) -> None:
    node = BothPrograms(root, {"memory_mib": 81559})
    try:
        node.start(mps(replicas))
        memory, threads = node.limits()
        shown = f"{int(limits[0][:-1]) >> 10}G"  # the command shows whole GB
        assert (memory, threads) == (shown, limits[1])
    finally:
        node.close()


def test_a_daemon_shows_that_it_is_ready_and_makes_its_gpus_exclusive(node: BothPrograms) -> None:
    node.start(mps(2))
    assert (node.mps_root / ".ready").exists()
    assert (node.pipe().parent / ".started").exists()
    assert node.modes() == {EXCLUSIVE_PROCESS}


def test_without_mps_it_is_ready_all_the_same(node: BothPrograms) -> None:
    node.start(PLAIN)
    assert (node.mps_root / ".ready").exists()
    assert not node.pipe().exists()


@pytest.mark.parametrize(("key", "most"), [("H100-80GB", 48), ("V100-32GB", 16)])
def test_more_replicas_than_clients_end_it_and_the_plugin_waits_for_ever(root: Path, key: str, most: int) -> None:
    node = BothPrograms(root, {}, key=key)
    try:
        node.start(mps(most + 1))
        assert f"exceeded: {most + 1} > {most}" in str(node.daemon.ended)
        node.wait(60)
        assert node.plugin.running
        assert node.plugin.resources == {}
        node.start(mps(most))
        assert node.daemon.ended is None
    finally:
        node.close()


def test_other_replicas_keep_the_old_limits_until_a_signal(node: BothPrograms) -> None:
    node.start(mps(2))
    before = node.limits()
    node.text = mps(4)
    node.plugin.sighup(node.now)
    node.wait(1000)
    node.offers(WHOLE, *shares(node, 4))
    assert node.limits() == before
    node.daemon.sighup(node.now)
    assert node.limits()[1] == "25.0"


def test_a_stop_waits_for_the_last_client_and_restores_the_modes(node: BothPrograms) -> None:
    node.start(mps(2))
    clients.connect(node.pipe(), 7, node.uuids[0])
    node.sighup(PLAIN)
    node.wait(1000)
    assert not (node.mps_root / ".ready").exists()
    assert (node.pipe().parent / ".started").exists()
    assert node.modes() == {EXCLUSIVE_PROCESS}
    clients.disconnect(node.pipe(), 7)
    node.wait(1)
    assert node.modes() == {DEFAULT}
    assert not (node.pipe().parent / ".started").exists()
    assert (node.mps_root / ".ready").exists()


def test_a_kill_leaves_files_and_modes(node: BothPrograms) -> None:
    node.start(mps(2))
    node.daemon.running = False
    daemons.kill(node.pipe())
    assert (node.mps_root / ".ready").exists()
    assert (node.pipe().parent / ".started").exists()
    assert node.modes() == {EXCLUSIVE_PROCESS}
    node.plugin.sighup(node.now)
    node.wait(1)
    assert node.plugin.resources == {}  # it asks the daemon, not the files


def test_a_daemon_that_died_alone_leaves_the_gpus_exclusive(node: BothPrograms) -> None:
    node.start(mps(2))
    tell(node.pipe(), command="quit")
    node.daemon.sighup(node.now)
    assert "error sending quit message" in str(node.daemon.ended)
    assert node.modes() == {EXCLUSIVE_PROCESS}
    assert node.plugin.resources  # nothing checks the daemon later


def test_a_gpu_in_mig_mode_ends_the_daemon_at_its_first_retry(root: Path) -> None:
    node = BothPrograms(root, {}, {"mig_enabled": True})
    try:
        node.start(mps(2))
        assert node.daemon.running
        assert not (node.mps_root / ".ready").exists()
        node.wait(30)
        assert "error sending quit message" in str(node.daemon.ended)
    finally:
        node.close()
