"""Reads config files of NVIDIA's k8s-device-plugin (version v1), and of nebuly's fork of it.

Takes a text and returns what it says of sharing, or every problem with its field. What the plugin would refuse, and
take all GPU resources off the node for, is found here first (api/config/v1 of k8s-device-plugin 0.20). What the plugin
drops without a word is returned as a remark. Pure; knows nothing of plans.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from kube.yaml_text import NotYaml, path_of, read_yaml

VENDOR = "nvidia.com/"
LONGEST_NAME = 63
NAME = re.compile(r"(?!.*(\.[-.]|-\.))[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
DEVICE = re.compile(r"\d+(:\d+)?|(GPU|MIG)-\S+")
LARGEST = 1 << 16
"""Characters of a config, which has some hundred."""
OWN_FIELDS = re.compile(r"""\b(timeSlicing|mps|migStrategy)["']?\s*:""", re.IGNORECASE)


_Whole = Annotated[StrictInt, BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)]
"""The plugin's library makes JSON of a file first, in which 4.0 is 4."""


class _Part(BaseModel):
    """Unknown fields are kept, to be remarked on: the plugin ignores them."""

    model_config = ConfigDict(extra="allow", alias_generator=lambda name: re.sub("_(.)", lambda m: m[1].upper(), name))


class _Struct(_Part):
    """What Go's decoder fills by itself: it takes a key in any case of its letters, the last in their order of two."""

    @model_validator(mode="before")
    @classmethod
    def _in_any_case(cls, given: Any) -> Any:
        return _spelled(given, cls) if isinstance(given, Mapping) else given


def _spelled(given: Mapping[str, Any], part: type[BaseModel]) -> dict[str, Any]:
    known = {name.casefold(): name for name in (field.alias or "" for field in part.model_fields.values())}
    return {known.get(key.casefold(), key): given[key] for key in sorted(given)}


class SharedResource(_Part):
    """This one, and what has it, the plugin decodes by itself, key by key: there the case of letters counts."""

    name: str
    replicas: _Whole
    rename: str = ""
    devices: Any = "all"
    memory_gb: Annotated[_Whole | None, Field(alias="memoryGB", ge=1)] = None
    """Of nebuly's fork; NVIDIA's plugin ignores it."""

    @field_validator("name", "rename")
    @classmethod
    def _full_name(cls, name: str) -> str:
        """`gpu` is nvidia.com/gpu."""
        full = name if name.startswith(VENDOR) else f"{VENDOR}{name}"
        if len(full) > LONGEST_NAME:
            raise ValueError(f"{full} is longer than {LONGEST_NAME} characters")
        if not NAME.fullmatch(full.removeprefix(VENDOR)):
            raise ValueError(f"{name!r} is no resource of {VENDOR}: write lower-case letters, digits, - and .")
        return full

    @field_validator("devices")
    @classmethod
    def _are_devices(cls, devices: Any) -> Any:
        count = isinstance(devices, int) and not isinstance(devices, bool) and devices >= 1
        if count or devices == "all" or (isinstance(devices, list) and all(DEVICE.fullmatch(str(d)) for d in devices)):
            return devices
        raise ValueError(f"is {devices!r}: write all, a count of 1 or more, or a list of indices or UUIDs")

    @model_validator(mode="after")
    def _shares(self) -> "SharedResource":
        if self.memory_gb is None and self.replicas < 2:
            raise ValueError(f"replicas is {self.replicas}: sharing begins at 2; remove the entry to leave GPUs whole")
        return self


class Sharing(_Part):
    resources: Annotated[tuple[SharedResource, ...], Field(min_length=1)]
    rename_by_default: Annotated[StrictBool, BeforeValidator(lambda given: given is not None and given)] = False
    fail_requests_greater_than_one: StrictBool | None = None


class _SharingBlock(_Struct):
    time_slicing: Annotated[Sharing | None, BeforeValidator(lambda given: {} if given is None else given)] = None
    """No pointer in the plugin, unlike `mps`: where it is empty, that is an error."""
    mps: Sharing | None = None


_Strategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
_one_or_a_list = BeforeValidator(lambda given: [given] if isinstance(given, str) else given)


class _Plugin(_Struct):
    device_list_strategy: Annotated[tuple[_Strategy, ...] | None, _one_or_a_list] = None
    device_id_strategy: Annotated[Literal["uuid", "index"] | None, Field(alias="deviceIDStrategy")] = None
    shared_devices_allocation_policy: Literal["distributed", "packed"] | None = None


class _Flags(_Struct):
    mig_strategy: Literal["none", "single", "mixed"] | None = None
    mps_root: str | None = None
    device_discovery_strategy: Literal["auto", "nvml", "tegra"] | None = None
    plugin: _Plugin | None = None


OTHER_FLAGS = re.compile(
    r"(?i)(flags\.(failOnInitError|restartOnDeviceUnhealthy|nvidiaDriverRoot|nvidiaDevRoot|gdsEnabled|gdrcopyEnabled"
    r"|mofedEnabled|useNodeFeatureAPI|gfd|plugin\.(passDeviceSpecs|cdiAnnotationPrefix|nvidiaCTKPath"
    r"|containerDriverRoot)))"
)
"""The plugin has them, and feature discovery, which reads the same file; none concerns sharing."""


class _Pattern(_Part):
    pattern: str
    name: Annotated[str, Field(min_length=1)]


class _Resources(_Struct):
    gpus: tuple[_Pattern, ...] | None = None
    mig: tuple[_Pattern, ...] | None = None


class _Config(_Struct):
    version: Literal["v1", ""] | None = None
    flags: _Flags | None = None
    resources: _Resources | None = None
    sharing: _SharingBlock | None = None
    imex: Any = None

    @model_validator(mode="after")
    def _mps_can_start(self) -> "_Config":
        if self.sharing and self.sharing.mps and self.flags and self.flags.mig_strategy == "mixed":
            raise ValueError("flags.migStrategy mixed and sharing.mps exclude each other in NVIDIA's device plugin")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSharing:
    """How one config shares GPUs; neither block where it shares none."""

    mps: Sharing | None
    time_slicing: Sharing | None
    remarks: tuple[str, ...]
    """What the plugin drops without a word."""


NOT_ONE = "is no config of the device plugin, which is a mapping with version, flags or sharing"
UNDER_SHARING = dict.fromkeys(("timeslicing", "mps"), ": write it under sharing")


def looks_like_one(document: object, text: str = "") -> bool:
    """Whether a text is meant for the plugin, be it readable or not; a file without a version is one of v1."""
    if not isinstance(document, Mapping):
        return isinstance(document, NotYaml) and bool(OWN_FIELDS.search(text))
    document = _spelled(document, _Config)
    sharing = document.get("sharing")
    for block in (sharing, document):  # at the top, where the plugin ignores it, it was meant for the plugin
        if isinstance(block, Mapping) and {"mps", "timeSlicing"} & _spelled(block, _SharingBlock).keys():
            return True  # whatever else is there, the plugin ignores it, or refuses the version
    if document.get("version") not in (None, "", "v1"):
        return False
    known = document.keys() <= _Config.model_fields.keys()
    return known and bool(document.get("version") or isinstance(sharing or document.get("flags"), Mapping))


def what_it_is(document: object, text: str = "") -> str:
    """Of a text that belongs to other software about GPUs: whose it is, and what to do with it; else empty."""
    if isinstance(document, NotYaml):
        return document.sentence if looks_like_one(document, text) else ""
    if looks_like_one(document):
        return "a config of NVIDIA's device plugin: give the ConfigMap that holds it, and the Nodes"
    if isinstance(document, Mapping) and "mig-configs" in document:
        return (
            "a config of mig-parted, which needs no import: instances stay as they are, and spec.gpus holds on to "
            "them where you want that (docs/moving.md)"
        )
    if isinstance(document, Mapping) and document.get("kind") == "GpuPartitionerConfig":
        return "a config of nos, which is no plan: its settings are those of the controller (docs/moving.md)"
    groups = document if isinstance(document, list) else []
    if any(isinstance(one, Mapping) and "allowedGeometries" in one for one in groups):
        return "geometries of nos, which are no plan: they go into the controller's setting knownMigGeometriesFile"
    return ""


def read(text: str) -> PluginSharing | tuple[str, ...]:
    """Or every problem, as `field: what is wrong and what would be right`."""
    document = read_yaml(text, largest=LARGEST)
    if isinstance(document, NotYaml):
        return (f"(the document): {document.sentence}",)
    if not isinstance(document, dict | None):
        return (f"(the document): {NOT_ONE}",)
    try:
        config = _Config.model_validate(document or {})
    except ValidationError as error:
        # Of a list whose entries are all wrong it says also that it is too short.
        wrong = [one for one in error.errors() if one["type"] != "too_short" or not one["input"]]
        return tuple(f"{path_of(one['loc']) or '(the document)'}: {_sentence(one)}" for one in wrong)
    remarks = [
        f"{field}: unknown to the device plugin, which ignores it{UNDER_SHARING.get(field.casefold(), '')}"
        for field in _extras(config)
        if not OTHER_FLAGS.fullmatch(field)
    ]
    sharing = config.sharing or _SharingBlock()
    mps, slicing = sharing.mps, sharing.time_slicing
    if config.resources is not None and (config.resources.gpus or config.resources.mig):
        remarks.append("resources: the device plugin ignores this section")
    if mps and slicing:
        remarks.append("sharing.timeSlicing: ignored, since sharing.mps is there too")
    for name, block in (("timeSlicing", slicing), ("mps", mps)):
        for index, one in enumerate(block.resources if block else ()):
            place = f"sharing.{name}.resources[{index}]"
            if one.memory_gb is None and one.devices != "all":
                remarks.append(f"{place}.devices: ignored, all devices are shared")
            served = f"{one.name}.shared" if block and block.rename_by_default else one.name
            if one.memory_gb is None and one.rename and one.rename != served:
                remarks.append(f"{place}.rename: ignored, pods request {served}")
    return PluginSharing(mps=mps, time_slicing=None if mps else slicing, remarks=tuple(remarks))


def _extras(part: BaseModel, place: str = "") -> Iterator[str]:
    yield from (f"{place}{name}" for name in sorted(part.model_extra or ()))
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        for index, one in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(one, BaseModel):
                yield from _extras(one, f"{place}{field.alias or name}{f'[{index}]' * isinstance(value, tuple)}.")


def _sentence(error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return "is missing (the case of letters counts here): the device plugin refuses the file without it"
    return re.sub("(?i)tuple", "list", re.sub("^Value error, | or instance of.*", "", str(error["msg"])))
