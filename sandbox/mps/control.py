"""Imitates the command `nvidia-cuda-mps-control` without a GPU.

Takes arguments, environment and commands on stdin, and prints what the real command prints. There is no daemon process:
`-d` leaves a state file in the pipe directory, `quit` removes it. It runs once per command, so it imports little. Like
the real daemon's, one run has it alone, from its start until the end of its input.
"""

from __future__ import annotations

import os
import time

from sandbox.mps.commands import COMMANDS, percentage_of
from sandbox.mps.statefile import alone, load, locked, save, stop

TYPE_CHECKING = False  # `typing` would be a quarter of the command's start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

LONGEST_PIPE_DIRECTORY = 87  # measured on the real 535.261.03: 88 bytes fail
POLL_SECONDS = 0.05


def main(arguments: list[str], environment: Mapping[str, str], stdin: TextIO, stdout: TextIO, stderr: TextIO) -> int:
    pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if "-d" in arguments:
        problem, status = start(pipe, environment)
        if problem:
            print(problem, file=stdout)
        return status
    state = load(pipe)
    if state is None:
        print("Cannot find MPS control daemon process", file=stderr)
        return 1
    with alone(pipe) as served:
        if not served:
            return 0  # measured: without a word, or with 1 and "Cannot send command to MPS control daemon process"
        time.sleep(state.get("hang_seconds", 0))
        for line in stdin.read().splitlines():
            answer = execute(pipe, line)
            if answer is None:
                break
            for text in answer:
                print(text, file=stdout)
    return 0


def start(pipe: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """What `-d` prints, and its exit status. Only the last part of the path is created."""
    if len(pipe) > LONGEST_PIPE_DIRECTORY:
        return "", 1  # the socket's path would not fit, and the real command prints nothing
    try:
        if not os.path.isdir(pipe):
            os.mkdir(pipe)
    except OSError:
        return f"Cannot access CUDA_MPS_PIPE_DIRECTORY={pipe}", 1
    if load(pipe) is not None:
        return "An instance of this daemon is already running", 1
    percentage = percentage_of(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")) or 100.0
    save(
        pipe,
        {
            "uid": os.geteuid(),
            "percentage": percentage,
            "limits": {},  # device ordinal -> bytes
            "servers": {},  # pid -> {"clients": [...]}
            "next_server": 5000,
        },
    )
    return "", 0


def execute(pipe: str, line: str) -> list[str] | None:
    """The lines one command prints; None when the daemon is gone after it."""
    name, *arguments = line.split() or [""]
    if name == "quit":
        return _quit(pipe)
    command = COMMANDS.get(name)
    if command is None:
        return [f'Unknown command "{name}"']
    with locked(pipe):
        state = load(pipe)
        if state is None:
            return None
        answer = command(state, arguments)
        save(pipe, state)
    return answer


def _quit(pipe: str) -> list[str] | None:
    """Waits for clients to end, for as long as that takes."""
    state = load(pipe)
    if state is not None and os.geteuid() not in (0, state["uid"]):
        return ["Not enough privilege to execute quit command"]
    while state is not None and any(server["clients"] for server in state["servers"].values()):
        time.sleep(POLL_SECONDS)
        state = load(pipe)
    stop(pipe)
    return None
