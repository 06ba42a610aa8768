"""Why a real kubelet cannot run on this machine, in one sentence.

Returns None where it can. A kubelet needs Linux, root, its own mount namespace and the kernel's control
groups; a container without CAP_SYS_ADMIN has none of that, however much it looks like root.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TRY_SECONDS = 20.0
CGROUPS = Path("/sys/fs/cgroup")
KERNEL_LOG = Path("/dev/kmsg")


def obstacle() -> str | None:
    """A sentence for the person who started the tests, or None."""
    if not sys.platform.startswith("linux"):
        return f"a real kubelet runs on Linux only, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "a real kubelet needs root: run the tests as root to have it"
    for program in ("unshare", "mount", "sh"):
        if shutil.which(program) is None:
            return f"there is no {program} on PATH; a real kubelet is given a mount namespace of its own with it"
    if not any(CGROUPS.glob("*")):
        return f"nothing is mounted on {CGROUPS}, and a kubelet does not start without control groups"
    if not os.access(KERNEL_LOG, os.R_OK):
        return f"{KERNEL_LOG} cannot be read, and a kubelet does not start without it"
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /var/lib"],
        capture_output=True,
        text=True,
        timeout=TRY_SECONDS,
        check=False,
    )
    if tried.returncode != 0:
        return f"no mount namespace can be created here (is CAP_SYS_ADMIN missing?): {tried.stderr.strip()}"
    return None
