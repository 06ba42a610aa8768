"""Keeps the node's CDI specification on disk in step with its devices, and returns which of them it names.

Takes the devices that exist, with their GPUs; reads the driver's numbers and files; replaces the file by an atomic
rename where it differs, reads it back, and returns for each device that the file does not describe the reason. It is
called before a device is advertised, and `forget` before an instance is destroyed: a container that restarts with an
entry of an instance that is gone could get the next instance at its place. The files of another driver are never kept.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from kube.change_log import ChangeLog
from nodeagent.cdi.device_numbers import DeviceNumbers, read_device_numbers
from nodeagent.cdi.driver_files import (
    DriverFiles,
    SpecificationFolders,
    driver_files,
    driver_version_of,
    is_version,
    read_document,
    well_formed,
)
from nodeagent.cdi.specification import (
    OLDEST_VERSION,
    Edits,
    Specification,
    common_edits,
    device_edits,
    newer_version,
    outdated,
)
from nodeagent.handover.cdi import FILE_NAME, KIND
from nodeagent.handover.config import Device
from nodeagent.handover.files import replace_file
from nodeagent.hardware.driver import ObservedGpu

log = logging.getLogger(__name__)
OnGpu: TypeAlias = tuple[Device, ObservedGpu]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the file on disk describes."""

    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By device id, the reason why it has no entry."""
    problem: str = ""
    """Why no device of this node has one."""
    unseen: str = ""
    """What the driver does not show to the agent although devices need it."""


class SpecificationPublisher:
    def __init__(self, directory: Path, *, proc: Path, folders: Sequence[Path], read_only_pipes: bool = True) -> None:
        """`folders` are those in which the container runtime looks, `directory` among them or not."""
        self.path = directory / FILE_NAME
        self._proc, self._read_only_pipes = proc, read_only_pipes
        self._folders = SpecificationFolders(folders)
        self._files: DriverFiles | None = None
        """The last that were found."""
        self._change_log, self._forget_log = ChangeLog(log), ChangeLog(log)

    def publish(self, devices: Iterable[OnGpu], *, driver_version: str, mps_root: Path | None) -> Published:
        """Make the file describe exactly these devices, as far as that is possible."""
        listed = sorted(devices, key=lambda pair: pair[0].id)
        known = self._on_disk()
        numbers = read_device_numbers(self._proc)
        documents = self._folders.documents(besides=self.path)
        if twin := self._twin(documents):
            return Published(missing={device.id: twin for device, _ in listed}, problem=twin)
        files = self._driver_files(documents, driver_version, known)
        if isinstance(files, str):
            problem = files
            if known is not None and driver_version_of(known.common) != driver_version != "":
                # A container that restarts waits for a new file, instead of failing on paths that are gone.
                problem = self._replace(None) or problem
            self._change_log.warn(problem)
            return Published(missing={device.id: problem for device, _ in listed}, problem=problem)
        entries, missing = self._entries(listed, numbers, mps_root, known.devices if known is not None else {})
        desired = Specification(
            version=newer_version(files.version, OLDEST_VERSION),
            common=common_edits(files.edits, numbers),
            devices=entries,
        )
        problem = self._replace(desired)
        if problem:
            there = known.devices if known is not None and known.common == desired.common else {}
            missing |= {name: problem for name, edits in entries.items() if there.get(name) != edits}
        self._change_log.warn(problem or "; ".join(sorted(set(missing.values()))))
        unseen = "; ".join(sorted({numbers.problem, *numbers.problems.values()}.intersection(missing.values())))
        return Published(missing=missing, problem=problem, unseen=unseen)

    def forget(self, ids: Iterable[str]) -> str:
        """Take entries out before their instances are destroyed; returns why that was not possible, else nothing."""
        gone = frozenset(ids)
        problem = ""
        if gone and self.exists:
            # A file that cannot be read may name them all the same: it goes as a whole, and `publish` writes another.
            known = self._on_disk()
            problem = self._replace(known.without(gone) if known is not None else None)
        self._forget_log.warn(problem)
        return problem

    @property
    def exists(self) -> bool:
        """A container may have been started with a name from it."""
        return self.path.exists()

    def _twin(self, documents: Mapping[str, object]) -> str:
        """Why no name of ours can be resolved: a runtime refuses one that two files of a folder have."""
        for path, document in documents.items():
            ours = isinstance(document, Mapping) and document.get("kind") == KIND
            if ours and Path(path).parent == self.path.parent:
                return f"{path} describes devices of {KIND} too, so container runtimes resolve none: delete that file"
        return ""

    def _driver_files(
        self, documents: Mapping[str, object], driver_version: str, known: Specification | None
    ) -> DriverFiles | str:
        found = driver_files(documents, driver_version)
        if isinstance(found, str):
            # NVIDIA's file may be away for a moment, as while the toolkit's pod is replaced.
            written = DriverFiles(edits=known.common, version=known.version) if known is not None else None
            earlier = (files for files in (self._files, written) if files is not None)
            kept = next((files for files in earlier if driver_version_of(files.edits) == driver_version), None)
            if kept is None:
                return found
            found = kept
        self._files = found
        return found

    def _on_disk(self) -> Specification | None:
        """None where there is no file, or none that could be ours: then it is written again."""
        document = read_document(self.path)
        if not isinstance(document, dict) or not is_version(document.get("cdiVersion")):
            return None
        try:
            common = document["containerEdits"]
            devices = {str(entry["name"]): entry["containerEdits"] for entry in document["devices"]}
        except (KeyError, TypeError):
            return None
        usable = all(well_formed(edits) for edits in (common, *devices.values()))
        return Specification(version=document["cdiVersion"], common=common, devices=devices) if usable else None

    def _replace(self, specification: Specification | None) -> str:
        try:
            if specification is None or not specification.devices:
                # A runtime refuses a specification without devices, and warns about it at every container.
                self.path.unlink(missing_ok=True)
                return ""
            text = specification.text()
            if self._text() == text:
                return ""
            replace_file(self.path, text)
            if self._text() == text:
                return ""
        except OSError as error:
            return f"the CDI specification {self.path} cannot be written: {error}"
        return f"another program writes the CDI specification {self.path} too: let only one agent run on this node"

    def _text(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _entries(
        self, listed: Iterable[OnGpu], numbers: DeviceNumbers, mps_root: Path | None, before: Mapping[str, Edits]
    ) -> tuple[dict[str, Edits], dict[str, str]]:
        entries: dict[str, Edits] = {}
        missing: dict[str, str] = {}
        pairs = tuple(listed)
        readable = {gpu.minor for _, gpu in pairs if not gpu.problem and gpu.minor is not None}
        for device, gpu in pairs:
            # While it cannot be read nothing is changed on it, but the driver may have been loaded again without it.
            if gpu.problem and device.id in before and not outdated(before[device.id], numbers, readable):
                entries[device.id] = before[device.id]
                continue
            edits = gpu.problem or device_edits(device, gpu, numbers, mps_root, read_only_pipes=self._read_only_pipes)
            if isinstance(edits, str):
                missing[device.id] = edits
            else:
                entries[device.id] = edits
        return entries, missing
