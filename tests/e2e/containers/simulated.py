"""The node's driver as everything but NVML shows it: procfs, the toolkit's CDI specification and its hook.

Takes GPUs and lays out the simulated machine's files where a node has them: /proc/driver/nvidia and /proc/devices,
/var/run/cdi, /usr/local/nvidia/toolkit. Only below `enter.sh`, whose mounts end with it.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.driver import machine, toolkit
from sandbox.driver.procfs import proc_of

FOLDER = Path("/run/simulated")
MACHINE = FOLDER / "gpus.json"
HOOK = Path("/usr/local/nvidia/toolkit/nvidia-cdi-hook")
HOOK_CALLS = FOLDER / "hook-calls"
SECONDS = 10.0


def start(gpus: Sequence[Any], *, seed: str) -> None:
    """Make the machine and everything that its driver and NVIDIA's toolkit leave on a node."""
    FOLDER.mkdir()
    machine.create(MACHINE, gpus, seed=seed)
    proc = proc_of(MACHINE)
    _mount("-t", "tmpfs", "none", "/proc/driver")
    Path("/proc/driver/nvidia").mkdir()
    for name in ("driver/nvidia", "devices"):
        _mount("--bind", str(proc / name), f"/proc/{name}")
    HOOK.parent.mkdir(parents=True)
    HOOK.write_text(f'#!/bin/sh\necho "$*" >>{HOOK_CALLS}\n')
    HOOK.chmod(0o755)
    version = machine.observe(MACHINE)["driver_version"]
    toolkit.install(FOLDER / "driver", Path("/var/run/cdi"), version, range(len(gpus)))


def _mount(*arguments: str) -> None:
    subprocess.run(["/usr/bin/mount", *arguments], check=True, timeout=SECONDS)
