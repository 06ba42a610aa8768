"""The files between agent and device plugin: what is offered, what is in force, what was handed out.

`config.json` is written by the agent alone, `loaded.json` and `ledger.json` by the plugin alone; both sides read and
write them through this module, so that the format is in one place. Values in, files out, and back; a bad file comes
back as `Unreadable`, never as an exception. Decides nothing about devices.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from nodeagent.plugin.files import Unreadable, read_json, write_json

FORMAT_VERSION = 1
HASH_HEX_DIGITS = 12
T = TypeVar("T")


class DeviceKind(StrEnum):
    MIG = "mig"
    MPS = "mps"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device id of the kubelet: a MIG instance, an MPS slice or a whole GPU."""

    id: str
    resource: str
    gpu: str  # UUID of the GPU it lies on
    kind: DeviceKind
    memory_mib: int = 0
    thread_percent: int | None = None

    @property
    def sort_key(self) -> tuple[str, str, str]:
        return (self.resource, self.gpu, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What the plugin shall offer. Build it with `of`, which sorts, so that equal contents have equal hashes."""

    devices: tuple[Device, ...] = ()
    withdrawn: tuple[str, ...] = ()  # ids that are not offered and that Allocate refuses, listed above or not

    @classmethod
    def of(cls, devices: Iterable[Device], withdrawn: Iterable[str] = ()) -> "PluginConfig":
        return cls(
            devices=tuple(sorted(devices, key=lambda device: device.sort_key)), withdrawn=tuple(sorted(set(withdrawn)))
        )

    @property
    def hash(self) -> str:
        text = json.dumps(_config_body(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:HASH_HEX_DIGITS]

    def offered(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.id not in self.withdrawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What stands in the way, and of which GPU or resource (both empty: of the file itself)."""

    message: str
    gpu: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the plugin has in force: the hash of that config, its registrations, and what is wrong."""

    hash: str  # empty: nothing was loaded yet
    loaded_at: float  # epoch seconds
    boot_token: str  # another one means another plugin process
    registered: Mapping[str, bool]
    errors: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The latest Allocate of one device id that was answered."""

    id: str
    resource: str
    at: float  # epoch seconds


@dataclass(frozen=True, slots=True)
class PluginFiles:
    """The paths of the three files below the state directory."""

    state_dir: Path

    @property
    def directory(self) -> Path:
        return self.state_dir / "plugin"

    @property
    def config(self) -> Path:
        return self.directory / "config.json"

    @property
    def loaded(self) -> Path:
        return self.directory / "loaded.json"

    @property
    def ledger(self) -> Path:
        return self.directory / "ledger.json"

    @property
    def lost_ledger(self) -> Path:
        """Kept aside by the plugin because it could not be read: the ledger was begun anew after it."""
        return self.directory / "ledger.json.unreadable"


def write_config(files: PluginFiles, config: PluginConfig) -> None:
    write_json(files.config, {"version": FORMAT_VERSION, "hash": config.hash, **_config_body(config)})


def read_config(files: PluginFiles) -> PluginConfig | Unreadable | None:
    return _read(files.config, _parse_config)


def write_loaded(files: PluginFiles, loaded: Loaded) -> None:
    errors = [
        {key: text for key, text in (("gpu", p.gpu), ("resource", p.resource), ("message", p.message)) if text}
        for p in loaded.errors
    ]
    write_json(
        files.loaded,
        {
            "version": FORMAT_VERSION,
            "hash": loaded.hash,
            "loadedAt": loaded.loaded_at,
            "bootToken": loaded.boot_token,
            "registered": dict(loaded.registered),
            "errors": errors,
        },
    )


def read_loaded(files: PluginFiles) -> Loaded | Unreadable | None:
    return _read(files.loaded, _parse_loaded)


def write_ledger(files: PluginFiles, allocations: Iterable[Allocation]) -> None:
    ordered = sorted(allocations, key=lambda entry: entry.id)
    body = [{"id": entry.id, "resource": entry.resource, "at": entry.at} for entry in ordered]
    write_json(files.ledger, {"version": FORMAT_VERSION, "allocations": body})


def read_ledger(files: PluginFiles) -> tuple[Allocation, ...] | Unreadable | None:
    return _read(files.ledger, _parse_ledger)


def _config_body(config: PluginConfig) -> dict[str, Any]:
    devices = [
        {
            "id": d.id,
            "resource": d.resource,
            "gpu": d.gpu,
            "kind": str(d.kind),
            "memoryMiB": d.memory_mib,
            "threadPercent": d.thread_percent,
        }
        for d in config.devices
    ]
    return {"devices": devices, "withdrawn": list(config.withdrawn)}


def _read(path: Path, parse: Callable[[dict[str, Any]], T]) -> T | Unreadable | None:
    value = read_json(path)
    if value is None or isinstance(value, Unreadable):
        return value
    try:
        if not isinstance(value, dict):
            raise ValueError("is not a JSON object")
        if value.get("version") != FORMAT_VERSION:
            raise ValueError(f"version is {value.get('version')!r}, this plugin knows {FORMAT_VERSION}")
        return parse(value)
    except ValueError as error:
        return Unreadable(path=path, reason=str(error))


def _parse_config(value: dict[str, Any]) -> PluginConfig:
    devices = [_parse_device(item, f"devices[{n}]") for n, item in enumerate(_field(value, "devices", list))]
    withdrawn = _field(value, "withdrawn", list)
    if not all(isinstance(item, str) for item in withdrawn):
        raise ValueError("withdrawn holds something other than texts")
    seen: dict[str, Device] = {}
    for device in devices:
        if device.id in seen:
            raise ValueError(f"device {device.id} is listed twice")
        seen[device.id] = device
    config = PluginConfig.of(devices, withdrawn)
    if value.get("hash") != config.hash:
        raise ValueError(f"hash is {value.get('hash')!r}, the contents have {config.hash}")
    return config


def _parse_device(item: Any, where: str) -> Device:
    if not isinstance(item, dict):
        raise ValueError(f"{where} is not an object")
    texts = {name: _field(item, name, str, where) for name in ("id", "resource", "gpu", "kind")}
    if not all(texts.values()):
        raise ValueError(f"{where} has an empty id, resource, gpu or kind")
    if texts["kind"] not in tuple(DeviceKind):
        raise ValueError(f"{where}.kind is {texts['kind']!r}, not one of {', '.join(DeviceKind)}")
    kind = DeviceKind(texts.pop("kind"))
    memory_mib = _field(item, "memoryMiB", int, where)
    if kind is DeviceKind.MPS and memory_mib < 1:
        raise ValueError(f"{where}.memoryMiB of an MPS slice is {memory_mib}")
    percent = item.get("threadPercent")
    if percent is not None and (type(percent) is not int or not 1 <= percent <= 100):
        raise ValueError(f"{where}.threadPercent is {percent!r}, not 1 to 100")
    return Device(**texts, kind=kind, memory_mib=memory_mib, thread_percent=percent)


def _parse_loaded(value: dict[str, Any]) -> Loaded:
    errors = [
        Problem(message=_field(item, "message", str), gpu=item.get("gpu", ""), resource=item.get("resource", ""))
        for item in _field(value, "errors", list)
    ]
    return Loaded(
        hash=_field(value, "hash", str),
        loaded_at=_number(value, "loadedAt"),
        boot_token=_field(value, "bootToken", str),
        registered={str(k): bool(v) for k, v in sorted(_field(value, "registered", dict).items())},
        errors=tuple(errors),
    )


def _parse_ledger(value: dict[str, Any]) -> tuple[Allocation, ...]:
    return tuple(
        Allocation(id=_field(item, "id", str), resource=_field(item, "resource", str), at=_number(item, "at"))
        for item in _field(value, "allocations", list)
    )


def _field(value: Any, name: str, kind: type[T], where: str = "") -> T:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"{where}{'.' if where else ''}{name} is {found!r}, not {kind.__name__}")
    return found


def _number(value: Any, name: str) -> float:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ValueError(f"{name} is {found!r}, not a number")
    return float(found)
