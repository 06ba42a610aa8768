"""Rules 1, 2 and 15: sockets, the checkpoint, and what becomes of pods when a kubelet starts again."""

import json
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.kubelet.bench import KubeletSide, Raw, container, pod
from tests.e2e.kubelet.test_registration import assert_stays
from tests.e2e.rig.realkubelet.runtime import connects


def one(bench: KubeletSide, **more: str) -> Raw:
    return pod(container(devices={bench.resource: 1}), script=more)


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_the_end_leaves_dead_sockets_and_ends_streams(bench: KubeletSide, kill: bool) -> None:
    plugin = bench.plugin("a")
    (bench.node.kill if kill else bench.node.stop)()
    paths = bench.node.paths
    for path in (paths.registration_socket, paths.pod_resources_socket):
        assert stat.S_ISSOCK(path.lstat().st_mode)
        assert not connects(path)
    bench.wait(lambda: plugin.ended_streams == 1, "the plugin sees the end of its stream")
    assert plugin.socket.exists()
    bench.node.start()


def test_the_start_removes_sockets_and_nothing_else(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    paths = bench.node.paths
    (paths.plugin_dir / "notes").write_text("mine")
    (paths.plugin_dir / "folder").mkdir(exist_ok=True)
    dead = paths.registration_socket.lstat()
    bench.restart()

    # In addition to these there may be .NUMBER: a checkpoint that a kubelet was writing when it was killed.
    left = {path.name for path in paths.plugin_dir.iterdir() if not path.name.startswith(".")}
    notes = {"notes"} if bench.active_list else set()
    assert left == {"kubelet.sock", "folder", "kubelet_internal_checkpoint"} | notes
    assert not plugin.socket.exists()
    assert paths.registration_socket.lstat().st_ctime_ns > dead.st_ctime_ns


def test_the_checkpoint_has_the_kubelets_form(bench: KubeletSide) -> None:
    bench.plugin("a", "b")
    raw = bench.run(one(bench))
    (held,) = bench.held()[raw["metadata"]["name"]]
    path = bench.node.paths.checkpoint
    bench.wait(lambda: raw["metadata"]["uid"] in path.read_text(), "written at the Allocate")
    content = json.loads(path.read_text())

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().count("\n") == 0
    assert set(content) == {"Data", "Checksum"}
    (entry,) = [row for row in content["Data"]["PodDeviceEntries"] if row["PodUID"] == raw["metadata"]["uid"]]
    assert entry.pop("AllocResp")
    assert entry == {
        "PodUID": raw["metadata"]["uid"],
        "ContainerName": "c",
        "ResourceName": bench.resource,
        "DeviceIDs": {"-1": [held]},
    }
    assert sorted(content["Data"]["RegisteredDevices"][bench.resource]) == ["a", "b"]


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_running_pods_go_on_with_their_devices(bench: KubeletSide, kill: bool) -> None:
    plugin = bench.plugin("a", "b")
    raw = bench.run(one(bench))
    name = raw["metadata"]["name"]
    held = bench.held()[name]

    bench.restart(kill=kill)
    bench.wait(lambda: bench.held().get(name) == held, "the pod is known again, with its device")
    assert bench.offered() == []
    bench.wait_numbers(0, 0)
    bench.again(plugin)
    bench.wait_numbers(2, 2)
    assert len(plugin.allocated) == 1, "nothing is allocated again"
    assert [seen.state for seen in bench.containers(raw)] == ["running"]
    other = bench.run(one(bench))
    assert sorted([*held, *bench.held()[other["metadata"]["name"]]]) == ["a", "b"]


def test_list_is_empty_before_the_pods_are_known(bench: KubeletSide) -> None:
    """The first answers after a start are false: pod-resources serves before any pod is there."""
    bench.plugin("a")
    raw = bench.run(one(bench))
    bench.node.kill()
    bench.node.start()
    first = bench.held()
    bench.wait(lambda: bench.held().get(raw["metadata"]["name"]) == ["a"], "known in the end")
    assert raw["metadata"]["name"] not in first


def test_without_an_api_server_list_stays_empty(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    raw = bench.run(one(bench))
    bench.restart(reachable=False)
    bench.again(plugin)
    assert_stays(lambda: bench.held() == {}, seconds=4)
    assert [seen.state for seen in bench.containers(raw)] == ["running"]

    bench.restart()
    bench.wait(lambda: bench.held().get(raw["metadata"]["name"]) == ["a"], "known in the end")


def test_a_pod_that_waits_for_its_restart_is_failed(bench: KubeletSide) -> None:
    bench.plugin("a")
    looped = container(devices={bench.resource: 1}, sleep=0.2)
    raw = bench.create(pod(looped, restart_policy="Always", script={"restarts": "99", "exit-code": "1"}))
    bench.wait(lambda: bench.backs_off(raw), "it waits")
    bench.restart()
    status = bench.wait_phase(raw, "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present" in status["message"]


def test_after_a_reboot_pods_are_failed_before_the_plugin_is_back(bench: KubeletSide) -> None:
    bench.plugin("a")
    raw = bench.run(one(bench))
    bench.node.kill()
    bench.node.lose_containers()
    bench.node.start()
    status = bench.wait_phase(raw, "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present" in status["message"]


def test_a_container_that_ended_meanwhile_is_seen(bench: KubeletSide) -> None:
    raw = bench.run(pod(container(sleep=3)))
    bench.node.kill()
    bench.wait(lambda: [seen.state for seen in bench.containers(raw)] == ["exited"], "ended without a kubelet")
    bench.node.start()
    bench.wait_phase(raw, "Succeeded")


def test_containers_of_pods_that_are_gone_are_stopped(bench: KubeletSide) -> None:
    raw = bench.run(pod(container()))
    bench.node.kill()
    bench.delete(raw, grace_seconds=0)
    bench.wait_gone(raw)
    bench.node.start()
    bench.wait(lambda: [seen.state for seen in bench.containers(raw)] == ["exited"], "the orphan is stopped")


def spoil(path: Path) -> None:
    path.write_text(path.read_text().replace('"Checksum":', '"Checksum":1'))


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:40])


@pytest.mark.parametrize("damage", [Path.unlink, spoil, cut], ids=["unlinked", "spoilt", "cut"])
def test_a_lost_checkpoint_gives_held_devices_out_again(bench: KubeletSide, damage: Callable[[Path], object]) -> None:
    """The Node still showed 2/2, so the pod runs on; List shows it without devices, permanently."""
    plugin = bench.plugin("a", "b", prefers=True)
    plugin.preference = lambda available, size: ["a"]
    raw = bench.run(one(bench))
    name = raw["metadata"]["name"]
    bench.wait_numbers(2, 2)
    bench.node.kill()
    damage(bench.node.paths.checkpoint)

    bench.node.start()
    bench.wait(lambda: bench.held().get(name) == [], "known again, without its device")
    bench.again(plugin)
    other = bench.run(one(bench))
    held = bench.held()
    assert (held[name], held[other["metadata"]["name"]]) == ([], ["a"])
    assert [seen.state for seen in bench.containers(raw)] == ["running"]


def test_a_lost_checkpoint_and_a_node_at_zero_end_the_pod(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    raw = bench.run(one(bench))
    plugin.offer().push()
    bench.wait_numbers(0, 0)
    bench.node.kill()
    bench.node.paths.checkpoint.unlink()

    bench.node.start()
    assert bench.wait_phase(raw, "Failed")["status"]["reason"] == f"OutOf{bench.resource}"
    bench.wait(lambda: [seen.state for seen in bench.containers(raw)] == ["exited"], "its container is killed")


def test_a_resource_whose_plugin_never_returns_stays_at_zero(bench: KubeletSide) -> None:
    bench.plugin("a", "b")
    bench.wait_numbers(2, 2)
    bench.restart()
    bench.wait_numbers(0, 0)
    time.sleep(2)
    assert bench.numbers() == ("0", "0")
