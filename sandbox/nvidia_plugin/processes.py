"""NVIDIA's programs in the procfs of a simulated machine, for the stand-ins are no processes of their own.

`show` keeps an entry for each program that runs, with its command line and a cgroup that names its pod, and returns
those that a process on the machine has sent SIGHUP since: `sandbox.driver.run` leaves such a signal as a file.
"""

from collections.abc import Mapping
from pathlib import Path

FIRST_PID = 4_000_000
"""Beyond any process of this machine."""


class Processes:
    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._pids: dict[str, int] = {}

    def show(self, pods: Mapping[str, str]) -> list[str]:
        """Pod UIDs by program; returns the programs that were signalled."""
        heard = []
        for program, uid in pods.items():
            entry = self.entry(program)
            entry.mkdir(parents=True, exist_ok=True)
            (entry / "cmdline").write_bytes(program.encode() + b"\0")
            (entry / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/x\n")
            (entry / "stat").write_text(f"{entry.name} (program) S {'0 ' * 16}1 {'0 ' * 32}\n")
            if (entry / "SIGHUP").exists():
                (entry / "SIGHUP").unlink()
                heard.append(program)
        return heard

    def entry(self, program: str) -> Path:
        """Its folder; the first one that is shown is FIRST_PID's."""
        return self._proc / str(self._pids.setdefault(program, FIRST_PID + len(self._pids)))
