"""NVIDIA's own MPS control daemon below our supervisor, started as its DaemonSet starts it: what ends it, and attacks.

The daemon is Debian's, of driver 535, which without a GPU runs until a client comes. The attacker is an ordinary user,
with the pipe directory mounted as a container has it. Without a GPU there are no clients: that a daemon is the same
process as before stands for them, since a client lives as long as its daemon.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent.handover.config import Device, DeviceKind, PluginConfig, PluginFiles, write_config
from nodeagent.handover.mps_state import MpsDaemon, MpsState, is_running, read_mps
from nodeagent.mps.control import ENDED, PRINTS_ALWAYS
from tests.deploy.test_mounts import container
from tests.e2e.rig.containers.debian import unpacked
from tests.e2e.rig.containers.programs import MPS
from tests.e2e.rig.controlplane import Missing, Places
from tests.waiting import eventually

GPU_A, GPU_B = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")
COMMAND = "nvidia-cuda-mps-control"
ORDINARY_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
AS_MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro,nosuid,nodev,noexec "$0" && exec "$@"'
"""What a container runtime makes of the mount in our CDI specification."""


def config(*gpus: str, memory_mib: int = 9536) -> PluginConfig:
    return PluginConfig.of(
        Device(
            id=f"{gpu}::10gb::0",
            resource="nvidia.com/gpu-10gb",
            gpu=gpu,
            kind=DeviceKind.MPS,
            memory_mib=memory_mib,
            thread_percent=50,
        )
        for gpu in gpus
    )


class DaemonsNode:
    def __init__(self, root: Path, programs: Path) -> None:
        self.root, self.files = root, PluginFiles(root / "state")
        self.mps_root = root / "mps"
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        write_config(self.files, config(GPU_A, GPU_B))
        program = [sys.executable, "-m", "nodeagent.mps", "--state-dir", str(root / "state")]
        self.first = subprocess.Popen(
            [*container("gpuplan-mps")["command"], *program, "--mps-root", str(self.mps_root)],
            env=self.environment,
            start_new_session=True,
        )

    def reported(self, gpu: str) -> MpsDaemon | None:
        found = read_mps(self.files)
        daemons = found.daemons if isinstance(found, MpsState) else ()
        return next((daemon for daemon in daemons if daemon.gpu == gpu), None)

    def daemon(self, gpu: str) -> MpsDaemon | None:
        found = self.reported(gpu)
        return found if found and found.ready and found.pid else None

    def problem(self, gpu: str) -> str:
        found = self.reported(gpu)
        return found.problem if found else ""

    def answering(self, gpu: str) -> MpsDaemon:
        return eventually(lambda: self.daemon(gpu), f"the daemon of {gpu}", seen=lambda: read_mps(self.files))

    def pipe(self, gpu: str) -> Path:
        return self.mps_root / gpu[:13] / "pipe"

    def tell(self, gpu: str, commands: str, *before: str) -> str:
        """What they print; `before` are words that run them as another user or in other mounts.

        The daemon turns this run away while it talks to the supervisor: the last line shows whether it did not.
        """
        lines = eventually(lambda: self._answer(gpu, f"{commands}\n{PRINTS_ALWAYS}\n", *before), "an answer")
        return "\n".join(lines[:-1])

    def _answer(self, gpu: str, commands: str, *before: str) -> list[str]:
        with self.talking(gpu, *before) as program:
            return program.communicate(commands, timeout=60)[0].splitlines()

    def talking(self, gpu: str, *before: str) -> subprocess.Popen[str]:
        """A program that the daemon talks to until its input ends."""
        environment = {**self.environment, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe(gpu))}
        return subprocess.Popen(
            [*before, COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def attack(self, gpu: str, commands: str) -> str:
        return self.tell(gpu, commands, *self.jail(gpu), *ORDINARY_USER)

    def quit_as_root(self, gpu: str, pid: int) -> None:
        """Until the process has ended, since this run can be turned away."""
        eventually(lambda: not is_running(pid) or self._answer(gpu, "quit\n", *self.jail(gpu)), "the daemon's end")

    def shell(self, gpu: str, line: str) -> str:
        """As root in a container, since an ordinary user may not write there in any case."""
        done = subprocess.run(
            [*self.jail(gpu), "/bin/sh", "-c", f"cd {self.pipe(gpu)}; {line}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def jail(self, gpu: str) -> tuple[str, ...]:
        return ("unshare", "--mount", "/bin/sh", "-c", AS_MOUNTED, str(self.pipe(gpu)))

    def supervisors(self) -> list[int]:
        done = subprocess.run(
            ["pgrep", "-P", str(self.first.pid), "-f", "nodeagent.mps"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return [int(pid) for pid in done.stdout.split()]

    def close(self) -> None:
        daemons = [daemon.pid for gpu in (GPU_A, GPU_B) if (daemon := self.daemon(gpu))]
        supervisors = self.supervisors()
        self.first.terminate()
        self.first.wait(20)
        for pid in [*supervisors, *daemons]:  # which the end of a container ends
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def node() -> Iterator[DaemonsNode]:
    found = unpacked("debian-mps", MPS, Places.of(os.environ, Path.home()))
    if isinstance(found, Missing):
        pytest.skip(f"no MPS daemon: {found.message}")
    if os.geteuid() != 0:
        pytest.skip("only root mounts as a container runtime does")
    root = Path(tempfile.mkdtemp(prefix="gpm", dir="/tmp"))  # its sockets lie below: 87 bytes in all
    root.chmod(0o755)
    programs = root / "bin"
    programs.mkdir()
    shutil.copy2(found / "usr/bin" / COMMAND, programs / COMMAND)
    running = DaemonsNode(root, programs)
    yield running
    running.close()
    shutil.rmtree(root)


def wait_for_another(node: DaemonsNode, supervisor: int) -> None:
    eventually(lambda: node.supervisors() not in ([], [supervisor]), "the next supervisor")


def seconds_until(observe: Callable[[], object], what: str) -> float:
    began = time.monotonic()
    eventually(observe, what)
    return time.monotonic() - began


def test_daemons_have_the_largest_slice_as_default(node: DaemonsNode) -> None:
    for gpu in (GPU_A, GPU_B):
        assert node.answering(gpu).problem == ""
        assert node.tell(gpu, "get_default_active_thread_percentage") == "50.0"
        assert node.tell(gpu, "get_default_device_pinned_mem_limit 0") == "9G"  # which it prints in whole GB


def test_a_killed_supervisor_costs_no_daemon(node: DaemonsNode) -> None:
    before = {gpu: node.answering(gpu).pid for gpu in (GPU_A, GPU_B)}
    for _ in range(3):
        (supervisor,) = eventually(node.supervisors, "a supervisor")
        os.kill(supervisor, signal.SIGKILL)
        wait_for_another(node, supervisor)
        assert {gpu: node.answering(gpu).pid for gpu in before} == before
        assert {node.answering(gpu).alarms for gpu in before} == {0}, "adopted as they were"


def test_a_config_that_cannot_be_read_costs_no_daemon(node: DaemonsNode) -> None:
    before = {gpu: node.answering(gpu).pid for gpu in (GPU_A, GPU_B)}
    node.files.config.write_text("{")
    (supervisor,) = node.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    wait_for_another(node, supervisor)
    write_config(node.files, config(GPU_A, GPU_B))
    assert {gpu: node.answering(gpu).pid for gpu in before} == before


def test_what_an_ordinary_user_changes_is_set_back_and_reported(node: DaemonsNode) -> None:
    """535 obeys any user here; 580 was seen to refuse."""
    alarms = node.answering(GPU_A).alarms
    assert (
        node.attack(GPU_A, "set_default_active_thread_percentage 1\nset_default_device_pinned_mem_limit 0 1M") == "1.0"
    )
    threads = seconds_until(
        lambda: node.tell(GPU_A, "get_default_active_thread_percentage") == "50.0", "the threads are set back"
    )
    memory = seconds_until(
        lambda: node.tell(GPU_A, "get_default_device_pinned_mem_limit 0") == "9G", "the memory limit is set back"
    )
    print(f"set back after {threads:.1f} s and {memory:.1f} s")
    eventually(lambda: node.answering(GPU_A).alarms == alarms + 2, "two alarms")
    assert "the default thread percentage was changed from 50.0 to 1.0" in node.answering(GPU_A).alarm
    assert "the default memory limit was changed from 9G to 1M" in node.answering(GPU_A).alarm


def test_a_user_who_keeps_the_daemon_busy_is_reported_and_ends_nothing(node: DaemonsNode) -> None:
    before, other = node.answering(GPU_A), node.answering(GPU_B)
    as_user = (*node.jail(GPU_A), *ORDINARY_USER)
    users = [node.talking(GPU_A, *as_user)]

    def problem() -> str:
        if users[-1].poll() is not None:  # turned away itself
            users.append(node.talking(GPU_A, *as_user))
        return node.problem(GPU_A)

    try:
        assert eventually(problem, "a report").startswith("the MPS control daemon talks to another program")
        assert node.answering(GPU_B) == other
    finally:
        for user in users:
            user.communicate()
    assert node.answering(GPU_A) == before, "the same process, and nothing is said to have ended"


def test_what_the_read_only_mount_and_the_daemon_refuse(node: DaemonsNode) -> None:
    assert node.attack(GPU_A, "quit") == "Not enough privilege to execute quit command"
    for line in ("rm control", "mv control c", "echo > fill", "echo > control_lock", "ln -s /etc/passwd x"):
        assert "Read-only file system" in node.shell(GPU_A, line), line
    assert node.attack(GPU_A, "get_server_list") == "", "a client reaches the daemon through it"


def test_what_no_daemon_of_535_refuses(node: DaemonsNode) -> None:
    """It has no server here, so that it says so is all that is seen: nothing about privileges."""
    assert node.attack(GPU_A, "shutdown_server 1 -f") == "Server 1 not found"
    assert node.attack(GPU_A, "terminate_client 1 2").startswith("Server 1 not found")


@pytest.mark.parametrize("end", ["quit by root in a container", "SIGKILL"])
def test_a_daemon_that_ends_is_started_again_and_no_other_one(node: DaemonsNode, end: str) -> None:
    before, other = node.answering(GPU_A).pid, node.answering(GPU_B).pid
    if end == "SIGKILL":
        os.kill(before, signal.SIGKILL)
    else:
        node.quit_as_root(GPU_A, before)
    seconds = seconds_until(
        lambda: (found := node.daemon(GPU_A)) is not None and found.pid != before, "another daemon answers"
    )
    print(f"{end}: another daemon answers after {seconds:.1f} s")
    assert node.answering(GPU_A).alarm == ENDED
    assert node.tell(GPU_A, "get_default_active_thread_percentage") == "50.0"
    assert node.answering(GPU_B).pid == other


def test_a_daemon_that_hangs_delays_no_other_gpu(node: DaemonsNode) -> None:
    hanging = node.answering(GPU_A).pid
    os.kill(hanging, signal.SIGSTOP)
    try:
        eventually(lambda: node.daemon(GPU_A) is None, "the daemon that hangs is reported")
        write_config(node.files, config(GPU_A, GPU_B, memory_mib=19073))
        eventually(
            lambda: node.tell(GPU_B, "get_default_device_pinned_mem_limit 0") == "18G", "the other GPU's new default"
        )
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert node.answering(GPU_A).pid == hanging, "it is not killed: it may have clients"


def test_without_slices_daemons_end(node: DaemonsNode) -> None:
    pids = [node.answering(gpu).pid for gpu in (GPU_A, GPU_B)]
    write_config(node.files, PluginConfig.of([]))
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of both daemons")
    eventually(lambda: read_mps(node.files) == MpsState(), "a report without daemons")
    assert [path.name for path in sorted((node.root / "state/mps-logs").iterdir())] == [GPU_A[:13], GPU_B[:13]]
