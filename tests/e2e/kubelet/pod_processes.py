"""Gives each running container of the scripted runtime a process: a real one, in a real cgroup named after its pod.

Takes the runtime's records and a simulated machine's procfs, in which the process appears as a link to its own folder
in the kernel's. It begins and ends with its container, so that one which cannot be killed leaves its process behind.
There is no process of a sandbox: between two containers a pod has none at all, which is less than a real node shows.
"""

import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from tests.e2e.rig.realkubelet.runtime import Runtime
from tests.waiting import eventually

LOOK_SECONDS = 0.1


class PodProcesses:
    """Between `start` and `stop` the processes follow the containers."""

    def __init__(self, runtime: Runtime, proc: Path, name: str) -> None:
        self._runtime, self._proc = runtime, proc
        self._root = _cgroups() / f"{name}-{os.getpid()}"  # several runs share the machine
        self._found: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        """With its cgroup, by container id."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for container_id in list(self._found):
            self._end(container_id)
        folders = [path for path in self._root.rglob("*") if path.is_dir()]
        for folder in sorted(folders, reverse=True):
            folder.rmdir()
        if self._root.exists():
            self._root.rmdir()

    def of(self, pod_uid: str) -> list[int]:
        """Those that live."""
        rows = [path.read_text().split() for path in self._root.rglob(f"pod{pod_uid}/*/cgroup.procs")]
        return sorted(int(pid) for row in rows for pid in row)

    def _follow(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            running = {each.container_id: each for each in self._runtime.containers() if each.state == "running"}
            for container_id in self._found.keys() - running.keys():
                self._end(container_id)
            for container_id in running.keys() - self._found.keys():
                self._begin(container_id, running[container_id].pod_uid)

    def _begin(self, container_id: str, pod_uid: str) -> None:
        cgroup = self._root / "kubepods" / f"pod{pod_uid}" / container_id
        cgroup.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(["sleep", "infinity"])
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        (self._proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        self._found[container_id] = process, cgroup

    def _end(self, container_id: str) -> None:
        process, cgroup = self._found.pop(container_id)
        process.kill()
        process.wait()
        (self._proc / str(process.pid)).unlink()
        # The kernel may count the process there for a moment.
        eventually(lambda: _removed(cgroup), f"{cgroup} is removed")


def _removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def _cgroups() -> Path:
    """Where the kernel's only hierarchy of cgroups is mounted, or the one that has no controllers."""
    mounts = [row.split() for row in Path("/proc/mounts").read_text().splitlines()]
    return next(Path(row[1]) for row in mounts if row[2] == "cgroup2")
