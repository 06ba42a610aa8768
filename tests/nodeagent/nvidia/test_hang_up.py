"""The lost signal of NVIDIA's config-manager goes to one program of one pod, and to no other process."""

import signal
from pathlib import Path

import pytest

from nodeagent.nvidia.hang_up import HangUp

UID = "0f1e-22"


def process(proc: Path, pid: int, command: str, cgroup: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(command.encode().replace(b" ", b"\0") + b"\0")
    (proc / str(pid) / "cgroup").write_text(f"0::/{cgroup}\n")


@pytest.mark.parametrize("cgroup", ["kubepods/pod0f1e-22/c", "kubepods.slice/kubepods-pod0f1e_22.slice/c.scope"])
def test_only_the_program_of_this_pod_is_signalled(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 7, "mps-control-daemon", cgroup)
    process(tmp_path, 8, "/usr/bin/config-manager mps-control-daemon", cgroup)
    process(tmp_path, 9, "/usr/bin/mps-control-daemon", "kubepods/podother/c")
    (tmp_path / "10").mkdir()  # it has ended
    sent: list[tuple[int, int]] = []

    assert HangUp(tmp_path, lambda pid, number: sent.append((pid, number)))(UID, "mps-control-daemon") == ""
    assert sent == [(7, signal.SIGHUP)]


def test_what_cannot_be_signalled_is_returned(tmp_path: Path) -> None:
    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError("no")

    assert HangUp(tmp_path)(UID, "nvidia-device-plugin") == (
        "no process nvidia-device-plugin of its pod is found on this node"
    )
    process(tmp_path, 7, "nvidia-device-plugin", f"kubepods/pod{UID}")
    assert HangUp(tmp_path, refuse)(UID, "nvidia-device-plugin") == (
        "nvidia-device-plugin (process 7) cannot be signalled: no"
    )
    assert HangUp(tmp_path, refuse)("", "nvidia-device-plugin") != ""
