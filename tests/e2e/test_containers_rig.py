"""What `make e2e-node` does to the machine that it runs on: nothing that stays."""

import os
import subprocess
from pathlib import Path

import pytest

ENTER = Path(__file__).parent / "rig/containers/enter.sh"
SECONDS = 60.0


def left_on_the_machine() -> dict[str, set[str]]:
    """Mounts, network links, host name, and control groups and folders of the rig."""
    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/gpuplan-e2e-*")}
    return {
        "mounts": set(Path("/proc/mounts").read_text().splitlines()),
        "links": set(os.listdir("/sys/class/net")),
        "host": {os.uname().nodename},
        "groups": groups,
        "folders": {str(path) for path in Path("/tmp").glob("gpuplan-e2e-node-*")},
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("exit 3", 3, id="the command's own exit code"),
        pytest.param(
            "mkdir /var/lib/kubelet; mount -t tmpfs none /mnt; ip link add left type bridge", 0, id="mounts and links"
        ),
        pytest.param("sleep 600 & disown; exit 0", 0, id="a process that would run on"),
    ],
)
def test_it_leaves_nothing_behind(command: str, code: int) -> None:
    before = left_on_the_machine()

    done = subprocess.run([ENTER, "bash", "-c", command], timeout=SECONDS, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (code, "")
    assert left_on_the_machine() == before
