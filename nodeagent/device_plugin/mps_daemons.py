"""One MPS control daemon per GPU that has slices, driven through `nvidia-cuda-mps-control`.

In goes a GPU's UUID, out comes None (its daemon answers) or the reason why not. One command per invocation, each with
a time limit: several commands in one run answer without labels, and the exit status tells only whether a daemon was
reached. Sets no limits: those are in each client's environment. Never ends a daemon that still has clients, and never
takes another GPU's daemon for the one that was asked for.
"""

import logging
import os
import subprocess
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeagent.device_plugin.allocate import mps_directory, pipe_directory

log = logging.getLogger(__name__)

COMMAND = "nvidia-cuda-mps-control"
MAX_PIPE_DIRECTORY_BYTES = 87  # as tried with 535: its sockets lie in it, and with 88 it fails without a word
LIMITS_OF_CLIENTS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    returncode: int
    text: str  # stdout and stderr

    @property
    def reached(self) -> bool:
        return self.returncode == 0


class MpsDaemons:
    def __init__(self, mps_root: Path, environment: Mapping[str, str], *, timeout_seconds: float = 5.0) -> None:
        self._root = mps_root
        self._environment = {name: text for name, text in environment.items() if name not in LIMITS_OF_CLIENTS}
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()  # the daemon's own start is not safe against a second one
        self._owners: dict[Path, str] = {}

    def claim(self, gpus: Collection[str]) -> None:
        """These GPUs have slices from now on: of those that would share a directory the first one gets it."""
        owners: dict[Path, str] = {}
        for gpu in sorted(gpus):
            owners.setdefault(mps_directory(self._root, gpu), gpu)
        with self._lock:
            self._owners = owners

    def ensure_all(self, gpus: Collection[str]) -> dict[str, str]:
        """The GPUs without an answering daemon, with the reasons."""
        found = {gpu: self.ensure(gpu) for gpu in sorted(gpus)}
        return {gpu: reason for gpu, reason in found.items() if reason is not None}

    def ensure(self, gpu: str) -> str | None:
        """Start the GPU's daemon unless it answers; None when it does."""
        pipe = pipe_directory(self._root, gpu)
        with self._lock:
            owner = self._owners.setdefault(mps_directory(self._root, gpu), gpu)
        if owner != gpu:
            return f"{gpu} and {owner} would share one MPS directory"
        if len(os.fsencode(pipe)) > MAX_PIPE_DIRECTORY_BYTES:
            return f"the MPS pipe directory {pipe} is longer than {MAX_PIPE_DIRECTORY_BYTES} bytes"
        with self._lock:
            try:
                return self._ensure(gpu, pipe)
            except FileNotFoundError:
                return f"{COMMAND} is not on PATH"
            except subprocess.TimeoutExpired:
                return f"{COMMAND} did not answer within {self._timeout_seconds:g} s"
            except OSError as error:
                return f"{COMMAND} cannot be run: {error}"

    def quit_unused(self, wanted: Collection[str]) -> bool:
        """End the daemons below the root that no wanted GPU needs and no client uses; False: some are left."""
        kept = {mps_directory(self._root, gpu) for gpu in wanted}
        unneeded = [pipe for pipe in sorted(self._root.glob("*/pipe")) if pipe.parent not in kept]
        return all([self._ended(pipe) for pipe in unneeded])  # a list: each is tried, also after one that stays

    def _ensure(self, gpu: str, pipe: Path) -> str | None:
        if pipe.is_dir() and self._command(pipe, "get_server_list").reached:
            return None
        logs = pipe.parent / "log"
        for directory in (pipe, logs):
            directory.mkdir(parents=True, exist_ok=True)
        pipe.chmod(0o755)  # whatever our umask: clients run as any user
        started = self._run(["-d"], {**self._of(pipe), "CUDA_VISIBLE_DEVICES": gpu})
        if self._command(pipe, "get_server_list").reached:
            log.info("MPS daemon of %s started", gpu)
            return None
        return f"the MPS control daemon of {gpu} did not start: {started.text or f'exit {started.returncode}'}"

    def _ended(self, pipe: Path) -> bool:
        with self._lock:
            try:
                servers = self._command(pipe, "get_server_list")
                if not servers.reached:
                    return True
                for server in servers.text.split():
                    if any(word.isdigit() for word in self._command(pipe, f"get_client_list {server}").text.split()):
                        log.info("the MPS daemon of %s still has clients and is kept", pipe)
                        return False
                self._command(pipe, "quit")
                return not self._command(pipe, "get_server_list").reached
            except (OSError, subprocess.TimeoutExpired) as error:
                log.warning("the MPS daemon of %s was not ended: %s", pipe, error)
                return False

    def _command(self, pipe: Path, command: str) -> Answer:
        return self._run([], self._of(pipe), command)

    def _of(self, pipe: Path) -> dict[str, str]:
        return {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(pipe.parent / "log")}

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str], command: str = "") -> Answer:
        # Into a file, not a pipe: the daemon inherits it and would keep a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [COMMAND, *arguments],
                input=f"{command}\n".encode() if command else b"",
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment, **environment},
                timeout=self._timeout_seconds,
                start_new_session=True,  # a Ctrl-C meant for us must not reach the daemon
                check=False,
            )
            output.seek(0)
            return Answer(returncode=done.returncode, text=output.read().decode("utf-8", "replace").strip())
