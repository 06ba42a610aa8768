"""The MPS command: a daemon is started once and ended without clients, and no command is waited for without end."""

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nodeagent.mps.control import ENDED, Check, Defaults, MpsControl
from sandbox.mps import clients
from tests import mps
from tests.nodeagent.device_plugin.conftest import PluginNode
from tests.waiting import eventually

pytestmark = pytest.mark.slow

GPU = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
TEN = Defaults(memory_mib=10240, thread_percent=50)


@pytest.fixture
def control(node: PluginNode) -> MpsControl:
    return MpsControl(node.pipe(GPU), {**node.environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"})


def state(node: PluginNode) -> Path:
    return node.pipe(GPU) / ".sandbox-mps.json"


def test_a_daemon_is_started_once_and_with_its_defaults(node: PluginNode, control: MpsControl) -> None:
    assert control.ensure(GPU, TEN) == Check()
    started = json.loads(state(node).read_text())
    assert (started["percentage"], started["limits"]) == (50.0, {"0": 10 << 30})
    state(node).write_text(json.dumps({**started, "next_server": 7777}))
    assert control.ensure(GPU, TEN) == Check()
    assert json.loads(state(node).read_text())["next_server"] == 7777  # the same daemon
    assert (node.pipe(GPU).parent / "log").is_dir()


def test_no_variable_of_the_pod_gives_the_daemon_another_protocol_or_limit(node: PluginNode) -> None:
    """With protocol 3 the daemon has other commands; the variable wins over every option."""
    passed_on: list[str] = []

    def spawn(command: list[str], env: dict[str, str], **more: Any) -> "subprocess.Popen[bytes]":
        passed_on.extend(name for name in env if name.startswith("CUDA_MPS_"))
        return subprocess.Popen(command, env=env, **more)

    given = {**node.environment, "CUDA_MPS_PROTOCOL_VERSION": "3", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G"}
    assert MpsControl(node.pipe(GPU), given, spawn=spawn).ensure(GPU, TEN) == Check()
    assert set(passed_on) == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}


def test_a_driver_without_servers_for_several_users_has_one_for_each(node: PluginNode) -> None:
    stand_in = f"{node.environment['PATH'].partition(':')[0]}/nvidia-cuda-mps-control"
    command, calls = node.root / "nvidia-cuda-mps-control", node.root / "calls"
    command.write_text(f'#!/bin/sh\necho "$@" >> {calls}\ncase "$*" in *multi*) exit 1;; esac\nexec {stand_in} "$@"\n')
    command.chmod(0o755)
    path = f"{node.root}:{node.environment['PATH']}"
    control = MpsControl(node.pipe(GPU), {**node.environment, "PATH": path}, many_users=True)
    assert control.ensure(GPU, TEN) == Check()
    assert [line for line in calls.read_text().splitlines() if line] == ["-d --multiuser-server", "-d"]


def test_a_daemon_is_ended_unless_it_has_clients(node: PluginNode, control: MpsControl) -> None:
    assert control.end(), "none was ever started"
    control.ensure(GPU, TEN)
    clients.connect(node.pipe(GPU), 77, GPU)
    assert not control.end()
    assert state(node).exists()
    clients.disconnect(node.pipe(GPU), 77)
    assert control.end()
    assert not state(node).exists()
    assert control.end()  # none is left, and nothing is wrong


def test_what_a_client_changed_is_set_back_and_reported(node: PluginNode, control: MpsControl) -> None:
    control.ensure(GPU, TEN)
    clients.connect(node.pipe(GPU), 77, GPU)
    assert control.ensure(GPU, TEN) == Check(), "a new server is set without an alarm"
    held = json.loads(state(node).read_text())
    state(node).write_text(json.dumps({**held, "percentage": 1.0, "limits": {"0": 1 << 20}}))

    assert control.ensure(GPU, TEN).alarms == (
        "the default thread percentage was changed from 50.0 to 1.0 and set back",
        "the default memory limit was changed from 10G to 1M and set back",
    )
    assert json.loads(state(node).read_text()) == held
    assert control.ensure(GPU, TEN) == Check()


def test_a_run_that_the_daemon_turned_away_is_repeated(node: PluginNode, control: MpsControl) -> None:
    assert control.ensure(GPU, TEN) == Check()
    held = json.loads(state(node).read_text())
    state(node).write_text(json.dumps({**held, "percentage": 1.0}))
    with ExitStack() as other:
        other.enter_context(mps.talking(node.pipe(GPU)))
        pauses = iter([lambda: None, other.close])
        control = MpsControl(node.pipe(GPU), node.environment, pause=lambda _: next(pauses)())
        assert control.ensure(GPU, TEN) == Check()
        assert list(pauses) == []
    assert json.loads(state(node).read_text()) == held


def test_a_daemon_that_talks_to_another_program_is_reported_and_neither_started_nor_ended(
    node: PluginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeagent.mps.control.TRIES", 3)
    control = MpsControl(node.pipe(GPU), node.environment, pause=lambda _: None)
    assert control.ensure(GPU, TEN) == Check()
    with mps.talking(node.pipe(GPU)):
        check = control.ensure(GPU, TEN)
        assert (check.problem or "").startswith("the MPS control daemon talks to another program")
        assert (check.failed_start, check.alarms) == (False, ())
        assert not control.end()
    assert control.ensure(GPU, TEN) == Check()


def test_a_servers_own_limits_are_held_too(node: PluginNode, control: MpsControl) -> None:
    """A tenant may lower those of the server that all clients share."""
    control.ensure(GPU, TEN)
    clients.connect(node.pipe(GPU), 77, GPU)
    control.ensure(GPU, TEN)
    held = json.loads(state(node).read_text())
    (server,) = held["servers"].values()
    assert server["percentage"] == 50.0
    state(node).write_text(json.dumps({**held, "servers": {"5000": {**server, "percentage": 2.0}}}))
    assert control.ensure(GPU, TEN).alarms == (
        "the thread percentage of MPS server 5000 was changed from 50.0 to 2.0 and set back",
    )
    assert json.loads(state(node).read_text()) == held


def test_new_defaults_are_set_without_an_alarm(node: PluginNode, control: MpsControl) -> None:
    control.ensure(GPU, TEN)
    assert control.ensure(GPU, Defaults(memory_mib=20480, thread_percent=100)) == Check()
    found = json.loads(state(node).read_text())
    assert (found["percentage"], found["limits"]) == (100.0, {"0": 20 << 30})


def test_a_daemon_that_was_started_by_another_process_is_adopted(node: PluginNode, control: MpsControl) -> None:
    control.ensure(GPU, TEN)
    clients.connect(node.pipe(GPU), 77, GPU)
    later = MpsControl(node.pipe(GPU), node.environment)
    assert later.ensure(GPU, Defaults(memory_mib=20480)) == Check()
    assert mps.connected(node.pipe(GPU)) == [77]


def test_a_daemon_that_ended_is_started_again_with_an_alarm(node: PluginNode, control: MpsControl) -> None:
    control.ensure(GPU, TEN)
    mps.kill(node.pipe(GPU))
    assert control.ensure(GPU, TEN) == Check(alarms=(ENDED,))
    assert json.loads(state(node).read_text())["percentage"] == 50.0


def test_a_command_that_hangs_is_killed(node: PluginNode, control: MpsControl) -> None:
    assert control.ensure(GPU, TEN) == Check()
    started: list[subprocess.Popen[bytes]] = []
    impatient = MpsControl(node.pipe(GPU), node.environment, timeout_seconds=0.5, spawn=remembering(started))
    mps.hang(node.pipe(GPU), 60)
    assert impatient.ensure(GPU, TEN).problem == "nvidia-cuda-mps-control did not answer within 0.5 s"
    assert not impatient.end()
    assert [process.returncode for process in started] == [-9, -9]
    mps.hang(node.pipe(GPU), 0)
    assert control.ensure(GPU, TEN) == Check()


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


def test_a_command_that_cannot_be_killed_is_left_behind_until_it_ends(node: PluginNode, control: MpsControl) -> None:
    assert control.ensure(GPU, TEN) == Check()
    started: list[Unkillable] = []

    def spawn(*arguments: Any, **keywords: Any) -> Unkillable:
        started.append(Unkillable(*arguments, **keywords))
        return started[-1]

    hanging = MpsControl(node.pipe(GPU), node.environment, timeout_seconds=3.0, kill_seconds=0.1, spawn=spawn)
    mps.hang(node.pipe(GPU), 60)
    problem = hanging.ensure(GPU, TEN).problem or ""
    assert f"process {started[0].pid} of the supervisor" in problem
    assert "does not end when it is killed" in problem
    mps.hang(node.pipe(GPU), 0)
    again = hanging.ensure(GPU, TEN).problem
    assert again == problem, "the same words, since each change is a write of the plan's status"
    assert not hanging.end()
    assert len(started) == 1, "nothing else is run meanwhile"

    started[0].let_go()
    eventually(lambda: hanging.ensure(GPU, TEN) == Check(), "an answer of the daemon")


def test_long_pipe_directories_are_refused_beforehand(node: PluginNode) -> None:
    spare = 87 - len(str(node.pipe(GPU))) - 1  # what the real daemon of 535 was seen to take, and no byte more
    for letters, refused in ((spare, False), (spare + 1, True)):
        pipe = node.mps_root / ("x" * letters) / node.pipe(GPU).relative_to(node.mps_root)
        problem = MpsControl(pipe, node.environment).ensure(GPU, TEN).problem or ""
        assert ("is longer than 87 bytes" in problem) is refused, problem


def test_the_daemons_own_output_is_passed_on(node: PluginNode) -> None:
    command = node.root / "nvidia-cuda-mps-control"
    command.write_text("#!/bin/sh\necho Cannot find MPS control daemon process >&2\nexit 1\n")
    command.chmod(0o755)
    control = MpsControl(node.pipe(GPU), {"PATH": f"{node.root}:/usr/bin:/bin"})
    assert control.ensure(GPU, TEN).problem == (
        f"the MPS control daemon of {GPU} did not start: Cannot find MPS control daemon process"
    )
