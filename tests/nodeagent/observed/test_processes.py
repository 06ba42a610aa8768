"""Of which pod a process is, in every spelling of a cgroup, and which processes have a device open."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.processes import Process, Processes, ProcessTable
from tests.nodeagent.proc_tree import BOOTED_AT, HOST, LAYOUTS, ProcTree
from tests.waiting import eventually

UID = "0f1e2d3c-0000-4000-8000-0123456789ab"
OTHER = "0f1e2d3c-0000-4000-8000-0123456789ac"
STATIC = "0123456789abcdef0123456789abcdef"
NULL, ZERO = (1, 3), (1, 5)


def scan(tree: ProcTree) -> ProcessTable:
    found = Processes(tree.root).scan()
    assert isinstance(found, ProcessTable)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("uid", [UID, STATIC])
def test_a_cgroup_names_its_pod(tree: ProcTree, layout: str, uid: str) -> None:
    tree.start(7, uid, layout=layout)
    tree.start(8, OTHER, layout=layout)
    tree.start(9)

    assert {of: [each.pid for each in found] for of, found in scan(tree).pods().items()} == {uid: [7], OTHER: [8]}


@pytest.mark.parametrize(
    "cgroup",
    [
        HOST,
        "0::/podruntime.slice/kubelet.service",
        f"0::/machine.slice/libpod-{STATIC}{STATIC}.scope",
        f"0::/machine.slice/machine-libpod_pod_{STATIC}{STATIC}.slice/x",
        f"0::/docker/{STATIC}{STATIC}",
        "0::/",
    ],
)
def test_other_cgroups_name_none(tree: ProcTree, cgroup: str) -> None:
    tree.start(7, cgroup=cgroup)

    assert [process.pods for process in scan(tree).processes] == [frozenset()]


def test_a_pod_within_a_pod_is_of_both(tree: ProcTree) -> None:
    tree.start(7, cgroup=f"0::/kubepods/pod{UID}/c/kubelet/kubepods/pod{OTHER}/d")

    assert set(scan(tree).pods()) == {UID, OTHER}


@pytest.mark.parametrize(
    ("state", "threads", "lives"), [("Z", 1, False), ("X", 0, False), ("Z", 3, True), ("D", 1, True)]
)
def test_a_zombie_is_no_process_unless_other_threads_run(tree: ProcTree, state: str, threads: int, lives: bool) -> None:
    tree.start(7, UID, state=state, threads=threads, program="a) Z (b")

    assert (UID in scan(tree).pods()) is lives


def test_one_that_ends_meanwhile_is_passed_over(tree: ProcTree) -> None:
    tree.start(7, UID, began_seconds=5)
    (tree.root / "8").mkdir()
    (tree.root / "self").mkdir()

    (found,) = scan(tree).processes

    assert found == Process(pid=7, program="python", pods=frozenset({UID}), began_at=BOOTED_AT + 5, up_seconds=5)


def test_one_that_its_like_replace_quickly_is_read_before_it_has_ended(tree: ProcTree) -> None:
    for pid in (7, 8, 90):
        tree.start(pid, UID if pid == 90 else OTHER)

    class Late(Processes):
        def _read(self, pid: int, booted_at: float) -> Process | None:
            found = super()._read(pid, booted_at)
            if pid == 7:
                tree.end(90)
            return found

    table = Late(tree.root).scan()
    assert isinstance(table, ProcessTable)
    assert [each.pid for each in table.processes] == [7, 8, 90]


def test_one_that_another_has_started_which_ended_meanwhile_has_its_files_read(tree: ProcTree) -> None:
    for pid in (7, 8):
        tree.start(pid)

    class Forking(Processes):
        def _open_files(self, pid: int) -> Iterator[tuple[int, int] | None]:
            if pid == 7:
                tree.end(8)
                tree.start(9, files=["/dev/zero"])
            return super()._open_files(pid)

    found = Forking(tree.root).holders([ZERO])
    assert not isinstance(found, NoAnswer)
    assert [each.pid for each in found] == [9]


def test_what_cannot_be_read_proves_nothing(tree: ProcTree) -> None:
    assert isinstance(Processes(tree.root / "nowhere").scan(), NoAnswer)
    tree.start(7, UID)
    (tree.root / "7" / "stat").write_text("garbage")
    assert isinstance(Processes(tree.root).scan(), NoAnswer)
    (tree.root / "7" / "stat").unlink()
    (tree.root / "7" / "stat").mkdir()
    assert isinstance(Processes(tree.root).scan(), NoAnswer)


def test_a_scan_has_a_bound(tree: ProcTree) -> None:
    tree.start(7, UID)
    seconds = iter(range(0, 1000, 6))
    found = Processes(tree.root, clock=lambda: float(next(seconds))).scan()

    assert found == NoAnswer(reason="reading the node's processes took longer than 5 s")


def test_a_pod_with_so_many_processes_that_they_cannot_be_read_is_named(tree: ProcTree) -> None:
    for pid in range(7, 14):
        tree.start(pid, UID if pid > 8 else "")
    seconds = iter(range(100))
    found = Processes(tree.root, clock=lambda: float(next(seconds))).scan()

    assert isinstance(found, NoAnswer)
    assert found.reason == f"reading the node's processes took longer than 5 s, and 5 of 5 were of pod UID {UID}"


def test_open_files_everyone_are_read_only_where_they_are_asked_for(tree: ProcTree) -> None:
    """What a tenant has open can keep no one from an answer."""
    tree.start(7, UID, files=["/dev/zero"])
    tree.start(8, files=["/dev/zero"])
    tree.start(9, UID)
    (tree.root / "9" / "fd" / "0").unlink()
    (tree.root / "9" / "fd").rmdir()
    (tree.root / "9" / "fd").touch()
    found = Processes(tree.root).holders([ZERO])

    assert not isinstance(found, NoAnswer)
    assert [process.pid for process in found] == [8]
    assert isinstance(Processes(tree.root).holders([ZERO], everyone=True), NoAnswer)


def test_many_open_files_of_one_process_have_a_bound(tree: ProcTree) -> None:
    tree.start(7, UID, files=["/dev/null"] * 20)
    seconds = iter(range(100))
    found = Processes(tree.root, clock=lambda: next(seconds) / 2).holders([ZERO], everyone=True)

    assert isinstance(found, NoAnswer)
    assert found.reason.startswith("reading what process 7 (python, ")


DOCKER = "a" * 64
V1 = "12:pids:{0}\n9:devices:{0}\n4:freezer:/\n3:memory:/system.slice\n1:name=systemd:{0}\n"


@pytest.mark.parametrize(
    ("cgroup", "holds"),
    [
        ("0::/system.slice/nvidia-persistenced.service", False),
        ("0::/system.slice/nvidia-dcgm.service", False),
        ("0::/system.slice/snap.dcgm.nv-hostengine.service", False),
        ("0::/system.slice/system-monitor.slice/monitor@gpu0.service", False),
        ("0::/../../../../system.slice/telegraf.service", False),
        (V1.format("/system.slice/nvidia-dcgm.service"), False),
        (V1.format("/system.slice/nvidia-dcgm.service") + "0::/system.slice/nvidia-dcgm.service", False),
        (V1.format("/system.slice/nvidia-dcgm.service") + "0::/", False),
        ("0::/", True),
        ("0::/init.scope", True),
        ("0::/system.slice", True),
        ("0::/user.slice/user-0.slice/session-3.scope", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/job.service", True),
        (f"0::/system.slice/docker-{DOCKER}.scope", True),
        (f"0::/system.slice/docker-{DOCKER}.scope/system.slice/nvidia-dcgm.service", True),
        (f"0::/docker/{DOCKER}", True),
        (f"0::/docker/{DOCKER}/system.slice/nvidia-dcgm.service", True),
        (f"0::/../../../docker/{DOCKER}/system.slice/nvidia-dcgm.service", True),
        (f"0::/machine.slice/libpod-{DOCKER}.scope/container", True),
        (f"0::/system.slice/monitor.service/libpod-payload-{DOCKER}", True),
        ("0::/system.slice/monitor.service (deleted)", True),
        ("0::/system.slice/run-u12.service", True),
        ("0::/system.slice/run-p12-i34.scope", True),
        ("0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0", True),
        ("0::/podruntime.slice/monitor.service", True),
        *(
            (f"0::{above}/system.slice/{unit}.service", True)
            for above in ("", "/../../../..")
            for unit in (
                *("kubelet", "snap.kubelet-eks.daemon", "containerd", "crio", "cri-o", "cri-docker", "docker"),
                *("k3s", "k3s-agent", "rke2-server", "k0sworker", "snap.microk8s.daemon-kubelite"),
                *("snap.k8s.kubelet", "podman", "lxd", "snap.lxd.daemon", "incus", "isulad", "nomad"),
                *("ssh", "sshd", "cron", "crond", "atd"),
            )
        ),
        (V1.format(f"/docker/{DOCKER}"), True),
        (V1.format("/"), True),
        (V1.format("/system.slice/containerd.service"), True),
        (V1.format("/system.slice/nvidia-dcgm.service") + "0::/user.slice", True),
        (V1.format("/system.slice/nvidia-dcgm.service") + f"5:cpuset:/docker/{DOCKER}", True),
        ("", True),
    ],
)
def test_a_service_of_the_node_holds_no_device_of_a_pod(tree: ProcTree, cgroup: str, holds: bool) -> None:
    """None of a container runtime's, from whose socket a pod may have started it, nor what a person has started."""
    tree.start(7, files=["/dev/zero"])
    (tree.root / "7" / "cgroup").write_text(cgroup and cgroup.rstrip() + "\n")
    found = Processes(tree.root).holders([ZERO])
    anyones = Processes(tree.root).holders([ZERO], everyone=True)

    assert not isinstance(found, NoAnswer)
    assert not isinstance(anyones, NoAnswer)
    assert ([process.pid for process in found], len(anyones)) == ([7] if holds else [], 1)


def test_open_devices_are_compared_by_number(tree: ProcTree, tmp_path: Path) -> None:
    alias = tmp_path / "any name"
    alias.symlink_to("/dev/null")
    tree.start(7, UID, files=["/dev/zero", "/etc/hostname", "/nowhere"])
    tree.start(8, files=[str(alias)], program="dcgm")
    processes = Processes(tree.root)

    def pids(*numbers: tuple[int, int]) -> list[int]:
        found = processes.holders(numbers, everyone=True)
        assert not isinstance(found, NoAnswer)
        return [process.pid for process in found]

    assert (pids(NULL), pids(ZERO), pids(NULL, ZERO), pids((195, 0))) == ([8], [7], [7, 8], [])
    (tree.root / "8" / "fd" / "0").unlink()
    (tree.root / "8" / "fd").rmdir()
    assert pids(NULL, ZERO) == [7]
    (tree.root / "8" / "fd").touch()
    assert isinstance(processes.holders([NULL], everyone=True), NoAnswer)


def test_the_agent_itself_holds_no_device(tree: ProcTree) -> None:
    """The driver's library opens every GPU, and an agent that was updated is younger than an Allocate."""
    tree.start(os.getpid(), files=["/dev/zero"])
    tree.start(8, files=["/dev/zero"])
    found = Processes(tree.root).holders([ZERO])

    assert not isinstance(found, NoAnswer)
    assert [process.pid for process in found] == [8]


def test_the_kernels_own_procfs() -> None:
    """A process with /dev/zero open, and as a zombie after its end."""
    child = subprocess.Popen(
        [sys.executable, "-c", "f = open('/dev/zero'); print(flush=True); input()"], stdin=-1, stdout=-1
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = Processes().holders([ZERO])
        assert not isinstance(found, NoAnswer)
        (mine,) = (process for process in found if process.pid == child.pid)
        assert abs(mine.began_at - time.time()) < 60
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        table = Processes().scan()
        assert isinstance(table, ProcessTable)
        assert child.pid not in {process.pid for process in table.processes}
    finally:
        child.kill()
        child.communicate()


def test_what_is_open_after_the_first_thread_has_ended() -> None:
    program = (
        "import ctypes, threading\n"
        "f = open('/dev/zero')\n"
        "threading.Thread(target=input).start()\n"
        "print(flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        eventually(lambda: ") Z " in Path(f"/proc/{child.pid}/stat").read_text(), "the end of the first thread")
        found = Processes().holders([ZERO])
        assert not isinstance(found, NoAnswer)
        assert child.pid in {process.pid for process in found}
    finally:
        child.kill()
        child.communicate()


WITHOUT_RIGHT = """
import ctypes, os, sys
if len(sys.argv) == 2:
    assert ctypes.CDLL(None).prctl(24, 19, 0, 0, 0) == 0  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: gone with the next program
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[1], "dropped"])
from nodeagent.observed.processes import Processes
for everyone in (False, True):
    print([(each.pid, each.named) for each in Processes().holders([(1, 5)], everyone=everyone)])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lists what others have open")
def test_a_process_whose_open_files_may_not_be_examined_may_have_any_device_open() -> None:
    """They are listed for root, and hidden from one without CAP_SYS_PTRACE, or by a security module."""
    child = subprocess.Popen(
        [sys.executable, "-c", "f = open('/dev/zero'); print(flush=True); input()"], stdin=-1, stdout=-1
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        words = [sys.executable, "-c", WITHOUT_RIGHT, WITHOUT_RIGHT]
        mine, anyones = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
        assert f"({child.pid}, 'process {child.pid} (" in mine
        assert ", whose files are hidden, since " in mine
        assert str(child.pid) not in anyones, "no one is named as a client who may be none"
    finally:
        child.kill()
        child.communicate()


def test_a_device_that_cannot_be_examined_is_not_none(tree: ProcTree) -> None:
    """As where statx is not allowed; what another user's file system hides is no device. It says nothing of others."""
    tree.start(7, files=["/dev/null/x"])
    tree.start(8, files=["/dev/zero"])
    found = Processes(tree.root).holders([ZERO])
    assert not isinstance(found, NoAnswer)
    assert [(each.pid, each.opened) for each in found] == [(7, None), (8, {ZERO})]
    anyone = Processes(tree.root).holders([ZERO], everyone=True)
    assert anyone == NoAnswer(reason="the open files of process 7 cannot be read: /dev/null/x cannot be examined")
    tree.end(7)
    tree.end(8)
    tree.start(7, files=["/etc/hostname/x", "socket:[1]", "/nowhere"])
    assert Processes(tree.root).holders([ZERO]) == ()
