"""The lost signal of NVIDIA's config-manager goes to one program of one pod, and to no other process."""

import signal
from pathlib import Path

import pytest

from nodeagent.nvidia.sighup import Sighup
from tests.nodeagent.proc_tree import ProcTree

UID = "0f1e2d3c-0000-4000-8000-0123456789ab"


def process(proc: Path, pid: int, command: str, cgroup: str) -> None:
    ProcTree(proc).start(pid, cgroup=f"0::/{cgroup}", program=command.replace(" ", "\0"))


@pytest.mark.parametrize(
    "cgroup", [f"kubepods/pod{UID}/c", f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/c.scope"]
)
def test_only_the_program_of_this_pod_is_signalled(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 7, "mps-control-daemon", cgroup)
    process(tmp_path, 8, "/usr/bin/config-manager mps-control-daemon", cgroup)
    process(tmp_path, 9, "/usr/bin/mps-control-daemon", f"kubepods/pod{UID[:-1]}c/c")
    (tmp_path / "10").mkdir()  # it has ended
    sent: list[tuple[int, int]] = []

    assert Sighup(tmp_path, lambda pid, number: sent.append((pid, number)))(UID, "mps-control-daemon") == ""
    assert sent == [(7, signal.SIGHUP)]


def test_what_cannot_be_signalled_is_returned(tmp_path: Path) -> None:
    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError("no")

    assert Sighup(tmp_path)(UID, "nvidia-device-plugin") == (
        "no process nvidia-device-plugin of its pod is found on this node"
    )
    process(tmp_path, 7, "nvidia-device-plugin", f"kubepods/pod{UID}")
    assert Sighup(tmp_path, refuse)(UID, "nvidia-device-plugin") == (
        "nvidia-device-plugin (process 7) cannot be signalled: no"
    )
    assert Sighup(tmp_path, refuse)("", "nvidia-device-plugin") != ""
