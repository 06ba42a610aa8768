"""Reads a config file of NVIDIA's device plugin v0.20.0 as the plugin does, its errors included.

Takes the text, returns what it means for sharing. Unknown keys are dropped, `rename` and `devices` are read and thrown
away, MPS wins over time-slicing. Must never accept what that parser refuses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

UNMARSHAL = "unmarshal error: error unmarshaling JSON: while decoding JSON: "
PREFIX = "nvidia.com/"
LONGEST_NAME = 63
MPS, TIME_SLICING, NO_SHARING = "mps", "time-slicing", "none"
T = TypeVar("T")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


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

    def resource(self, name: str) -> str:
        """Under which a shared resource is advertised."""
        return f"{name}.shared" if self.renamed else name


def parse(text: str) -> Config:
    """Raises BadConfig."""
    try:
        raw = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise BadConfig(f"unmarshal error: {error}") from error
    try:
        _resources(_object(raw.get("resources"), "v1.Resources"))
        sharing = _object(raw.get("sharing"), "v1.Sharing")
        slicing = _shared(sharing["timeSlicing"]) if "timeSlicing" in sharing else None
        mps = _shared(sharing["mps"]) if sharing.get("mps") is not None else None
    except BadConfig as bad:
        raise BadConfig(f"{UNMARSHAL}{bad}") from bad
    version = raw.get("version") or "v1"
    if version != "v1":
        raise BadConfig(f"unknown version: {version}")
    strategy = str((raw.get("flags") or {}).get("migStrategy") or "none")
    if mps is not None:
        replicas, renamed, one = mps
        return Config(
            strategy=MPS, replicas=replicas, renamed=renamed, one_per_request=one is not False, mig_strategy=strategy
        )
    if slicing is not None:
        replicas, renamed, one = slicing
        return Config(
            strategy=TIME_SLICING,
            replicas=replicas,
            renamed=renamed,
            one_per_request=one is True,
            mig_strategy=strategy,
        )
    return Config(mig_strategy=strategy)


_Shared = tuple[tuple[tuple[str, int], ...], bool, bool | None]


def _shared(raw: Any) -> _Shared:
    block = _object(raw, "map[string]json.RawMessage")
    renamed = _typed(block.get("renameByDefault", False), bool)
    one = _typed(block["failRequestsGreaterThanOne"], bool) if "failRequestsGreaterThanOne" in block else None
    if not block.get("resources"):
        raise BadConfig("no resources specified")
    entries = [_entry(entry) for entry in _typed(block["resources"], list)]
    # Entries of one name unite their ids, which are numbered from 0 in each.
    united = {name: max(count for other, count in entries if other == name) for name, _ in entries}
    return tuple(sorted(united.items())), renamed, one


def _entry(raw: Any) -> tuple[str, int]:
    entry = _object(raw, "map[string]json.RawMessage")
    if "name" not in entry:
        raise BadConfig("no resource name specified")
    name = _name(_typed(entry["name"], str))
    _devices(entry.get("devices", "all"))
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
        raise BadConfig(
            f"incorrect format for resource name '{name}': [a lowercase RFC 1123 subdomain must consist of]"
        )
    return name


def _devices(raw: Any) -> None:
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


def _resources(raw: Mapping[str, Any]) -> None:
    """The whole section is ignored, after this."""
    for kind in ("gpus", "mig"):
        for resource in raw.get(kind) or ():
            for field in ("pattern", "name"):
                if field not in resource:
                    raise BadConfig(f"resources must have a '{field}' field set")


def _object(raw: Any, go_type: str) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise BadConfig(f"json: cannot unmarshal {_go_name(raw)} into Go value of type {go_type}")
    return raw


def _typed(raw: Any, kind: type[T]) -> T:
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        raise BadConfig(
            f"json: cannot unmarshal {_go_name(raw)} into Go struct field Sharing.sharing.mps of type {_GO[kind]}"
        )
    return raw


_GO = {bool: "bool", int: "int", str: "string", list: "[]v1.ReplicatedResource"}


def _go_name(raw: Any) -> str:
    match raw:
        case bool():
            return "bool"
        case int():
            return "number"
        case float():
            return f"number {raw}"
        case str():
            return "string"
        case Sequence():
            return "array"
    return "object"
