"""Rules 1 and 15: dead sockets, the checkpoint, and what becomes of pods when a kubelet starts again."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ContainerState
from tests.sandbox.kubelet.builders import MIG, container, pod
from tests.sandbox.kubelet.conftest import KubeletBench, connects
from tests.waiting import SECONDS, eventually


def restart(bench: KubeletBench) -> Kubelet:
    bench.kubelets[-1].kill()
    return bench.kubelet()


@pytest.mark.parametrize("end", [Kubelet.stop, Kubelet.kill])
def test_the_end_leaves_dead_sockets_and_ends_streams(bench: KubeletBench, end: Callable[[Kubelet], None]) -> None:
    kubelet = bench.kubelet()
    plugin = bench.plugin("MIG-0")
    end(kubelet)

    for path in (bench.paths.registration_socket, bench.paths.pod_resources_socket):
        assert stat.S_ISSOCK(path.lstat().st_mode)
        assert not connects(path)
    eventually(lambda: plugin.ended_streams == 1, "the plugin sees the end of its stream")
    assert plugin.socket.exists()


def test_the_start_removes_sockets_and_nothing_else(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    (bench.paths.plugin_dir / "notes").write_text("mine")
    (bench.paths.plugin_dir / "folder").mkdir()
    bench.kubelets[-1].kill()
    dead = bench.paths.registration_socket.lstat()

    bench.kubelet()
    bench.wait_serving()
    alive = bench.paths.registration_socket.lstat()
    left = {path.name for path in bench.paths.plugin_dir.iterdir()}
    assert left == {"kubelet.sock", "notes", "folder", "kubelet_internal_checkpoint"}
    assert not plugin.socket.exists()
    assert alive.st_ctime_ns > dead.st_ctime_ns, "a new socket, even if the inode number is the old one"


def test_the_checkpoint_has_the_kubelets_form(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0", "MIG-1")
    raw = bench.run(pod("p"))
    (held,) = bench.held()["p"]
    text = bench.paths.checkpoint.read_text()
    data = json.loads(text)["Data"]

    assert stat.S_IMODE(os.stat(bench.paths.checkpoint).st_mode) == 0o600
    assert text.count("\n") == 0
    (entry,) = data["PodDeviceEntries"]
    assert entry.pop("AllocResp")
    assert entry == {
        "PodUID": raw["metadata"]["uid"],
        "ContainerName": "c",
        "ResourceName": MIG,
        "DeviceIDs": {"-1": [held]},
    }
    assert data["RegisteredDevices"] == {MIG: ["MIG-0", "MIG-1"]}


def test_running_pods_go_on_with_their_devices(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1")
    raw = bench.run(pod("p"))
    held = bench.held()

    restart(bench)
    eventually(lambda: bench.held() == held, "the pod is known again, with its device")
    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "0/0 until the plugin is back")
    plugin.serve().register()
    eventually(lambda: bench.api.allocatable(MIG) == ("2", "2"), "2/2")
    assert len(plugin.allocated) == 1
    assert bench.api.phase(raw) == "Running"
    bench.run(pod("q"))
    assert sorted([*held["p"], *bench.held()["q"]]) == ["MIG-0", "MIG-1"]


def test_a_pod_whose_container_ended_meanwhile_is_finished(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.run(pod(containers=[container(sleep=0.2)]))
    bench.kubelets[-1].kill()
    eventually(lambda: bench.runtime.containers()[0].state is ContainerState.EXITED, "ended without a kubelet")

    bench.kubelet()
    bench.wait_phase(raw, "Succeeded")


def test_after_a_reboot_pods_are_failed_before_the_plugin_is_back(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    raw = bench.run(pod())
    boot = bench.api.node_info("bootID")
    bench.kubelets[-1].kill()
    bench.runtime.lose_all()

    bench.kubelet()
    failed = bench.wait_phase(raw, "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present" in failed["status"]["message"]
    eventually(lambda: bench.api.node_info("bootID") != boot, "another boot")


def test_a_restart_is_no_reboot(bench: KubeletBench) -> None:
    bench.kubelet()
    eventually(lambda: bench.api.node_info("bootID"), "a boot id")
    boot = bench.api.node_info("bootID")
    restart(bench)
    bench.run(pod(containers=[container()]))

    assert bench.api.node_info("bootID") == boot


def spoil(path: Path) -> None:
    path.write_text(path.read_text().replace("MIG-0", "MIG-7"))


def cut(path: Path) -> None:
    path.write_text("{")


@pytest.mark.parametrize("damage", [Path.unlink, spoil, cut])
def test_a_lost_checkpoint_gives_held_devices_out_again(bench: KubeletBench, damage: Callable[[Path], object]) -> None:
    """The node still said 2/2, so the pod runs on; List shows it without devices, permanently."""
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1", prefers=True)
    plugin.preference = lambda available, size: ["MIG-0"]
    raw = bench.run(pod("p"))
    eventually(lambda: bench.api.allocatable(MIG) == ("2", "2"), "2/2")
    bench.kubelets[-1].kill()
    damage(bench.paths.checkpoint)

    bench.kubelet()
    eventually(lambda: bench.held() == {"p": []}, "known again, without its device")
    plugin.serve().register()
    eventually(lambda: bench.offered() == ["MIG-0", "MIG-1"], "the plugin is back")
    bench.run(pod("q"))
    assert bench.held() == {"p": [], "q": ["MIG-0"]}
    assert bench.api.phase(raw) == "Running"


def test_a_lost_checkpoint_and_a_node_at_zero_end_the_pod(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod())
    plugin.offer().push()
    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "the plugin was away before the restart")
    bench.kubelets[-1].kill()
    bench.paths.checkpoint.unlink()

    bench.kubelet()
    failed = bench.wait_phase(raw, "Failed")
    assert failed["status"]["reason"] == f"OutOf{MIG}"
    eventually(lambda: bench.runtime.containers()[0].state is ContainerState.EXITED, "its container is killed")


def test_containers_of_pods_that_are_gone_are_stopped(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.run(pod(containers=[container()]))
    bench.kubelets[-1].kill()
    bench.api.remove(raw["metadata"]["uid"])

    bench.kubelet()
    eventually(lambda: bench.runtime.containers()[0].state is ContainerState.EXITED, "the orphan is stopped")


def test_bound_pods_are_admitted_oldest_first(bench: KubeletBench) -> None:
    for number in (3, 1, 2):
        raw = pod(f"p{number}", containers=[container(devices=number)], created=f"2026-01-0{number}T00:00:00Z")
        bench.api.add(raw | {"status": {"phase": "Pending"}})
    bench.api.reachable = False
    bench.kubelet()
    plugin = bench.plugin(*(f"MIG-{number}" for number in range(6)))
    bench.api.come_back()

    eventually(lambda: len(plugin.allocated) == 3, "all admitted")
    assert [len(ids) for ids in plugin.allocated] == [1, 2, 3]


def test_a_kill_during_an_allocate_rejects_no_pod(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    plugin.may_allocate.clear()
    raw = bench.api.add(pod("p"))
    assert plugin.allocating.wait(SECONDS)
    bench.kubelets[-1].kill()
    plugin.may_allocate.set()
    assert "startTime" not in bench.api.status(raw)

    bench.api.reachable = False
    bench.kubelet()
    bench.wait_serving()
    plugin.serve().register()
    eventually(lambda: bench.offered() == ["MIG-0"], "the plugin is back")
    bench.api.come_back()
    bench.wait_phase(raw, "Running")
