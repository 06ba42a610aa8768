"""Installs what NVIDIA's toolkit leaves on a node: the files of the driver, and the management CDI specification.

Takes a folder for the files, a folder for specifications and a driver's version; writes what the toolkit's pod writes
when it starts (nvidia-container-toolkit 1.20, mode `management`), with empty files for libraries. A test compares it
with what nvidia-ctk printed. Again for a new version: the files of the old one are gone then, as where the driver's
container was replaced.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sandbox.driver.procfs import MAJORS

FILE_NAME = "management.nvidia.com-gpu.yaml"
HOOK = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
FOLDER = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
BINARIES = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi")
OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
MODE = 0o666
VOID = {
    "hostPath": "/dev/null",
    "containerPath": "/var/run/nvidia-container-devices/void",
    "options": ["ro", "nosuid", "nodev", "bind"],
}
"""By it NVIDIA's runtime gives the container no other device."""


def install(driver_root: Path, specifications: Path, driver_version: str, minors: Sequence[int] = (0,)) -> Path:
    """Returns the specification's path."""
    shutil.rmtree(driver_root, ignore_errors=True)
    for name in _files(driver_version):
        path = driver_root / name.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    specifications.mkdir(parents=True, exist_ok=True)
    path = specifications / FILE_NAME
    temporary = path.with_name(f".{FILE_NAME}.tmp")
    temporary.write_text(yaml.safe_dump(document(str(driver_root), driver_version, minors), sort_keys=False))
    temporary.replace(path)
    return path


def document(driver_root: str, driver_version: str, minors: Sequence[int]) -> dict[str, Any]:
    """In mode `management` the hook disable-device-node-modification is left out."""
    commands = (
        ["create-symlinks", "--link", f"libcuda.so.1::{FOLDER}/libcuda.so"],
        ["enable-cuda-compat", f"--host-driver-version={driver_version}"],
        ["update-ldcache", "--folder", FOLDER],
    )
    return {
        "cdiVersion": "0.5.0",
        "kind": "management.nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": _nodes(driver_root, minors)}}],
        "containerEdits": {
            "env": [f"NVIDIA_CTK_LIBCUDA_DIR={FOLDER}", "NVIDIA_VISIBLE_DEVICES=void"],
            "hooks": [_hook(command) for command in commands],
            "mounts": [
                {"hostPath": f"{driver_root}{name}", "containerPath": name, "options": list(OPTIONS)}
                for name in _files(driver_version)
            ]
            + [VOID],
        },
    }


def _files(driver_version: str) -> list[str]:
    return [f"/usr/bin/{name}" for name in BINARIES] + [f"{FOLDER}/{name}.so.{driver_version}" for name in LIBRARIES]


def _nodes(driver_root: str, minors: Sequence[int]) -> list[dict[str, object]]:
    nvidia, uvm, caps = MAJORS["nvidia"], MAJORS["nvidia-uvm"], MAJORS["nvidia-caps"]
    found = [("nvidia-modeset", nvidia, 254), ("nvidia-uvm", uvm, 0), ("nvidia-uvm-tools", uvm, 1)]
    found += [(f"nvidia{minor}", nvidia, minor) for minor in minors]
    found += [("nvidiactl", nvidia, 255), *((f"nvidia-caps/nvidia-cap{minor}", caps, minor) for minor in (1, 2))]
    return [
        {
            "path": f"/dev/{name}",
            "hostPath": f"{driver_root}/dev/{name}",
            "major": major,
            **({"minor": minor} if minor else {}),
            "fileMode": MODE,
            "permissions": "rwm",
        }
        for name, major, minor in found
    ]


def _hook(command: list[str]) -> dict[str, object]:
    args = [Path(HOOK).name, *command]
    return {"hookName": "createContainer", "path": HOOK, "args": args, "env": ["NVIDIA_CTK_DEBUG=false"]}
