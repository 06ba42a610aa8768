"""What the agent reads of the kubelet's own files: its checkpoint, and since when it serves."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kube.kubelet_api.paths import KubeletPaths
from nodeagent.observed.kubelet import CheckpointEntry, Kubelet
from tests import folders
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
    path = KubeletPaths(tmp_path).pod_resources_socket
    path.parent.mkdir(parents=True)
    path.touch()
    wall_clock = Clock(path.stat().st_ctime + ahead_seconds)

    found = Kubelet(tmp_path, clock=Clock(uptime_seconds), wall_clock=wall_clock).seconds_since_start()

    assert found == pytest.approx(seconds)


SHARES = (
    "import sys; from pathlib import Path; from nodeagent.observed.kubelet import Kubelet\n"
    "print(Kubelet(Path(sys.argv[1]), clock=float, wall_clock=float).shares_processes())"
)


@pytest.mark.parametrize(
    ("around", "seen"),
    [
        pytest.param([], "True", id="host PID namespace"),
        pytest.param(["unshare", "--pid", "--fork"], "False", id="a PID namespace of its own"),
        pytest.param(
            ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"],
            "False",
            id="a procfs that hides it",
        ),
    ],
)
def test_processes_are_shared_where_the_kubelets_is_visible(around: list[str], seen: str) -> None:
    if around and subprocess.run([*around, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may make no PID namespace")
    with tempfile.TemporaryDirectory(prefix="gp", dir=folders.short()) as root:  # a socket's path has 107 bytes at most
        path = KubeletPaths(Path(root)).pod_resources_socket
        path.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as kubelet:
            kubelet.bind(str(path))
            kubelet.listen()
            found = subprocess.run(
                [*around, sys.executable, "-c", SHARES, root], capture_output=True, text=True, check=True
            )
    assert found.stdout.strip() == seen


def test_a_kubelet_that_ends_while_it_is_looked_at_hides_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time would free then what a process still holds."""
    answers = iter([False])
    exists = os.path.exists
    own = f"/proc/{os.getpid()}"
    monkeypatch.setattr(os.path, "exists", lambda path: next(answers, True) if path == own else exists(path))
    with (
        tempfile.TemporaryDirectory(prefix="gp", dir=folders.short()) as root,
        socket.socket(socket.AF_UNIX) as kubelet,
    ):
        path = KubeletPaths(Path(root)).pod_resources_socket
        path.parent.mkdir(parents=True)
        kubelet.bind(str(path))
        kubelet.listen()
        assert Kubelet(Path(root), clock=Clock(), wall_clock=Clock()).shares_processes()
    assert next(answers, None) is None, "it was looked at"


def test_processes_are_not_doubted_while_no_kubelet_serves(tmp_path: Path) -> None:
    assert Kubelet(tmp_path, clock=Clock(), wall_clock=Clock()).shares_processes()
