"""The agent's settings: one YAML file with camelCase keys, every field documented here.

In goes the path of the file (or its decoded content), out come frozen `Settings`. Whatever is wrong is one
`SettingsError` whose lines each name the key, the value and what would be right; an unknown key is never ignored,
because a misspelt one would silently leave a default in force. Reads no environment and starts nothing.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from crds.v1alpha1.names import NAMESPACE

Seconds = Annotated[float, Field(ge=0, le=86_400)]
Interval = Annotated[float, Field(gt=0, le=86_400)]


class SettingsError(ValueError):
    """The settings cannot be used; the text is meant for the person who wrote them."""


class Settings(BaseModel):
    """Everything that a person can set."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True)

    state_dir: Path = Path("/var/lib/gpuplan")
    """Journal, memory and the files shared with the device plugin; on the node's disk, not in the pod."""
    kubelet_dir: Path = Path("/var/lib/kubelet")
    """The kubelet's root directory, with pod-resources and device-plugins below it."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = NAMESPACE
    """Where the Lease of this agent's heartbeat lives."""
    heartbeat_seconds: Interval = 10.0
    """Time between two heartbeats; the controller takes an agent for silent after 60 s."""
    resync_seconds: Interval = 10.0
    """Longest time between two passes when nothing happens: finds what somebody changed by hand."""
    kubelet_start_seconds: Seconds = 60.0
    """How long after a kubelet start its List of pods is not believed: it is empty at first. 0 only in a sandbox."""
    release_slack_seconds: Seconds = 30.0
    """A pod that vanished without having ended keeps its devices for its grace period and this long."""
    loaded_deadline_seconds: Interval = 60.0
    """After this long without the device plugin loading its config the plan says why."""
    allocatable_deadline_seconds: Interval = 30.0
    """After this long without kubelet or Node showing what is offered the plan says why; three status ticks."""
    status_interval_seconds: Seconds = 1.0
    """Least time between two status writes."""
    driver_timeout_seconds: Interval = 120.0
    """A driver call without an answer for this long is reported; nothing else is asked of it until it answers."""
    write_allocatable: bool = False
    """Write the Node's capacity and allocatable of our resources at once, instead of waiting for the kubelet's tick
    behind a taint. Needs the right to patch nodes/status."""
    metrics_address: str = "127.0.0.1"
    """Address on which /metrics, /healthz and /readyz are served; 0.0.0.0 inside a pod."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 9841
    """Port of the same; 0 takes any free one and logs it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""


def load_settings(path: Path) -> Settings:
    """Read the file; raises SettingsError with the file's name in front of every sentence."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}: give a readable YAML file with --config") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return read_settings(content if content is not None else {})
    except SettingsError as error:
        raise SettingsError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from error


def read_settings(content: object) -> Settings:
    """Check decoded YAML; raises SettingsError, one line per problem."""
    if not isinstance(content, dict):
        raise SettingsError(f"must be a mapping of keys to values, not {type(content).__name__}: write key: value")
    try:
        return Settings.model_validate(content)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(detail) for detail in error.errors())) from error


def _sentence(detail: ErrorDetails) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    known = {str(field.alias): field.default for field in Settings.model_fields.values()}
    if detail["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, sorted(known), n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown key {key}{hint}; known keys are {', '.join(sorted(known))}"
    complaint = detail["msg"][0].lower() + detail["msg"][1:]
    return f"{key} is {detail['input']!r}: {complaint}; the default is {known.get(key)}"
