"""Installs what NVIDIA's toolkit leaves on a node: the files of the driver, and the management CDI specification.

Takes a folder for the files, a folder for specifications and a driver's version; writes what the toolkit's pod writes
when it starts (nvidia-container-toolkit 1.20, mode `management`), with empty files for libraries. Again for a new
version: the files of the old one are gone then, as where the driver's container was replaced.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

FILE_NAME = "management.nvidia.com-gpu.yaml"
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
BINARIES = ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def install(driver_root: Path, specifications: Path, driver_version: str, minors: Sequence[int] = (0,)) -> Path:
    """Returns the specification's path."""
    shutil.rmtree(driver_root, ignore_errors=True)
    files = [f"/usr/lib/x86_64-linux-gnu/{name}.so.{driver_version}" for name in LIBRARIES]
    files += [f"/usr/bin/{name}" for name in BINARIES]
    for name in files:
        path = driver_root / name.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    nodes = [f"/dev/nvidia{minor}" for minor in minors] + ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    hook = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    commands = (
        ["create-symlinks", "--link", "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so"],
        ["enable-cuda-compat", f"--host-driver-version={driver_version}"],
        ["update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"],
        ["disable-device-node-modification"],
    )
    document = {
        "cdiVersion": "0.5.0",
        "kind": "management.nvidia.com/gpu",
        "devices": [
            {
                "name": "all",
                "containerEdits": {
                    "deviceNodes": [{"path": node, "hostPath": f"{driver_root}{node}"} for node in nodes],
                    "hooks": [_hook(hook, ["chmod", "--mode", "755", "--path", "/dev/nvidia-caps"])],
                },
            }
        ],
        "containerEdits": {
            "env": ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu", "NVIDIA_VISIBLE_DEVICES=void"],
            "hooks": [_hook(hook, command) for command in commands],
            "mounts": [
                {"hostPath": f"{driver_root}{name}", "containerPath": name, "options": OPTIONS} for name in files
            ],
        },
    }
    specifications.mkdir(parents=True, exist_ok=True)
    path = specifications / FILE_NAME
    temporary = path.with_name(f".{FILE_NAME}.tmp")
    temporary.write_text(yaml.safe_dump(document, sort_keys=False))
    temporary.replace(path)
    return path


def _hook(path: str, command: list[str]) -> dict[str, object]:
    return {"hookName": "createContainer", "path": path, "args": ["nvidia-cdi-hook", *command]}
