"""CPU time and peak memory of processes, from /proc.

Takes process ids by name, returns readings; the difference of two is what a process has used in between. Linux only.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of one process, since its start."""

    cpu_seconds: float = 0.0
    peak_mib: int = 0


def usages(pids: Mapping[str, int | None], proc: Path = Path("/proc")) -> dict[str, Usage]:
    """Nothing used, where a process is gone."""
    return {name: _usage(proc / str(pid)) if pid is not None else Usage() for name, pid in pids.items()}


def used(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, dict[str, float]]:
    """CPU in between, and the peak memory of the whole life."""
    return {
        name: {
            "cpu_seconds": round(usage.cpu_seconds - before.get(name, Usage()).cpu_seconds, 1),
            "peak_mib": usage.peak_mib,
        }
        for name, usage in after.items()
    }


def _usage(folder: Path) -> Usage:
    try:
        # The second field, the program's name, may hold anything; the rest are numbers.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text()
    except OSError:
        return Usage()
    peak_kib = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        peak_mib=peak_kib // 1024,
    )
