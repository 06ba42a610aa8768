"""A procfs as the kernel shows it, as files: processes in the cgroups of pods, with files open."""

import shutil
from collections.abc import Iterable
from pathlib import Path

BOOTED_AT = 1_000_000
SYSTEMD = (
    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/cri-containerd-{container}.scope"
)
LAYOUTS = {
    "v2 systemd": SYSTEMD,
    "v2 systemd, guaranteed, CRI-O": "0::/kubepods.slice/kubepods-pod{systemd}.slice/crio-{container}.scope",
    "v2 cgroupfs": "0::/kubepods/besteffort/pod{uid}/{container}",
    "v1": "12:pids:/kubepods/burstable/pod{uid}/{container}\n1:name=systemd:/kubepods/pod{uid}/{container}\n0::/",
    "a cgroup of the container's own": SYSTEMD + "/init.scope/user.slice",
    "the pod's own cgroup": "0::/kubepods/pod{uid}",
    "below another root": "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
    "kubelet-kubepods-besteffort-pod{systemd}.slice/cri-containerd-{container}.scope",
    "from a cgroup namespace": "0::/../../kubepods-burstable-pod{systemd}.slice/cri-containerd-{container}.scope",
    "from a cgroup namespace, cgroupfs": "0::/../../pod{uid}/{container}",
    "removed below it": SYSTEMD + " (deleted)",
}
"""As the kernel writes /proc/<pid>/cgroup."""
HOST = "0::/system.slice/containerd.service"


class ProcTree:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        (root / "stat").write_text(f"cpu  1 2 3\nbtime {BOOTED_AT}\nprocesses 9\n")

    def start(
        self,
        pid: int,
        pod_uid: str = "",
        *,
        layout: str = "v2 systemd",
        cgroup: str = "",
        program: str = "python",
        files: Iterable[str] = ("/dev/null",),
        state: str = "S",
        threads: int = 1,
        began_seconds: float = 0,
    ) -> None:
        """`pod_uid` as the API has it; none: a process of the host."""
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        text = cgroup or (LAYOUTS[layout] if pod_uid else HOST)
        names = {"uid": pod_uid, "systemd": pod_uid.replace("-", "_"), "container": f"{pid:064x}"}
        (folder / "cgroup").write_text(text.format(**names) + "\n")
        (folder / "cmdline").write_bytes(program.encode() + b"\0")
        fields = [state, *["0"] * 16, str(threads), "0", str(int(began_seconds * 100)), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} ({program[:15]}) {' '.join(fields)}\n")
        for number, file in enumerate(files):
            (folder / "fd" / str(number)).symlink_to(file)

    def end(self, *pids: int) -> None:
        for pid in pids:
            shutil.rmtree(self.root / str(pid))
