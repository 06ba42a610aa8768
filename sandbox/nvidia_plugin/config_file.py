"""Reads a config file of NVIDIA's device plugin v0.20.0 as the plugin does.

Takes the text, returns what it means for sharing, or why it is refused. Unknown keys are dropped, `rename` and
`devices` are read and thrown away, MPS wins over time-slicing. Must never accept what that parser refuses.
"""

from dataclasses import dataclass

import yaml
from jsonschema import Draft202012Validator

PREFIX = "nvidia.com/"
WHOLE = f"{PREFIX}gpu"
MPS, TIME_SLICING, NO_SHARING = "mps", "time-slicing", "none"
UNREADABLE = "unable to load config: unable to finalize config: unable to parse config file: error parsing config file"
EXTRAS = {"GDRCOPY": "gdrcopyEnabled", "GDS": "gdsEnabled", "MOFED": "mofedEnabled"}
_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = {"type": "string", "pattern": rf"^(nvidia\.com/)?(?=.{{1,52}}\Z){_WORD}(\.{_WORD})*\Z"}
"""With its prefix 63 characters at most."""
_DEVICE = {"type": ["integer", "string"], "pattern": r"^(\d+(:\d+)?|(GPU|MIG)-\S+)\Z"}
_DEVICES = {"anyOf": [{"enum": ["all", None]}, {"type": "integer", "minimum": 1}, {"type": "array", "items": _DEVICE}]}
_SHARED = {
    "type": "object",
    "required": ["resources"],
    "properties": {
        "renameByDefault": {"type": "boolean"},
        "failRequestsGreaterThanOne": {"type": "boolean"},
        "resources": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "replicas"],
                "properties": {
                    "name": _NAME,
                    "rename": _NAME,
                    "devices": _DEVICES,
                    "replicas": {"type": "integer", "minimum": 2},
                },
            },
        },
    },
}
_IGNORED = {"type": ["array", "null"], "items": {"type": "object", "required": ["pattern", "name"]}}
_VALIDATOR = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "resources": {"type": ["object", "null"], "properties": {"gpus": _IGNORED, "mig": _IGNORED}},
            "sharing": {
                "type": ["object", "null"],
                "properties": {"timeSlicing": _SHARED, "mps": {**_SHARED, "type": ["object", "null"]}},
            },
        },
    }
)


class BadConfig(Exception):  # noqa: N818 - the program's answer, not a fault of ours
    """What the program exits with, after the word of what it was doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sharing, and what the flags say of devices. CDI is not simulated: it would need the driver's files."""

    strategy: str = NO_SHARING
    replicas: tuple[tuple[str, int], ...] = ()
    """Of each resource that is shared, by its name before it is renamed."""
    renamed: bool = False
    one_per_request: bool = False
    mig_strategy: str = "none"

    device_list: tuple[str, ...] = ("envvar",)
    by_index: bool = False
    """Containers get the indices of devices, and not their UUIDs."""
    device_nodes: bool = False
    """The kubelet gets them."""
    extras: tuple[str, ...] = ("GDRCOPY", "GDS", "MOFED")

    @property
    def of_gpus(self) -> int:
        """Replicas of each GPU; 1: they are not shared."""
        return dict(self.replicas).get(WHOLE, 1)


def parse(text: str) -> Config:
    """Raises BadConfig."""
    try:
        raw = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise BadConfig(f"{UNREADABLE}: unmarshal error: {error}") from error
    for problem in _VALIDATOR.iter_errors(raw):
        raise BadConfig(f"{UNREADABLE}: unmarshal error: {problem.json_path}: {problem.message}")
    if (version := raw.get("version") or "v1") != "v1":
        raise BadConfig(f"{UNREADABLE}: unknown version: {version}")
    sharing = raw.get("sharing") or {}
    shared = sharing.get(MPS) or sharing.get("timeSlicing") or {}
    strategy = MPS if sharing.get(MPS) else TIME_SLICING if shared else NO_SHARING
    replicas: dict[str, int] = {}
    for entry in shared.get("resources", ()):
        name = PREFIX + entry["name"].removeprefix(PREFIX)
        replicas[name] = max(entry["replicas"], replicas.get(name, 0))  # ids of one name are united
    flags = raw.get("flags") or {}
    plugin = flags.get("plugin") or {}
    listed = plugin.get("deviceListStrategy") or ["envvar"]
    return Config(
        strategy=strategy,
        replicas=tuple(sorted(replicas.items())),
        renamed=shared.get("renameByDefault", False),
        one_per_request=shared.get("failRequestsGreaterThanOne", strategy == MPS),
        mig_strategy=str(flags.get("migStrategy") or "none"),
        device_list=(listed,) if isinstance(listed, str) else tuple(listed),
        by_index=plugin.get("deviceIDStrategy") == "index",
        device_nodes=bool(plugin.get("passDeviceSpecs")),
        extras=tuple(name for name, key in EXTRAS.items() if flags.get(key, True)),
    )
