"""Reads a config file of NVIDIA's device plugin v0.20.0 as the plugin does, its errors included.

Takes the text, returns what it means for sharing. Unknown keys are dropped, `rename` and `devices` are read and thrown
away, MPS wins over time-slicing. Must never accept what that parser refuses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from sandbox.driver.state import GpuState

UNMARSHAL = "unmarshal error: error unmarshaling JSON: while decoding JSON: "
PREFIX = "nvidia.com/"
WHOLE = f"{PREFIX}gpu"
LONGEST_NAME = 63
MPS, TIME_SLICING, NO_SHARING = "mps", "time-slicing", "none"
T = TypeVar("T")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_Shared = tuple[dict[str, int], bool, bool | None]
"""Replicas by resource, whether it is renamed, whether a container may request several."""


class BadConfig(Exception):  # noqa: N818 - the program's answer, not a fault of ours
    """The text that the program exits with, without what it is wrapped in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sharing, and the one flag that refuses some of it."""

    strategy: str = NO_SHARING
    replicas: tuple[tuple[str, int], ...] = ()
    """Of each resource that is shared, by its name before it is renamed."""
    renamed: bool = False
    one_per_request: bool = False
    mig_strategy: str = "none"

    @property
    def of_gpus(self) -> int:
        """Replicas of each GPU; 1: they are not shared."""
        return dict(self.replicas).get(WHOLE, 1)

    def device_ids(self, gpus: Sequence[GpuState]) -> dict[str, tuple[str, ...]]:
        """By resource; raises BadConfig where the plugin refuses the flags. Of MIG devices nothing is simulated."""
        if self.mig_strategy not in ("none", "single", "mixed"):
            raise BadConfig(f"unable to validate flags: unknown MIG strategy: {self.mig_strategy}")
        if self.strategy == MPS and self.mig_strategy == "mixed":
            raise BadConfig("unable to validate flags: using --mig-strategy=mixed is not supported with MPS")
        if self.mig_strategy != "none" and any(gpu["mig_mode"] for gpu in gpus):
            raise NotImplementedError("a GPU in MIG mode with another strategy than none is not simulated")
        if not gpus:
            return {}
        if self.of_gpus == 1:
            return {WHOLE: tuple(gpu["uuid"] for gpu in gpus)}
        name = f"{WHOLE}.shared" if self.renamed else WHOLE
        return {name: tuple(f"{gpu['uuid']}::{n}" for gpu in gpus for n in range(self.of_gpus))}


def parse(text: str) -> Config:
    """Raises BadConfig."""
    try:
        raw = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise BadConfig(f"unmarshal error: {error}") from error
    try:
        _check_resources(_object(raw.get("resources"), "v1.Resources"))
        sharing = _object(raw.get("sharing"), "v1.Sharing")
        slicing = _shared(sharing["timeSlicing"]) if "timeSlicing" in sharing else None
        mps = _shared(sharing["mps"]) if sharing.get("mps") is not None else None
    except BadConfig as bad:
        raise BadConfig(f"{UNMARSHAL}{bad}") from bad
    if (version := raw.get("version") or "v1") != "v1":
        raise BadConfig(f"unknown version: {version}")
    replicas, renamed, one = mps or slicing or ({}, False, False)
    return Config(
        strategy=MPS if mps else TIME_SLICING if slicing else NO_SHARING,
        replicas=tuple(sorted(replicas.items())),
        renamed=renamed,
        one_per_request=one is not False if mps else one is True,
        mig_strategy=str((raw.get("flags") or {}).get("migStrategy") or "none"),
    )


def _shared(raw: Any) -> _Shared:
    block = _object(raw, "map[string]json.RawMessage")
    renamed = _typed(block.get("renameByDefault", False), bool)
    one = _typed(block["failRequestsGreaterThanOne"], bool) if "failRequestsGreaterThanOne" in block else None
    if not block.get("resources"):
        raise BadConfig("no resources specified")
    united: dict[str, int] = {}
    for name, count in map(_entry, _typed(block["resources"], list)):
        united[name] = max(count, united.get(name, 0))  # ids of one name are united, and numbered from 0 in each entry
    return united, renamed, one


def _entry(raw: Any) -> tuple[str, int]:
    entry = _object(raw, "map[string]json.RawMessage")
    if "name" not in entry:
        raise BadConfig("no resource name specified")
    name = _name(_typed(entry["name"], str))
    _check_devices(entry.get("devices", "all"))
    if "replicas" not in entry:
        raise BadConfig("no replicas specified")
    replicas = _typed(entry["replicas"], int)
    if replicas < 2:
        raise BadConfig("number of replicas must be >= 2")
    if "rename" in entry:
        _name(_typed(entry["rename"], str))
    return name, replicas


def _name(text: str) -> str:
    name = text if text.startswith(PREFIX) else PREFIX + text
    if len(name) > LONGEST_NAME:
        raise BadConfig(f"fully-qualified resource name must be {LONGEST_NAME} characters or less: {name}")
    if not _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)):
        must = "a lowercase RFC 1123 subdomain must consist of"
        raise BadConfig(f"incorrect format for resource name '{name}': [{must}]")
    return name


def _check_devices(raw: Any) -> None:
    match raw:
        case str():
            if raw != "all":
                raise BadConfig(f"devices set as '{raw}' but the only valid string input is 'all'")
        case bool() | float() | Mapping():
            raise BadConfig(f"unrecognized type for devices spec: {raw}")
        case int():
            if raw <= 0:
                raise BadConfig(f"devices set as '{raw}' but a count of devices must be > 0")
        case list():
            for one in raw:
                if not re.fullmatch(r"\d+(:\d+)?|(GPU|MIG)-\S+", str(one)):
                    raise BadConfig(f"unsupported type for device in devices list: {one}")


def _check_resources(raw: Mapping[str, Any]) -> None:
    """The whole section is ignored, after this."""
    for resource in (one for kind in ("gpus", "mig") for one in raw.get(kind) or ()):
        for field in ("pattern", "name"):
            if field not in resource:
                raise BadConfig(f"resources must have a '{field}' field set")


def _object(raw: Any, go_type: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping | None):
        raise BadConfig(f"json: cannot unmarshal {_found(raw)} into Go value of type {go_type}")
    return raw or {}


def _typed(raw: Any, kind: type[T]) -> T:
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        field = "Go struct field Sharing.sharing.mps"
        raise BadConfig(f"json: cannot unmarshal {_found(raw)} into {field} of type {_GO_TYPES[kind]}")
    return raw


_GO_TYPES: Mapping[type, str] = {bool: "bool", int: "int", str: "string", list: "[]v1.ReplicatedResource"}
_JSON_TYPES: Mapping[type, str] = {bool: "bool", int: "number", str: "string", list: "array"}


def _found(raw: Any) -> str:
    return f"number {raw}" if isinstance(raw, float) else _JSON_TYPES.get(type(raw), "object")
