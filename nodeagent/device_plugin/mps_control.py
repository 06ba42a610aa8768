"""The commands to one GPU's MPS control daemon through `nvidia-cuda-mps-control`, each within a bound.

Starts the daemon of one MPS directory unless it answers, and ends it unless it has clients. Each invocation has one
command: several in one run are answered without labels, and the exit status shows only whether a daemon was reached. A
command without an answer is killed; where the kernel does not let it end, it is left behind, and nothing is run for
this directory until it has ended. Sets no limits: those are in each client's environment. Never ends a daemon that has
clients. Not thread-safe: `MpsDaemons` lets one thread at a time in.
"""

import contextlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

COMMAND = "nvidia-cuda-mps-control"
MAX_PIPE_DIRECTORY_BYTES = 87  # as tried with 535: its sockets lie in it, and with 88 it fails without a message
LIMITS_OF_CLIENTS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
KILL_SECONDS = 1.0  # within which a killed command ends, unless it waits for the driver in the kernel


class NoAnswerError(Exception):
    """The command was not answered; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    returncode: int
    text: str  # stdout and stderr

    @property
    def reached(self) -> bool:
        return self.returncode == 0


class MpsControl:
    def __init__(
        self,
        pipe: Path,
        environment: Mapping[str, str],
        *,
        timeout_seconds: float = 5.0,
        kill_seconds: float = KILL_SECONDS,
        spawn: Callable[..., "subprocess.Popen[bytes]"] = subprocess.Popen,
    ) -> None:
        self._pipe, self._logs = pipe, pipe.parent / "log"
        self._environment = {name: text for name, text in environment.items() if name not in LIMITS_OF_CLIENTS}
        self._environment |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(self._logs)}
        self._timeout_seconds, self._kill_seconds = timeout_seconds, kill_seconds
        self._spawn = spawn
        self._left_behind: subprocess.Popen[bytes] | None = None

    def ensure(self, gpu: str) -> str | None:
        """Start the GPU's daemon unless it answers; None when it does, else the reason."""
        if len(os.fsencode(self._pipe)) > MAX_PIPE_DIRECTORY_BYTES:
            return f"the MPS pipe directory {self._pipe} is longer than {MAX_PIPE_DIRECTORY_BYTES} bytes"
        try:
            return self._ensure(gpu)
        except NoAnswerError as error:
            return str(error)
        except OSError as error:
            return f"{COMMAND} cannot be run: {error}"

    def end(self) -> bool:
        """End the daemon unless it has clients; True when none runs."""
        try:
            return not self._pipe.is_dir() or self._end()
        except (OSError, NoAnswerError) as error:
            log.warning("the MPS daemon of %s was not ended: %s", self._pipe, error)
            return False

    def _ensure(self, gpu: str) -> str | None:
        if self._pipe.is_dir() and self._run("get_server_list").reached:
            return None
        for directory in (self._pipe, self._logs):
            directory.mkdir(parents=True, exist_ok=True)
        self._pipe.chmod(0o755)  # whatever our umask: clients run as any user
        started = self._run("", "-d", CUDA_VISIBLE_DEVICES=gpu)
        if self._run("get_server_list").reached:
            log.info("MPS daemon of %s started", gpu)
            return None
        return f"the MPS control daemon of {gpu} did not start: {started.text or f'exit {started.returncode}'}"

    def _end(self) -> bool:
        servers = self._run("get_server_list")
        if not servers.reached:
            return True
        for server in servers.text.split():
            if any(word.isdigit() for word in self._run(f"get_client_list {server}").text.split()):
                log.info("the MPS daemon of %s still has clients and is kept", self._pipe)
                return False
        self._run("quit")
        return not self._run("get_server_list").reached

    def _run(self, command: str, *arguments: str, **environment: str) -> Answer:
        self._refuse_while_left_behind()
        # Into a file, not a pipe: the daemon inherits it and would keep a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            try:
                process = self._spawn(
                    [COMMAND, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**self._environment, **environment},
                    start_new_session=True,  # a Ctrl-C meant for us must not reach the daemon
                )
            except FileNotFoundError:
                raise NoAnswerError(f"{COMMAND} is not on PATH") from None
            returncode = self._wait(process, f"{command}\n" if command else "")
            output.seek(0)
            return Answer(returncode=returncode, text=output.read().decode("utf-8", "replace").strip())

    def _wait(self, process: "subprocess.Popen[bytes]", text: str) -> int:
        """The exit status. Each step has a bound; a wait after a kill without one would never end in D state."""
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(text.encode())  # shorter than a pipe holds: never waits
        try:
            return process.wait(self._timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        try:
            process.wait(self._kill_seconds)
        except subprocess.TimeoutExpired:
            self._left_behind = process
            self._refuse_while_left_behind()
        raise NoAnswerError(f"{COMMAND} did not answer within {self._timeout_seconds:g} s")

    def _refuse_while_left_behind(self) -> None:
        process = self._left_behind
        if process is None or process.poll() is not None:
            self._left_behind = None
            return
        raise NoAnswerError(
            f"{COMMAND} (process {process.pid} of the plugin) did not answer within {self._timeout_seconds:g} s and "
            "does not end when it is killed, as where the driver hangs: see the node's kernel log. The daemon is "
            "called again when that process has ended"
        )
