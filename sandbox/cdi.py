"""The Container Device Interface, as containerd 2 and CRI-O apply it: names of devices to what a container gets.

Takes the folders with specifications and the names in a container's CRI request; returns the edits merged in the
order of the names, or the runtime's error. As strict as the library of container-device-interface 1.1: a file with an
unknown field, a wrong name, two devices of one name or no device is no specification, and its names cannot be resolved;
a name in two files of one folder belongs to neither; a node without numbers and a mount without a source fail. Reads
the files each time, as the library does when its watch reports a change.
"""

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
Schema = dict[str, Any]
FILLED: Schema = {"type": "string", "minLength": 1}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _record(needed: Schema, *others: str, **checked: Schema) -> Schema:
    properties = {**needed, **checked, **{name: {} for name in others}}
    return {"type": "object", "properties": properties, "required": [*needed], "additionalProperties": False}


_NODE = _record(
    {"path": FILLED}, "hostPath", "major", "minor", "fileMode", "uid", "gid",
    type={"enum": ["", "b", "c", "u", "p"]}, permissions={"pattern": r"^([rwm]*|none)\Z"},
)  # fmt: skip
_MOUNT = _record({"hostPath": FILLED, "containerPath": FILLED}, "options", "type")
_HOOK = _record({"hookName": {"enum": HOOKS}, "path": FILLED}, "args", "env", "timeout")
_EDITS = _record(
    {}, "netDevices", "intelRdt", "additionalGids",
    env=_list({"type": "string", "pattern": "^.+="}),
    deviceNodes=_list(_NODE), mounts=_list(_MOUNT), hooks=_list(_HOOK),
)  # fmt: skip
_NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z"}
_WORD = "[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_DEVICE = _record({"name": _NAME, "containerEdits": _EDITS}, "annotations")
_KIND: Schema = {"type": "string", "pattern": rf"^{_WORD}/{_WORD}\Z"}
_SPEC = _record(
    {"cdiVersion": {"enum": VERSIONS}, "kind": _KIND, "devices": {**_list(_DEVICE), "minItems": 1}},
    "annotations",
    containerEdits=_EDITS,
)
_VALIDATOR = Draft202012Validator(_SPEC)


class CdiError(Exception):
    """The text that the runtime gives the kubelet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A device node that the container has."""

    path: str
    major: int
    minor: int
    permissions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What the names add to a container."""

    env: Mapping[str, str] = field(default_factory=dict)
    """It replaces what the container had under these names."""
    nodes: tuple[Node, ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()
    """Container path, host path, read only."""


def inject(folders: Sequence[Path], names: Iterable[str]) -> Injected:
    """Raises CdiError where a name is not known, or an edit cannot be made."""
    wanted = list(names)
    known = _devices(folders)
    if unknown := [name for name in wanted if name not in known]:
        raise CdiError(f"CDI device injection failed: unresolvable CDI devices {', '.join(unknown)}")
    edits: list[Mapping[str, Any]] = []
    seen: set[Path] = set()
    for name in wanted:
        path, common, own = known[name]
        if path not in seen:
            seen.add(path)
            edits.append(common)
        edits.append(own)
    return _merged(edits)


def _devices(folders: Sequence[Path]) -> dict[str, tuple[Path, Mapping[str, Any], Mapping[str, Any]]]:
    """By qualified name: its file, the edits of the whole file, its own."""
    found: dict[str, tuple[Path, Mapping[str, Any], Mapping[str, Any]]] = {}
    for folder in folders:
        twice: set[str] = set()
        here: dict[str, tuple[Path, Mapping[str, Any], Mapping[str, Any]]] = {}
        for path in sorted(folder.glob("*")):
            if path.suffix not in (".json", ".yaml"):
                continue
            try:
                document = load(path)
            except (CdiError, OSError):
                continue
            for device in document["devices"]:
                name = f"{document['kind']}={device['name']}"
                twice |= {name} & here.keys()
                here[name] = (path, document.get("containerEdits") or {}, device["containerEdits"])
        found |= here
        for name in twice:
            del found[name]
    return found


def load(path: Path) -> dict[str, Any]:
    """One specification; raises CdiError where the library would not load it."""
    text = path.read_text()
    try:
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise CdiError(f"failed to parse CDI Spec {path}: {error}") from error
    for problem in _VALIDATOR.iter_errors(document):
        raise CdiError(f"failed to load CDI Spec {path}: {problem.json_path}: {problem.message}")
    names = [device["name"] for device in document["devices"]]
    if len(names) > len(set(names)):
        raise CdiError(f"failed to load CDI Spec {path}: invalid spec, multiple devices of one name")
    if not all(any(device["containerEdits"].values()) for device in document["devices"]):
        raise CdiError(f"failed to load CDI Spec {path}: invalid device, empty device edits")
    return dict(document)


def _merged(edits: Iterable[Mapping[str, Any]]) -> Injected:
    env: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    mounts: dict[str, tuple[str, str, bool]] = {}
    for edit in edits:
        env |= dict(text.split("=", 1) for text in edit.get("env") or ())
        for node in edit.get("deviceNodes") or ():
            nodes[node["path"]] = _node(node)
        for mount in edit.get("mounts") or ():
            if not Path(mount["hostPath"]).exists():
                raise CdiError(
                    f"OCI runtime create failed: error mounting {mount['hostPath']!r} to rootfs at "
                    f"{mount['containerPath']!r}: no such file or directory"
                )
            read_only = "ro" in (mount.get("options") or ())
            mounts[mount["containerPath"]] = (mount["containerPath"], mount["hostPath"], read_only)
    return Injected(env=env, nodes=tuple(nodes.values()), mounts=tuple(mounts.values()))


def _node(node: Mapping[str, Any]) -> Node:
    permissions = node.get("permissions") or "rwm"
    if node.get("type") and node.get("major"):
        return Node(path=node["path"], major=node["major"], minor=node.get("minor", 0), permissions=permissions)
    host = node.get("hostPath") or node["path"]
    try:
        status = os.lstat(host)
    except OSError as error:
        raise CdiError(f"failed to inject devices: failed to stat CDI host device {host!r}: {error}") from error
    if not stat.S_ISCHR(status.st_mode):
        raise CdiError(f"failed to inject devices: failed to stat CDI host device {host!r}: not a device node")
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return Node(path=node["path"], major=major, minor=minor, permissions=permissions)
