"""What the agent reads of the kubelet's own files: its checkpoint, and since when it serves."""

import json
from pathlib import Path

import pytest

from kube.kubelet_api.paths import KubeletPaths
from nodeagent.observed.kubelet import CheckpointEntry, Kubelet
from tests.clock import Clock
from tests.nodeagent.halves import THREE


def test_only_entries_on_gpus_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    rows = [
        {"PodUID": "u", "ContainerName": "c", "ResourceName": name, "DeviceIDs": {"-1": [device]}, "AllocResp": ""}
        for name, device in ((THREE, "MIG-1"), ("example.com/nic", "nic-0"))
    ]
    file = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    file.parent.mkdir()
    file.write_text(json.dumps({"Data": {"PodDeviceEntries": rows, "RegisteredDevices": {}}, "Checksum": 1}))

    found = Kubelet(tmp_path, clock=Clock(), wall_clock=Clock()).checkpoint()

    assert found == (CheckpointEntry(pod_uid="u", ids=("MIG-1",)),)


def test_a_checkpoint_of_another_form_is_no_witness_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet = Kubelet(tmp_path, clock=Clock(), wall_clock=Clock())
    assert kubelet.checkpoint() == ()
    assert caplog.messages == []
    file = KubeletPaths(tmp_path).checkpoint
    file.parent.mkdir()
    file.write_text(json.dumps({"Data": {"PodDeviceEntries": {"v3": []}}}))

    assert [kubelet.checkpoint() for _ in range(3)] == [()] * 3
    assert [line for line in caplog.messages if "kubelet_internal_checkpoint is no witness" in line] == caplog.messages
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("uptime_seconds", "ahead_seconds", "seconds"),
    [
        pytest.param(5000.0, 100.0, 100.0, id="by its socket"),
        pytest.param(40.0, 3600.0, 40.0, id="a clock that was put right after the boot"),
        pytest.param(5000.0, -100.0, 0.0, id="a clock that was set back"),
    ],
)
def test_a_kubelet_is_no_older_than_its_machine_has_been_up(
    tmp_path: Path, uptime_seconds: float, ahead_seconds: float, seconds: float
) -> None:
    socket = KubeletPaths(tmp_path).pod_resources_socket
    socket.parent.mkdir(parents=True)
    socket.touch()
    wall_clock = Clock(socket.stat().st_ctime + ahead_seconds)

    found = Kubelet(tmp_path, clock=Clock(uptime_seconds), wall_clock=wall_clock).seconds_since_start()

    assert found == pytest.approx(seconds)
