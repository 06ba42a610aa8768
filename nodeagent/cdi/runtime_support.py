"""Decides whether this node's kubelet and container runtime put CDI devices into containers.

Takes the versions that the Node names and containerd's configuration, returns why they do not; empty where they do, or
where nothing is known of the runtime. One that does not drops the names without an error, and the pod runs without a
GPU: so nothing is advertised there. Sources: KEP-4009 (kubelet), the documentation of containerd and CRI-O. Pure, but
for `read_containerd`, which only reads.
"""

import fnmatch
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeagent.handover.host_paths import on_host

CONFIGS = (
    Path("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
    Path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
    Path("/var/snap/microk8s/current/args/containerd.toml"),
    Path("/etc/containerd/config.toml"),
)
"""Where k3s, RKE2, MicroK8s and containerd's packages have it. The last may be there next to one of the others, for
Docker's own containerd."""
SECTIONS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
"""Of its CRI plugin, in a file of version 1 or none, 2, and 3 or later."""
MAX_FILES, MAX_BYTES = 256, 1 << 20
FIRST_KUBELET = (1, 29)
"""DevicePluginCDIDevices is on by default from here on."""
FIRST_CRIO = (1, 28)
FIRST_CONTAINERD, FIRST_CONTAINERD_BY_DEFAULT = (1, 7), (2, 0)
OR_ENVVAR = (
    "or set deviceListStrategy: envvar in the agent's settings where NVIDIA's runtime is the default one and takes "
    "UUIDs from the environment"
)


def why_no_cdi(runtime: str, kubelet: str, containerd: Mapping[str, bool | None]) -> str:
    """`runtime` and `kubelet` as in `status.nodeInfo`; `containerd` is what its files set, by name."""
    if (version := _version(kubelet)) and version < FIRST_KUBELET:
        return f"kubelet {kubelet} does not pass CDI devices on: upgrade it to 1.29 or later, {OR_ENVVAR}"
    name, _, text = runtime.partition("://")
    version = _version(text)
    if name == "docker":
        # Versions from the end of 2025 on do, and nothing on the Node tells which one it is.
        return f"cri-dockerd may not pass CDI devices on to Docker: use containerd or CRI-O, {OR_ENVVAR}"
    if name == "cri-o" and version and version < FIRST_CRIO:
        return f"CRI-O {text} does not take CDI devices from the kubelet: upgrade it to 1.28 or later, {OR_ENVVAR}"
    if name == "containerd" and version:
        return _why_not_containerd(text, version, containerd)
    return ""


def _why_not_containerd(text: str, version: tuple[int, int], files: Mapping[str, bool | None]) -> str:
    if version < FIRST_CONTAINERD:
        return f"containerd {text} drops CDI devices without an error: upgrade it to 2.0 or later, {OR_ENVVAR}"
    by_default = version >= FIRST_CONTAINERD_BY_DEFAULT
    # A later file wins over an earlier one; up to 1.7 its section does as a whole, also where it says nothing.
    said = [(path, on) for path, on in files.items() if on is not None or not by_default]
    path, on = said[-1] if said else ("", by_default)
    if on:
        return ""
    where = path or "CRI plugin's section, since no file that the agent sees turns it on, or upgrade it to 2.0 or later"
    return f"CDI is off in containerd {text}: set enable_cdi = true in its {where}, and restart it, {OR_ENVVAR}"


def read_containerd(root: Path, configs: Sequence[Path] = CONFIGS) -> dict[str, bool | None]:
    """What the first of these files that is there, below the node's root, and those that it imports say of
    `enable_cdi`, by path and in the order in which containerd reads them; None: nothing, in a section of its plugin."""
    found: dict[str, bool | None] = {}
    pending = [path for path in configs if _document(root, path) is not None][:1]
    version = 0
    for path in pending:
        document = _document(root, path) or {}
        stated, imports = document.get("version"), document.get("imports")
        version = stated if isinstance(stated, int) else version
        for pattern in imports if isinstance(imports, list) else ():
            cleaned = Path(os.path.normpath(path.parent / str(pattern)))
            pending += [each for each in _matching(root, cleaned) if each not in pending][: MAX_FILES - len(pending)]
        sections, own = _table(document, "plugins"), SECTIONS[min(max(version, 1), 3) - 1]
        # From 2.0 on it takes what has an earlier name too, a later 2.x even next to the new name: off in any is off.
        if any(_table(sections, name).get("enable_cdi") is False for name in SECTIONS):
            found[str(path)] = False
        elif own in sections:
            found[str(path)] = True if _table(sections, own).get("enable_cdi") is True else None
    return found


def _document(root: Path, path: Path) -> Mapping[str, Any] | None:
    """None where there is no such file; containerd itself does not start with one that it cannot read."""
    try:
        file = on_host(root, path)
        size = file.stat().st_size
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() and size <= MAX_BYTES else {}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        return {}


def _matching(root: Path, pattern: Path) -> list[Path]:
    """As containerd finds them: in order, and a `*` is never more than a part of one name."""
    found = [Path("/")]
    for part in pattern.parts[1:]:
        found = [folder / name for folder in found for name in _names(root, folder, part)][:MAX_FILES]
    return found


def _names(root: Path, folder: Path, pattern: str) -> list[str]:
    try:
        return sorted(fnmatch.filter(os.listdir(on_host(root, folder)), pattern)) if "*" in pattern else [pattern]
    except (OSError, ValueError):
        return []


def _table(node: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = node.get(name)
    return value if isinstance(value, Mapping) else {}


def _version(text: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
