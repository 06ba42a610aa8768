"""Sends SIGHUP to a program of NVIDIA's pods on this node, where the signal of its config-manager was lost.

Takes a pod's UID and the program's name; returns why it could not be sent. config-manager looks for
`/usr/bin/mps-control-daemon` and the process is called `mps-control-daemon`, so a daemon that runs never learns of a
new config; a deleted pod would start with the ConfigMap's default. Must never signal a process of another pod: the
kernel's cgroup of a process names the pod.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.processes import Processes

log = logging.getLogger(__name__)


class Sighup:
    """Needs the node's PID namespace, which the agent has."""

    def __init__(self, proc: Path = Path("/proc"), kill: Callable[[int, int], None] = os.kill) -> None:
        self._proc, self._kill = proc, kill

    def __call__(self, pod_uid: str, program: str) -> str:
        """Empty where it was sent."""
        pids = list(self._processes(pod_uid, program))
        if not pids:
            return f"no process {program} of its pod is found on this node"
        for pid in pids:
            try:
                self._kill(pid, signal.SIGHUP)
            except OSError as error:
                return f"{program} (process {pid}) cannot be signalled: {error}"
            log.info("SIGHUP sent to %s (process %d) of pod %s, whose config-manager did not", program, pid, pod_uid)
        return ""

    def _processes(self, pod_uid: str, program: str) -> Iterator[int]:
        table = Processes(self._proc).scan()
        for process in () if isinstance(table, NoAnswer) else table.pods().get(pod_uid, ()):
            try:
                command = (self._proc / str(process.pid) / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue  # it has ended
            if command.rpartition(b"/")[2] == program.encode():
                yield process.pid
