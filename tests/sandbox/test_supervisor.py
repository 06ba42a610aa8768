"""Supervised processes: restarted when killed, ended on stop, never outliving the one that started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.supervisor import Supervisor
from tests.waiting import eventually


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "stand_by.py").write_text(
        "import signal, sys\nprint('up', sys.argv[1:], flush=True)\nwhile True: signal.pause()\n"
    )
    return "stand_by"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    found = Supervisor(tmp_path)
    yield found
    found.stop()


def test_a_killed_process_is_started_again(supervisor: Supervisor, module: str, tmp_path: Path) -> None:
    child = supervisor.add("one", module, ["--flag"], {"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"})
    eventually(lambda: child.log.exists() and child.log.read_text().count("up ['--flag']") == 1, "its first line")
    first = eventually(lambda: child.pid, "its process id")

    os.kill(first, signal.SIGKILL)

    eventually(lambda: child.pid not in (None, first) and child.log.read_text().count("up") == 2, "the second start")
    assert child.restarts == 1


def test_stop_ends_the_process(supervisor: Supervisor, module: str, tmp_path: Path) -> None:
    child = supervisor.add("one", module, [], {"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"})
    eventually(lambda: child.log.exists() and "up" in child.log.read_text(), "its first line")
    pid = child.pid
    assert pid

    supervisor.stop()

    assert not alive(pid)
    assert child.pid is None


def test_children_die_with_a_killed_parent(module: str, tmp_path: Path) -> None:
    code = f"""
import os, time
from pathlib import Path
from sandbox.supervisor import Supervisor
child = Supervisor(Path({str(tmp_path)!r})).add("one", {module!r}, [], {{"PYTHONPATH": "{tmp_path}:{os.getcwd()}"}})
while not child.pid: time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd()) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        eventually(lambda: "up" in (tmp_path / "one.log").read_text(), "its first line")
        parent.kill()

    eventually(lambda: not alive(pid), "the end of the child")
