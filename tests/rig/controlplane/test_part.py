"""One server process on its leash: it is seen to serve, ends with its parent, and shows the end of its log."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.control_plane import ControlPlaneFailed
from tests.e2e.rig.controlplane.leashed import LEASH, run
from tests.e2e.rig.controlplane.part import Part
from tests.waiting import SECONDS, eventually

PROGRAM = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if {polite} else None)
print("serving", flush=True)
pathlib.Path({flag!r}).write_text("up")
while True: time.sleep(0.1)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def part(folder: Path, *, polite: bool = True) -> Part:
    flag = folder / "flag"
    command = [sys.executable, "-c", PROGRAM.format(flag=str(flag), polite=polite)]
    return Part("server", command, log=folder / "server.log", ready=flag.exists)


def test_started_stopped_killed_and_started_again(tmp_path: Path) -> None:
    server = part(tmp_path)
    server.start()
    server.wait(SECONDS)
    first = server.pid
    assert first
    assert alive(first)
    server.kill()
    assert not alive(first)
    (tmp_path / "flag").unlink()
    server.start()
    server.wait(SECONDS)
    second = server.pid
    assert second
    assert second != first
    server.stop()
    assert not alive(second)
    assert server.tail() == "serving\nserving"


def test_a_frozen_server_can_be_stopped(tmp_path: Path) -> None:
    server = part(tmp_path)
    server.start()
    server.wait(SECONDS)
    server.signal(signal.SIGSTOP)
    server.stop()
    assert server.pid is None


def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('bad flag')"]
    server = Part("server", command, log=tmp_path / "server.log", ready=lambda: False)
    server.start()
    with pytest.raises(ControlPlaneFailed, match="server ended") as caught:
        server.wait(SECONDS)
    assert "bad flag" in str(caught.value)
    server.stop()


def test_a_server_that_never_serves(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    server = Part("server", command, log=tmp_path / "server.log", ready=lambda: False)
    server.start()
    with pytest.raises(ControlPlaneFailed, match="did not serve in 0 s"):
        server.wait(0.2)
    server.stop()


@pytest.mark.parametrize("polite", [True, False], ids=["ends on SIGTERM", "ignores SIGTERM"])
def test_a_server_ends_with_its_parent_however_that_died(tmp_path: Path, polite: bool) -> None:
    flag = tmp_path / "flag"
    program = PROGRAM.format(flag=str(flag), polite=polite)
    parent = f"""
import subprocess, sys, time
server = subprocess.Popen([sys.executable, {str(LEASH)!r}, sys.executable, "-c", {program!r}], stdin=subprocess.PIPE)
print(server.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server = int(process.stdout.readline())
        eventually(flag.exists, "the server runs")
        os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not alive(server), "the server ended")


def test_a_program_that_is_run_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    done = run(command, seconds=SECONDS, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_program_that_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.5, capture_output=True)


@pytest.mark.slow
def test_a_program_ends_with_the_process_that_ran_it(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    program = f"import os, pathlib, time; pathlib.Path({str(flag)!r}).write_text(str(os.getpid())); time.sleep(600)"
    # By itself: its package imports a thousand modules, a second of CPU, which a busy machine gives no one in a minute.
    parent = f"from leashed import run; run([{sys.executable!r}, '-c', {program!r}], seconds=600)"
    with subprocess.Popen([sys.executable, "-c", parent], cwd=LEASH.parent) as process:
        eventually(lambda: flag.exists() and flag.read_text(), "the program runs")
        os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not alive(int(flag.read_text())), "the program ended")
