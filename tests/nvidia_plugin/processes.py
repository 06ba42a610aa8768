"""NVIDIA's programs as a folder that looks like /proc, for the stand-ins are no processes of their own.

`show` keeps an entry for each program that runs, with its command line and a cgroup that names its pod, and returns
those that were sent SIGHUP since; `send` is the kill of a program that believes the folder.
"""

import signal
from collections.abc import Mapping
from pathlib import Path

FIRST_PID = 4_000_000
"""Beyond any process of this machine."""


class Processes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pids: dict[str, int] = {}

    def show(self, pods: Mapping[str, str]) -> list[str]:
        """Pod UIDs by program; returns the programs that were signalled."""
        heard = []
        for program, uid in pods.items():
            entry = self._folder / str(self.pid(program))
            entry.mkdir(parents=True, exist_ok=True)
            (entry / "cmdline").write_bytes(program.encode() + b"\0")
            (entry / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/x\n")
            sent = entry / "sent"
            if sent.exists():
                sent.unlink()
                heard.append(program)
        return heard

    def pid(self, program: str) -> int:
        """The first one that is shown is FIRST_PID."""
        return self._pids.setdefault(program, FIRST_PID + len(self._pids))


def send(folder: Path, pid: int, number: int) -> None:
    """In place of os.kill."""
    assert number == signal.SIGHUP
    (folder / str(pid) / "sent").touch()
