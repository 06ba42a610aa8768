"""Finds the driver's libraries, programs and hooks that every GPU container gets, in the specifications of NVIDIA.

NVIDIA's toolkit writes them where it is installed: the GPU Operator's for its own pods (management.nvidia.com/gpu), the
packages of 1.18 and later, or `nvidia-ctk cdi generate` by hand (nvidia.com/gpu). Takes the folders in which container
runtimes look and the version of the running driver; returns the shared edits of the first specification that was made
for this driver, with the hook that those for the operator's pods lack, or a sentence that says what was found instead.
Never returns the files of another driver: their paths
carry its version and are gone. Writes nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube.yaml_text import NotYaml, read_yaml
from nodeagent.cdi.specification import Edits
from nodeagent.handover.files import Identity, Unreadable, identity

MANAGEMENT = "management.nvidia.com/gpu"
KINDS = ("nvidia.com/gpu", MANAGEMENT)
"""In order of preference. Not that of NVIDIA's device plugin: its file stays behind where the plugin leaves."""
NO_NEW_NODES = "disable-device-node-modification"
"""The hook that keeps the driver's libraries from making nodes of other GPUs in a container whose user is root."""
UNKNOWN_WITH = "chmod"
"""A hook that toolkits write up to 1.17, which do not know the other one: a container ends with such a command."""
REMEDY = (
    "install NVIDIA's container toolkit 1.18 or later (the GPU Operator 25.10 or later does), or run "
    "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on the node"
)
_LIBCUDA = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    edits: Edits
    version: str
    """Of the CDI specification in which they are written."""
    source: str = ""
    """The file that has them."""


def is_version(version: object) -> bool:
    """Of the CDI specification, as `specification.newer_version` compares them."""
    return isinstance(version, str) and _VERSION.fullmatch(version) is not None


def well_formed(edits: object) -> bool:
    """Whether edits that another program wrote have the types that are relied on here."""
    if not isinstance(edits, Mapping):
        return False
    texts, nodes, mounts, hooks = (edits.get(name) or [] for name in ("env", "deviceNodes", "mounts", "hooks"))
    return (
        all(isinstance(each, list) for each in (texts, nodes, mounts, hooks))
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(each, Mapping) for each in mounts)
        and all(isinstance(node, Mapping) and isinstance(node.get("path"), str) for node in nodes)
        and all(isinstance(hook, Mapping) and isinstance(hook.get("args") or [], list) for hook in hooks)
    )


def driver_version_of(edits: Edits) -> str:
    """The driver whose files these are, by the name of its libcuda; empty where they have none."""
    paths = [str(mount.get("hostPath", "")) for mount in edits.get("mounts") or ()]
    return next((found[1] for path in paths if (found := _LIBCUDA.fullmatch(Path(path).name))), "")


def driver_files(documents: Mapping[str, object], driver_version: str) -> DriverFiles | str:
    """Of the documents by path, later folders first among those of one kind; a text says why there are none."""
    others: list[str] = []
    for kind in KINDS:
        for path, document in documents.items():
            if not isinstance(document, Mapping) or document.get("kind") != kind:
                continue
            edits = document.get("containerEdits")
            version = str(document.get("cdiVersion", ""))
            if not isinstance(edits, Mapping) or not well_formed(edits) or not is_version(version):
                others.append(f"{path} cannot be used")
                continue
            made_for = driver_version_of(edits)
            if made_for and made_for == driver_version:
                if kind == MANAGEMENT:
                    edits = _for_tenants(edits, str(document))
                return DriverFiles(edits=edits, version=version, source=path)
            others.append(f"{path} is for driver {made_for}" if made_for else f"{path} names no libcuda.so")
    found = "; ".join(others) or f"no CDI specification of {' or '.join(KINDS)} is on this node"
    return f"the files of driver {driver_version} are not known: {found}. To get one, {REMEDY}"


def _for_tenants(edits: Edits, document: str) -> Edits:
    """With the hook that NVIDIA leaves out for pods that manage a node, called as the others are."""
    hooks = list(edits.get("hooks") or ())
    args = (hooks[-1].get("args") or []) if hooks else []
    if not args or NO_NEW_NODES in document or f"'{UNKNOWN_WITH}'" in document:
        return edits
    program = args[:2] if args[1:2] == ["hook"] else args[:1]
    return {**edits, "hooks": [*hooks, {**hooks[-1], "args": [*program, NO_NEW_NODES]}]}


class SpecificationFolders:
    """The folders in which container runtimes look; a file that has not changed is not parsed again."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._parsed: dict[Path, tuple[Identity, object]] = {}

    def documents(self, *, besides: Path) -> dict[str, object]:
        """Every specification but our own, those of later folders first, as runtimes prefer them."""
        found: dict[Path, tuple[Identity, object]] = {}
        for path in _specifications(self._folders):
            at = identity(path)
            if path == besides or at is None:
                continue
            known = self._parsed.get(path)
            found[path] = known if known is not None and known[0] == at else (at, read_document(path))
        self._parsed = found
        return {str(path): document for path, (_, document) in found.items()}


def read_document(path: Path) -> dict[str, Any] | Unreadable | None:
    """One file as JSON or YAML; None where there is none."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        return Unreadable(path=path, reason=str(error))
    if isinstance(document, NotYaml):
        return Unreadable(path=path, reason=document.sentence)
    return document if isinstance(document, dict) else Unreadable(path=path, reason="not an object")


def _specifications(folders: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for folder in reversed(list(folders)):
        try:
            found += sorted(path for path in folder.iterdir() if path.suffix in (".json", ".yaml"))
        except OSError:
            continue  # a folder that is not there has no specification
    return found
