"""Decides whether this node's kubelet and container runtime put CDI devices into containers.

Takes the versions that the Node names and containerd's configuration, returns why they do not; empty where they do, or
where nothing is known of the runtime. One that does not drops the names without an error, and the pod runs without a
GPU: so nothing is advertised there. Sources: KEP-4009 (kubelet), the documentation of containerd and CRI-O. Pure, but
for `read_containerd`, which only reads.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIGS = (
    Path("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
    Path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
    Path("/var/snap/microk8s/current/args/containerd.toml"),
    Path("/etc/containerd/config.toml"),
)
"""Where k3s, RKE2, MicroK8s and containerd's packages have it. The last may be there next to one of the others, for
Docker's own containerd."""
FIRST_KUBELET = (1, 29)
"""DevicePluginCDIDevices is on by default from here on."""
FIRST_CRIO = (1, 28)
FIRST_CONTAINERD, FIRST_CONTAINERD_BY_DEFAULT = (1, 7), (2, 0)
OR_ENVVAR = (
    "or set deviceListStrategy: envvar in the agent's settings where NVIDIA's runtime is the default one and takes "
    "UUIDs from the environment"
)


def why_no_cdi(runtime: str, kubelet: str, containerd: Mapping[str, bool]) -> str:
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


def _why_not_containerd(text: str, version: tuple[int, int], files: Mapping[str, bool]) -> str:
    if version < FIRST_CONTAINERD:
        return f"containerd {text} drops CDI devices without an error: upgrade it to 2.0 or later, {OR_ENVVAR}"
    off = [path for path, on in files.items() if not on]
    # A later file wins over an earlier one.
    last = list(files.values())[-1] if files else version >= FIRST_CONTAINERD_BY_DEFAULT
    if last:
        return ""
    if off:
        return f"CDI is off in containerd {text}: set enable_cdi = true in its {off[-1]} and restart it, {OR_ENVVAR}"
    return (
        f"containerd {text} has CDI off by default, and no file that the agent sees turns it on: set enable_cdi = true "
        f"in its CRI plugin's section and restart it, upgrade it to 2.0 or later, {OR_ENVVAR}"
    )


def read_containerd(root: Path, configs: Sequence[Path] = CONFIGS) -> dict[str, bool]:
    """What the first of these files that is there, below the node's root, and those that it imports say of
    `enable_cdi`, by path and in the order in which containerd reads them."""
    for config in configs:
        document = _document(root, config)
        if document is not None:
            paths = (path for pattern in _imports(document) for path in _matching(root, config.parent / pattern))
            found = {path: list(_settings(_document(root, path) or {})) for path in (config, *paths)}
            return {str(path): values[-1] for path, values in found.items() if values}
    return {}


def _document(root: Path, path: Path) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads((root / str(path).lstrip("/")).read_text(encoding="utf-8"))
    except OSError:
        return None
    except ValueError:
        return {}  # containerd itself does not start with a file that it cannot read


def _imports(document: Mapping[str, Any]) -> list[str]:
    """By the default of NVIDIA's toolkit and of containerd 2 also the folder conf.d next to the file."""
    given = document.get("imports")
    return [pattern for pattern in given if isinstance(pattern, str)] if isinstance(given, list) else ["conf.d/*.toml"]


def _matching(root: Path, pattern: Path) -> list[Path]:
    folder = root / str(pattern.parent).lstrip("/")
    return [pattern.parent / path.name for path in sorted(folder.glob(pattern.name))]


def _settings(node: Mapping[str, Any]) -> Iterator[bool]:
    """Its plugin moved from `io.containerd.grpc.v1.cri` to `io.containerd.cri.v1.runtime`: found by key."""
    for key, value in node.items():
        if key == "enable_cdi" and isinstance(value, bool):
            yield value
        elif isinstance(value, Mapping):
            yield from _settings(value)


def _version(text: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
