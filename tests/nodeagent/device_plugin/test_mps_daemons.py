"""The MPS command: started once, asked one thing at a time, never waited for without end."""

import json
from pathlib import Path

import pytest

from nodeagent.device_plugin.mps_daemons import MpsDaemons
from tests.nodeagent.device_plugin.conftest import Node

GPU = "GPU-aaaaaaaa-1111-2222-3333-444444444444"


@pytest.fixture
def daemons(node: Node) -> MpsDaemons:
    return MpsDaemons(node.mps_root, {**node.environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"})


def state(node: Node) -> Path:
    return node.pipe(GPU) / ".sandbox-mps.json"


def test_a_daemon_is_started_once_and_without_limits(node: Node, daemons: MpsDaemons) -> None:
    assert daemons.ensure(GPU) is None
    started = json.loads(state(node).read_text())
    assert started["percentage"] == 100.0  # not what our own environment says
    state(node).write_text(json.dumps({**started, "next_server": 7777}))
    assert daemons.ensure(GPU) is None
    assert json.loads(state(node).read_text())["next_server"] == 7777  # the same daemon
    assert (node.pipe(GPU).parent / "log").is_dir()


def test_unneeded_daemons_are_ended_and_needed_ones_kept(node: Node, daemons: MpsDaemons) -> None:
    daemons.ensure(GPU)
    assert daemons.quit_unused([GPU])
    assert state(node).exists()
    assert daemons.quit_unused([])
    assert not state(node).exists()
    assert daemons.quit_unused([])  # nothing left, and nothing wrong


def test_a_hanging_command_is_given_up(node: Node, daemons: MpsDaemons) -> None:
    assert daemons.ensure(GPU) is None
    daemons = MpsDaemons(node.mps_root, node.environment, timeout_seconds=1.0)
    state(node).write_text(json.dumps({**json.loads(state(node).read_text()), "hang_seconds": 60}))
    assert daemons.ensure(GPU) == "nvidia-cuda-mps-control did not answer within 1 s"
    assert not daemons.quit_unused([])


def test_long_pipe_directories_are_refused_beforehand(node: Node) -> None:
    spare = 87 - len(str(node.pipe(GPU))) - 1  # what the real daemon of 535 was seen to take, and no byte more
    assert MpsDaemons(node.mps_root / ("x" * spare), node.environment).ensure(GPU) is None
    too_long = MpsDaemons(node.mps_root / ("x" * (spare + 1)), node.environment)
    assert "is longer than 87 bytes" in (too_long.ensure(GPU) or "")


def test_two_gpus_never_share_a_directory(node: Node, daemons: MpsDaemons) -> None:
    twin = f"{GPU[:13]}9999-2222-3333-444444444444"
    assert daemons.ensure_all([twin, GPU]) == {twin: f"{twin} and {GPU} would share one MPS directory"}


def test_a_single_gpu_is_held_against_all_that_have_slices(node: Node, daemons: MpsDaemons) -> None:
    """As before a container starts: the other GPU's daemon answers in that directory, but it is not this GPU's."""
    twin = f"{GPU[:13]}9999-2222-3333-444444444444"
    daemons.claim([twin, GPU])
    assert daemons.ensure_all([twin]) == {twin: f"{twin} and {GPU} would share one MPS directory"}
    assert not node.pipe(GPU).exists(), "and none was started there"
    assert daemons.ensure_all([GPU]) == {}
    assert daemons.ensure(twin) is not None
    daemons.claim([twin])
    assert daemons.ensure(twin) is None


def test_the_daemons_own_words_are_passed_on(node: Node) -> None:
    command = node.root / "nvidia-cuda-mps-control"
    command.write_text("#!/bin/sh\necho Cannot find MPS control daemon process >&2\nexit 1\n")
    command.chmod(0o755)
    daemons = MpsDaemons(node.mps_root, {"PATH": f"{node.root}:/usr/bin:/bin"})
    assert daemons.ensure(GPU) == (
        f"the MPS control daemon of {GPU} did not start: Cannot find MPS control daemon process"
    )
