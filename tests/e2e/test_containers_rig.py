"""What `make e2e-node` does to the machine that it runs on: nothing that stays."""

import os
import subprocess
from pathlib import Path

import pytest

ENTER = Path(__file__).parent / "rig/containers/enter.sh"
SECONDS = 60.0


def machine() -> dict[str, object]:
    """Mounts, network links and host name."""
    mounts, links = Path("/proc/mounts").read_text().splitlines(), os.listdir("/sys/class/net")
    return {"mounts": sorted(mounts), "links": sorted(links), "host": os.uname().nodename}


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("exit 3", 3, id="the command's own exit code"),
        pytest.param(
            "mkdir /var/lib/kubelet; mount -t tmpfs none /mnt; ip link add left type bridge", 0, id="mounts and links"
        ),
        pytest.param(
            "for at in $(awk '$3 == \"cgroup2\" { print $2 }' /proc/mounts); do mkdir $at$GPUPLAN_E2E_CGROUP; done",
            0,
            id="control groups of version 2, as runc makes them",
        ),
        pytest.param("sleep 600 & disown; exit 0", 0, id="a process that would run on"),
    ],
)
def test_it_leaves_nothing_behind(command: str, code: int) -> None:
    before = machine()
    # Its own names only: another run may have as many of the same kind.
    line = f'echo "$GPUPLAN_E2E_CGROUP" "$GPUPLAN_E2E_FOLDER"; {command}'

    done = subprocess.run([ENTER, "bash", "-c", line], timeout=SECONDS, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (code, "")
    group, folder = done.stdout.split()
    assert list(Path("/sys/fs/cgroup").glob(f"*{group}")) == []
    assert not Path(folder).exists()
    assert machine() == before
