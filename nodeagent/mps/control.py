"""The commands to one GPU's MPS control daemon through `nvidia-cuda-mps-control`, each within a bound.

Starts the daemon of one MPS directory unless it answers, holds its defaults at what they should be, and ends it unless
it has clients. Any client may change the defaults, so each check compares what the daemon shows with what it showed
after they were set: how that is printed differs between drivers. A daemon talks to one program at a time and turns
others away, often without a word and with exit status 0: each run ends with a command that always prints something, and
is repeated while that is missing. A run without an end is killed; where the kernel does not let it end, it is left
behind, and nothing is run for this directory until it has ended. Never ends a daemon that has clients. Not thread-safe:
`MpsDaemons` lets one thread at a time in.
"""

import contextlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

COMMAND = "nvidia-cuda-mps-control"
MAX_PIPE_DIRECTORY_BYTES = 87  # as tried with 535: its sockets lie in it, and with 88 it fails without a message
NOT_OURS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_PROTOCOL_VERSION")
"""Not passed on: limits of clients, and a protocol of which 3 has other commands than those below."""
ENDED = "it had ended and was started again: CUDA processes that used it have failed"
COMM_CHARS = 15  # of a process's name, as the kernel keeps it
PRINTS_ALWAYS = "get_default_active_thread_percentage"
TRIES, PAUSE_SECONDS = 20, 0.05  # of a run that is turned away, against a program that asks in a loop
KILL_SECONDS = 1.0  # within which a killed command ends, unless it waits for the driver in the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The most that a client of this GPU gets: what holds for one that sets no limits of its own."""

    memory_mib: int
    thread_percent: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was found and done about one daemon."""

    problem: str | None = None
    """Why it does not answer."""
    failed_start: bool = False
    pid: int = 0
    """Of the daemon's process; 0 where it is not known."""
    alarms: tuple[str, ...] = ()
    """What should not have happened, and was put right."""


class NoAnswerError(Exception):
    """The command was not answered; the text is the reason."""


class NoDaemonError(NoAnswerError):
    """No daemon runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    returncode: int
    text: str  # stdout and stderr

    @property
    def reached(self) -> bool:
        return self.returncode == 0

    @property
    def turned_away(self) -> bool:
        """Of a run that always prints something: what driver 535 was seen to do while another program talks to it."""
        return not self.text or (not self.reached and self.text.startswith("Cannot send command"))


class MpsControl:
    def __init__(
        self,
        pipe: Path,
        environment: Mapping[str, str],
        *,
        logs: Path | None = None,
        many_users: bool = False,
        timeout_seconds: float = 5.0,
        kill_seconds: float = KILL_SECONDS,
        spawn: Callable[..., "subprocess.Popen[bytes]"] = subprocess.Popen,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pipe, self._logs = pipe, logs or pipe.parent / "log"
        self._environment = {name: text for name, text in environment.items() if name not in NOT_OURS}
        self._environment |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(self._logs)}
        self._timeout_seconds, self._kill_seconds = timeout_seconds, kill_seconds
        self._spawn, self._pause, self._many_users = spawn, pause, many_users
        self._left_behind: subprocess.Popen[bytes] | None = None
        self._answered = False
        """The daemon that runs now, if one does, was known to run before."""
        self._shown: dict[str, str] = {}
        """What the daemon showed after each command that set something, when it was first sent."""

    def ensure(self, gpu: str, defaults: Defaults) -> Check:
        """Start the GPU's daemon unless it answers, and set its defaults."""
        if len(os.fsencode(self._pipe)) > MAX_PIPE_DIRECTORY_BYTES:
            why = f"the MPS pipe directory {self._pipe} is longer than {MAX_PIPE_DIRECTORY_BYTES} bytes"
            return Check(problem=why)
        try:
            return self._ensure(gpu, defaults)
        except NoAnswerError as error:
            return Check(problem=str(error))
        except OSError as error:
            return Check(problem=f"{COMMAND} cannot be run: {error}")

    def end(self) -> bool:
        """End the daemon unless it has clients; True when none runs."""
        try:
            return self._end()
        except (OSError, NoAnswerError) as error:
            log.warning("the MPS daemon of %s was not ended: %s", self._pipe, error)
            return False

    def _ensure(self, gpu: str, defaults: Defaults) -> Check:
        if (servers := self._servers()) is not None:
            self._answered = True
            return Check(alarms=self._hold(defaults, servers), pid=self._pid())
        ended = self._answered
        self._answered, self._shown = False, {}
        for directory in (self._pipe, self._logs):
            directory.mkdir(parents=True, exist_ok=True)
        self._pipe.chmod(0o755)  # whatever our umask: clients run as any user
        started = self._start(gpu)
        if self._servers() is None:
            why = started.text or f"exit {started.returncode}"
            return Check(problem=f"the MPS control daemon of {gpu} did not start: {why}", failed_start=True)
        log.info("MPS daemon of %s started", gpu)
        self._answered = True
        self._hold(defaults, ())
        return Check(alarms=(ENDED,) if ended and started.reached else (), pid=self._pid())

    def _start(self, gpu: str) -> Answer:
        if self._many_users:
            # A driver without this option ends with an error; without it a second user waits for the first one's end.
            started = self._run("", "-d", "--multiuser-server", CUDA_VISIBLE_DEVICES=gpu)
            if started.reached:
                return started
        return self._run("", "-d", CUDA_VISIBLE_DEVICES=gpu)

    def _pid(self) -> int:
        """Found by what it was started with, among our own processes: into the file that some drivers write, and into
        the names of their own processes, clients may write what they like."""
        mine = f"CUDA_MPS_PIPE_DIRECTORY={self._pipe}".encode()
        ours = os.readlink("/proc/self/ns/mnt")
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end at any moment
                if (process / "comm").read_text() != f"{COMMAND[:COMM_CHARS]}\n":
                    continue
                words = (process / "cmdline").read_bytes().split(b"\0")
                environment = (process / "environ").read_bytes().split(b"\0")
                if b"-d" in words and mine in environment and os.readlink(process / "ns/mnt") == ours:
                    return int(process.name)
        return 0

    def _hold(self, defaults: Defaults, servers: Iterable[str]) -> tuple[str, ...]:
        """Set what does not show what it showed after it was set last; returns what a client has changed since."""
        shown, changed = {}, []
        for name, read, write in _settings(defaults, servers):
            found, before = self._ask(read), self._shown.get(write)
            if before is None:
                # Read in the same run, in which no other program can write.
                before = "".join(self._ask(write, read).splitlines()[-1:])
            elif found != before:
                self._ask(write)
                changed.append(f"{name} was changed from {before or 'none'} to {found or 'none'} and set back")
            shown[write] = before
        self._shown = shown
        return tuple(changed)

    def _end(self) -> bool:
        servers = self._servers()
        if servers is None:
            return True
        for server in servers:
            if any(word.isdigit() for word in self._ask(f"get_client_list {server}").split()):
                log.info("the MPS daemon of %s still has clients and is kept", self._pipe)
                return False
        self._run("quit")
        return self._servers() is None

    def _servers(self) -> list[str] | None:
        """The servers of the daemon; None where none runs."""
        try:
            return self._ask("get_server_list").split() if self._pipe.is_dir() else None
        except NoDaemonError:
            return None

    def _ask(self, *commands: str) -> str:
        """What they print, in one run."""
        for _ in range(TRIES):
            answer = self._run("\n".join((*commands, PRINTS_ALWAYS)))
            if not answer.turned_away:
                break
            self._pause(PAUSE_SECONDS)
        else:
            raise NoAnswerError(
                f"the MPS control daemon talks to another program, and to one at a time: end {COMMAND} in the "
                "pods that use this GPU, or wait for its end"
            )
        if not answer.reached:
            raise NoDaemonError(answer.text)
        return "\n".join(answer.text.splitlines()[:-1])

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
            f"{COMMAND} (process {process.pid} of the supervisor) did not answer within {self._timeout_seconds:g} s "
            "and does not end when it is killed, as where the driver hangs: see the node's kernel log. The daemon is "
            "called again when that process has ended"
        )


def _settings(defaults: Defaults, servers: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Name, command that reads, command that sets: of the daemon, and of each server, which has limits of its own."""
    threads, memory = f"{defaults.thread_percent}", f"0 {defaults.memory_mib}M"  # device 0: a daemon has one GPU
    yield (
        "the default thread percentage",
        "get_default_active_thread_percentage",
        f"set_default_active_thread_percentage {threads}",
    )
    yield (
        "the default memory limit",
        "get_default_device_pinned_mem_limit 0",
        f"set_default_device_pinned_mem_limit {memory}",
    )
    for server in servers:
        yield (
            f"the thread percentage of MPS server {server}",
            f"get_active_thread_percentage {server}",
            f"set_active_thread_percentage {server} {threads}",
        )
        yield (
            f"the memory limit of MPS server {server}",
            f"get_device_pinned_mem_limit {server} 0",
            f"set_device_pinned_mem_limit {server} {memory}",
        )
