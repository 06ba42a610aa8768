"""The stand-in of nvidia-cuda-mps-control against a transcript of the real command, and with clients.

control-535-transcript.json was recorded from the binary of Debian's nvidia-cuda-mps 535.261.03 on a machine without a
GPU; exit status, stdout and stderr of every step are compared.
"""

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox import mps
from sandbox.mps import clients
from sandbox.mps.clients import NoDaemonError
from tests import mps as daemons

COMMAND = "nvidia-cuda-mps-control"
TRANSCRIPT: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("control-535-transcript.json").read_text(encoding="utf-8")
)["steps"]
# Steps of the transcript that are not one command on stdin.
STARTS = {"-d", "-d again", "-d env30", "absent dir"}
AFTER_THE_END = {"no daemon": "get_server_list\n", "after quit": "get_server_list\n"}
MULTI = "get_default_active_thread_percentage\nget_server_list\nset_default_active_thread_percentage 7\n"
SEVERAL = {"multi": MULTI, "get": "get_default_active_thread_percentage\n"}


def control(pipe: Path, commands: str = "", *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        input=commands,
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", mps.search_path(os.environ["PATH"]))
    assert shutil.which(COMMAND) == str(Path(mps.__file__).with_name(COMMAND))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    directory = tmp_path / "pipe"
    assert control(directory, "", "-d").returncode == 0
    return directory


def test_every_step_of_the_real_transcript(tmp_path: Path) -> None:
    differences = []
    for step in TRANSCRIPT:
        name = step["step"]
        directory = tmp_path / "absent" / "x" if name == "absent dir" else tmp_path / "p"
        environment = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"} if name == "-d env30" else {}
        commands = AFTER_THE_END.get(name) or SEVERAL.get(name) or name + "\n"
        done = control(
            directory, "" if name in STARTS else commands, *(["-d"] if name in STARTS else []), **environment
        )
        expected = (step["exit"], step["stdout"].replace("=D/", f"={tmp_path}/"), step["stderr"])
        if (done.returncode, done.stdout, done.stderr) != expected:
            differences.append((name, expected, (done.returncode, done.stdout, done.stderr)))
    assert differences == []
    assert len(TRANSCRIPT) == 57


def test_servers_hold_limits_of_their_own(pipe: Path) -> None:
    clients.connect(pipe, 1, "GPU-a")
    (server,) = control(pipe, "get_server_list").stdout.split()
    assert control(pipe, f"set_active_thread_percentage {server} 20").stdout == "20.0\n"
    assert control(pipe, f"get_active_thread_percentage {server}").stdout == "20.0\n"
    assert control(pipe, "get_default_active_thread_percentage").stdout == "100.0\n"


def test_clients_start_a_server_and_show(pipe: Path) -> None:
    clients.connect(pipe, 4242, "GPU-a")
    clients.connect(pipe, 77, "GPU-a")
    (server,) = control(pipe, "get_server_list").stdout.split()
    assert control(pipe, f"get_client_list {server}").stdout.split() == ["4242", "77"]
    clients.disconnect(pipe, 4242)
    assert control(pipe, f"get_client_list {server}").stdout.split() == ["77"]


def test_quit_waits_for_clients(pipe: Path) -> None:
    clients.connect(pipe, 1, "GPU-a")
    leaving = threading.Timer(0.2, clients.disconnect, (pipe, 1))
    started = time.monotonic()
    leaving.start()
    assert control(pipe, "quit").returncode == 0
    assert time.monotonic() - started >= 0.2
    leaving.join()
    assert control(pipe, "get_server_list").returncode == 1


def test_a_killed_daemon_starts_from_defaults(pipe: Path) -> None:
    control(pipe, "set_default_active_thread_percentage 10")
    daemons.kill(pipe)
    gone = control(pipe, "get_default_active_thread_percentage")
    assert (gone.returncode, gone.stderr) == (1, "Cannot find MPS control daemon process\n")
    control(pipe, "", "-d")
    assert control(pipe, "get_default_active_thread_percentage").stdout == "100.0\n"


def test_a_hanging_daemon_takes_its_time(pipe: Path) -> None:
    daemons.hang(pipe, 0.3)
    started = time.monotonic()
    control(pipe, "get_server_list")
    assert time.monotonic() - started >= 0.3


def test_a_long_path_fails_without_a_word(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 100)
    done = control(directory, "", "-d")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_no_client_connects_without_a_daemon(tmp_path: Path) -> None:
    with pytest.raises(NoDaemonError):
        clients.connect(tmp_path, 1, "GPU-a")
    clients.disconnect(tmp_path, 1)
