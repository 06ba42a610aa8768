"""The files between agent and device plugin: what is to be advertised, what is in force, what was handed out.

`config.json` is written by the agent alone, `loaded.json` and `ledger.json` by the plugin alone; both sides read and
write them through this module, so that the format is defined once. Takes and returns values; a bad file comes back as
`Unreadable`, never as an exception. Decides nothing about devices.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from nodeagent.handover.files import Identity, Unreadable, read_json, wire, write_json

HASH_HEX_DIGITS = 12
Text = Annotated[str, Field(min_length=1)]


class DeviceKind(StrEnum):
    MIG = "mig"
    MPS = "mps"
    WHOLE = "whole"


class DeviceListStrategy(StrEnum):
    """How the answer of an Allocate names devices, in the words of NVIDIA's device plugin."""

    CDI_CRI = "cdi-cri"  # CDI names, which the container runtime resolves
    ENVVAR = "envvar"  # NVIDIA_VISIBLE_DEVICES, which NVIDIA's runtime reads where it is configured to


@wire
class Device:
    """One device id of the kubelet: a MIG instance, an MPS slice or a whole GPU."""

    id: Text
    resource: Text
    gpu: Text  # UUID of the GPU it lies on
    kind: DeviceKind
    memory_mib: Annotated[int, Field(alias="memoryMiB")] = 0
    thread_percent: Annotated[int | None, Field(ge=1, le=100)] = None
    mergeable: bool = False  # of a slice: a container may request several of one GPU, as one slice of their sum

    @property
    def sort_key(self) -> tuple[str, str, str]:
        return (self.resource, self.gpu, self.id)


@wire
class PluginConfig:
    """What the plugin is to advertise. Build it with `of`, which sorts, so that equal contents have equal hashes."""

    devices: tuple[Device, ...] = ()
    withdrawn: tuple[str, ...] = ()  # ids that are not advertised and that Allocate refuses, listed above or not
    unhealthy: tuple[str, ...] = ()  # ids that are listed as Unhealthy: who holds one keeps it, no pod gets one
    drained: tuple[str, ...] = ()  # the same of GPUs that are well: who holds one keeps it, no pod gets one
    kubelet: Identity | None = None  # the one to which these are so; another one admits their holders first
    occupied: tuple[str, ...] = ()  # ids with which no container starts: a process of an earlier holder is left
    boot_id: str = ""  # of the node when this was written; no part of the hash, for it does not belong to the contents
    generation: int = field(default=0, compare=False)  # of the plan when this was written, for the plugin's log alone
    device_list_strategy: DeviceListStrategy = DeviceListStrategy.ENVVAR

    @classmethod
    def of(
        cls,
        devices: Iterable[Device],
        withdrawn: Iterable[str] = (),
        unhealthy: Iterable[str] = (),
        *,
        boot_id: str = "",
    ) -> "PluginConfig":
        return cls(
            devices=tuple(sorted(devices, key=lambda device: device.sort_key)),
            withdrawn=tuple(sorted(set(withdrawn))),
            unhealthy=tuple(sorted(set(unhealthy))),
            boot_id=boot_id,
        )

    @property
    def hash(self) -> str:
        return _hash_of(self)

    def advertised(self) -> tuple[Device, ...]:
        """Devices in the kubelet's list, healthy or not: its capacity."""
        return tuple(device for device in self.devices if device.id not in self.withdrawn)

    def healthy(self) -> tuple[Device, ...]:
        """Devices that pods can get: the kubelet's allocatable."""
        return tuple(device for device in self.advertised() if device.id not in {*self.unhealthy, *self.drained})

    def in_boot(self, boot_id: str) -> "PluginConfig":
        """As far as it holds in this boot: no MIG instance outlives the one in which it was observed, nor a process."""
        if "" in (boot_id, self.boot_id) or boot_id == self.boot_id:
            return self
        gone = {device.id for device in self.devices if device.kind is DeviceKind.MIG}
        return replace(self, unhealthy=tuple(sorted(gone.union(self.unhealthy))), occupied=())


@lru_cache(maxsize=4)
def _hash_of(config: PluginConfig) -> str:
    """A pass compares the same one or two configs several times."""
    # Where nothing is drained the hash is that of a version without drains, which refuses a file with another one.
    unset = () if config.drained else ("drained", "kubelet")
    contents = _CONTENTS.dump_json(config, by_alias=True, exclude={"occupied", "boot_id", "generation", *unset})
    return hashlib.sha256(contents).hexdigest()[:HASH_HEX_DIGITS]


@wire
class Problem:
    """What is wrong, and with which GPU or resource (neither: with the file itself)."""

    message: str
    gpu: str | None = None
    resource: str | None = None


@wire
class Loaded:
    """What the plugin has in force: the hash of that config, its registrations, and what is wrong."""

    hash: str  # empty: nothing was loaded yet
    boot_token: str  # another one means another plugin process
    registered: Mapping[str, bool]
    mps_root: Text  # below which its MPS control daemons are
    errors: tuple[Problem, ...] = ()
    book: str = ""  # the ledger's name
    named: tuple[str, ...] = ()  # ids that the kubelet's checkpoint named when a process of the plugin began
    version: Literal[1] = 1


@wire
class Allocation:
    """The latest Allocate of one device id that was answered."""

    id: str
    resource: str
    at: float  # epoch seconds
    boot_id: str = ""  # of the node then; empty: not known
    up_seconds: float = 0.0  # since the node's boot, which no one sets; if `again`, of the first; 0: not known
    again: bool = False  # it had been handed out before in this boot, and not been seen free in between


@wire
class _ConfigFile(PluginConfig):
    devices: tuple[Device, ...]
    withdrawn: tuple[str, ...]
    stated_hash: Annotated[str, Field(alias="hash")]
    version: Literal[1] = 1


class LedgerMark(NamedTuple):
    """Which ledger it is, and how often it was written: what was begun again, or put back, does not follow."""

    book: str
    writes: int

    def follows(self, earlier: "LedgerMark") -> bool:
        return earlier.book in ("", self.book) and self.writes >= earlier.writes


NO_LEDGER = LedgerMark("", 0)


@wire
class _LedgerFile:
    allocations: tuple[Allocation, ...]
    book: str = ""
    writes: int = 0
    version: Literal[1]


_CONTENTS, _CONFIG_FIELDS = TypeAdapter(PluginConfig), tuple(each.name for each in fields(PluginConfig))
_CONFIG, _LOADED, _LEDGER = TypeAdapter(_ConfigFile), TypeAdapter(Loaded), TypeAdapter(_LedgerFile)


class PluginFiles:
    """The paths of the files below the state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir / "plugin"
        self.config, self.loaded = self.directory / "config.json", self.directory / "loaded.json"
        self.ledger = self.directory / "ledger.json"
        self.seen_free = self.directory / "seen_free.json"
        self.mps, self.mps_lock = self.directory / "mps.json", self.directory / "mps.lock"
        self.lost_ledger = self.directory / "ledger.json.unreadable"
        """Kept aside by the plugin because it could not be read: a new ledger was begun after it."""


def write_config(files: PluginFiles, config: PluginConfig) -> None:
    contents = {name: getattr(config, name) for name in _CONFIG_FIELDS}
    write_json(files.config, _CONFIG, _ConfigFile(**contents, stated_hash=config.hash))


def read_config(files: PluginFiles) -> PluginConfig | Unreadable | None:
    found = read_json(files.config, _CONFIG)
    if not isinstance(found, _ConfigFile):
        return found
    config = PluginConfig(**{name: getattr(found, name) for name in _CONFIG_FIELDS})
    twice = sorted(id_ for id_, times in Counter(device.id for device in config.devices).items() if times > 1)
    unlimited = [d.id for d in config.devices if d.kind is DeviceKind.MPS and d.memory_mib < 1]
    if twice:
        reason = f"device {twice[0]} is listed twice"
    elif unlimited:
        reason = f"the MPS slice {unlimited[0]} has no memory"
    elif found.stated_hash != config.hash:
        reason = f"hash is {found.stated_hash!r}, the contents have {config.hash}"
    else:
        return config
    return Unreadable(path=files.config, reason=reason)


def write_loaded(files: PluginFiles, loaded: Loaded) -> None:
    write_json(files.loaded, _LOADED, loaded, without_none=True)


def read_loaded(files: PluginFiles) -> Loaded | Unreadable | None:
    return read_json(files.loaded, _LOADED)


def write_ledger(files: PluginFiles, allocations: Iterable[Allocation], mark: LedgerMark = NO_LEDGER) -> None:
    ordered = tuple(sorted(allocations, key=lambda entry: entry.id))
    write_json(files.ledger, _LEDGER, _LedgerFile(allocations=ordered, book=mark.book, writes=mark.writes, version=1))


def read_ledger(files: PluginFiles) -> tuple[Allocation, ...] | Unreadable | None:
    found = read_json(files.ledger, _LEDGER)
    return found.allocations if isinstance(found, _LedgerFile) else found


def read_ledger_mark(files: PluginFiles) -> LedgerMark:
    found = read_json(files.ledger, _LEDGER)
    return LedgerMark(found.book, found.writes) if isinstance(found, _LedgerFile) else NO_LEDGER
