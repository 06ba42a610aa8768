"""The MPS command: a daemon is started once and ended without clients, and no command is waited for without end."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.device_plugin.mps_control import MpsControl
from sandbox.mps import clients
from tests.nodeagent.device_plugin.conftest import Node
from tests.waiting import eventually

pytestmark = pytest.mark.slow

GPU = "GPU-aaaaaaaa-1111-2222-3333-444444444444"


@pytest.fixture
def control(node: Node) -> MpsControl:
    return MpsControl(node.pipe(GPU), {**node.environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"})


def state(node: Node) -> Path:
    return node.pipe(GPU) / ".sandbox-mps.json"


def test_a_daemon_is_started_once_and_without_limits(node: Node, control: MpsControl) -> None:
    assert control.ensure(GPU) is None
    started = json.loads(state(node).read_text())
    assert started["percentage"] == 100.0  # not the value of our own environment
    state(node).write_text(json.dumps({**started, "next_server": 7777}))
    assert control.ensure(GPU) is None
    assert json.loads(state(node).read_text())["next_server"] == 7777  # the same daemon
    assert (node.pipe(GPU).parent / "log").is_dir()


def test_a_daemon_is_ended_unless_it_has_clients(node: Node, control: MpsControl) -> None:
    assert control.end(), "none was ever started"
    control.ensure(GPU)
    clients.connect(node.pipe(GPU), 77, GPU)
    assert not control.end()
    assert state(node).exists()
    clients.disconnect(node.pipe(GPU), 77)
    assert control.end()
    assert not state(node).exists()
    assert control.end()  # none is left, and nothing is wrong


def test_a_command_that_hangs_is_killed(node: Node, control: MpsControl) -> None:
    assert control.ensure(GPU) is None
    started: list[subprocess.Popen[bytes]] = []
    impatient = MpsControl(node.pipe(GPU), node.environment, timeout_seconds=0.5, spawn=remembering(started))
    clients.hang(node.pipe(GPU), 60)
    assert impatient.ensure(GPU) == "nvidia-cuda-mps-control did not answer within 0.5 s"
    assert not impatient.end()
    assert [process.returncode for process in started] == [-9, -9]
    clients.hang(node.pipe(GPU), 0)
    assert control.ensure(GPU) is None


def remembering(started: list[subprocess.Popen[bytes]]) -> Callable[..., subprocess.Popen[bytes]]:
    def spawn(*arguments: Any, **keywords: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*arguments, **keywords))
        return started[-1]

    return spawn


class Unkillable(subprocess.Popen[bytes]):
    """A process in uninterruptible sleep: a kill has no effect until the kernel lets it go."""

    def kill(self) -> None:
        """The signal stays pending."""

    def let_go(self) -> None:
        super().kill()


def test_a_command_that_cannot_be_killed_is_left_behind_until_it_ends(node: Node, control: MpsControl) -> None:
    assert control.ensure(GPU) is None
    started: list[Unkillable] = []

    def spawn(*arguments: Any, **keywords: Any) -> Unkillable:
        started.append(Unkillable(*arguments, **keywords))
        return started[-1]

    hanging = MpsControl(node.pipe(GPU), node.environment, timeout_seconds=0.5, kill_seconds=0.1, spawn=spawn)
    clients.hang(node.pipe(GPU), 60)
    problem = hanging.ensure(GPU) or ""
    assert f"process {started[0].pid} of the plugin" in problem
    assert "does not end when it is killed" in problem
    clients.hang(node.pipe(GPU), 0)
    assert hanging.ensure(GPU) == problem, "the same words, since each change is a write of the plan's status"
    assert not hanging.end()
    assert len(started) == 1, "nothing else is run meanwhile"

    started[0].let_go()
    eventually(lambda: hanging.ensure(GPU) is None, "an answer of the daemon")


def test_long_pipe_directories_are_refused_beforehand(node: Node) -> None:
    spare = 87 - len(str(node.pipe(GPU))) - 1  # what the real daemon of 535 was seen to take, and no byte more
    for letters, refused in ((spare, False), (spare + 1, True)):
        pipe = node.mps_root / ("x" * letters) / node.pipe(GPU).relative_to(node.mps_root)
        problem = MpsControl(pipe, node.environment).ensure(GPU) or ""
        assert ("is longer than 87 bytes" in problem) is refused, problem


def test_the_daemons_own_output_is_passed_on(node: Node) -> None:
    command = node.root / "nvidia-cuda-mps-control"
    command.write_text("#!/bin/sh\necho Cannot find MPS control daemon process >&2\nexit 1\n")
    command.chmod(0o755)
    control = MpsControl(node.pipe(GPU), {"PATH": f"{node.root}:/usr/bin:/bin"})
    assert control.ensure(GPU) == (
        f"the MPS control daemon of {GPU} did not start: Cannot find MPS control daemon process"
    )
