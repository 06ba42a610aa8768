"""The controller's settings: one YAML file with camelCase keys, every field documented here.

In goes the path of the file (or its decoded content), out come frozen `Settings`. Whatever is wrong is one
`SettingsError` whose lines each name the key, the value and what would be right; an unknown key is never ignored,
because a misspelt one would silently leave a default in force. Reads no environment and starts nothing.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from crds.v1alpha1.names import NAMESPACE

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class SettingsError(ValueError):
    """The settings cannot be used; the text is meant for the person who wrote them."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True)


class LeaderElection(_Section):
    """Which of several controllers writes. Ages are measured on the monotonic clock of each process."""

    enabled: bool = True
    """false only where exactly one controller can run, as in the sandbox."""
    lease_duration_seconds: Seconds = 15.0
    """How long others wait after the leader's last renewal before they take over."""
    renew_deadline_seconds: Seconds = 10.0
    """How long the leader goes on trying to renew before it stops by itself; shorter than the lease."""
    retry_period_seconds: Seconds = 2.0
    """Time between two attempts to take or to renew the Lease."""

    @model_validator(mode="after")
    def _ordered(self) -> LeaderElection:
        if not self.lease_duration_seconds > self.renew_deadline_seconds > self.retry_period_seconds:
            raise ValueError(
                "leaseDurationSeconds must be greater than renewDeadlineSeconds, and that greater than "
                f"retryPeriodSeconds; they are {self.lease_duration_seconds:g}, {self.renew_deadline_seconds:g} and "
                f"{self.retry_period_seconds:g}: 15, 10 and 2 are the usual values"
            )
        return self


class Settings(_Section):
    """Everything that a person can set. Names and defaults of the batch window are those of nos."""

    batch_window_timeout_seconds: Seconds = 60.0
    """Longest time between the first pending pod of a batch and its planning, however many more arrive."""
    batch_window_idle_seconds: Seconds = 10.0
    """A batch is planned when no further pod arrived for this long."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = NAMESPACE
    """Where gpuplan's Leases live: the controller's own and the agents' heartbeats."""
    leader_election: LeaderElection = LeaderElection()
    """Which of several controllers writes."""
    metrics_address: str = "127.0.0.1"
    """Address on which /metrics, /healthz, /readyz and /decisions are served; 0.0.0.0 inside a pod."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 9840
    """Port of the same; 0 takes any free one and logs it."""
    nominate_pods: bool = True
    """Write status.nominatedNodeName of planned pods when their slice is there, so that no other pod takes it."""
    scheduler_names: Annotated[tuple[str, ...], Field(min_length=1)] = ("default-scheduler",)
    """Pods of these schedulers are planned for; any other's are left alone."""
    improve_steps: Annotated[int, Field(ge=0, le=10_000_000)] = 20_000
    """How many exchanges of planned pods the planner may try after its first placement."""
    known_mig_geometries_file: Annotated[str, Field(max_length=4096)] = ""
    """A file in the format of nos' knownMigGeometries: models that it names are cut in these ways only. Empty: none."""
    ageing_seconds: Seconds = 600.0
    """A pod that waits longer than this counts as the next priority level, so that others cannot starve it."""
    agent_silent_seconds: Seconds = 60.0
    """An agent whose Lease was not renewed for this long counts as silent: its node is not planned any more."""
    taint_removal_seconds: Seconds = 180.0
    """After this long the silent agent's taint gpuplan.dev/changing is taken off its node."""
    under_way_seconds: Seconds = 300.0
    """How long slices that an agent is still making count as supply."""
    plan_return_seconds: Seconds = 60.0
    """A deleted plan of a node that is still enabled returns, empty, after this long."""
    orphan_plan_seconds: Seconds = 3600.0
    """A plan in which people wrote nothing is deleted when its Node is gone for this long."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""

    @model_validator(mode="after")
    def _ordered(self) -> Settings:
        if self.batch_window_idle_seconds > self.batch_window_timeout_seconds:
            raise ValueError(
                f"batchWindowIdleSeconds ({self.batch_window_idle_seconds:g}) must not be greater than "
                f"batchWindowTimeoutSeconds ({self.batch_window_timeout_seconds:g}): raise the one or lower the other"
            )
        if self.taint_removal_seconds < self.agent_silent_seconds:
            raise ValueError(
                f"taintRemovalSeconds ({self.taint_removal_seconds:g}) must not be less than "
                f"agentSilentSeconds ({self.agent_silent_seconds:g}): an agent must be silent before its taint goes"
            )
        return self


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
        raise SettingsError(f"must be a mapping of keys to values, not {_kind(content)}: write key: value lines")
    try:
        return Settings.model_validate(content)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(detail) for detail in error.errors())) from error


def _sentence(detail: ErrorDetails) -> str:
    location = [str(part) for part in detail["loc"]]
    where = ".".join(location)
    if detail["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown key {where}{hint}; known keys are {', '.join(known)}"
    if detail["type"] == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    found = _field(location)
    default = f"; the default is {_shown(found)}" if found is not None else ""
    complaint = detail["msg"][0].lower() + detail["msg"][1:]
    return f"{where} is {detail['input']!r}: {complaint}{default}"


def _known_keys(section: list[str]) -> list[str]:
    model = LeaderElection if section == ["leaderElection"] else Settings
    return sorted(str(field.alias) for field in model.model_fields.values())


def _field(location: list[str]) -> Any:
    model: type[_Section] = LeaderElection if location[:1] == ["leaderElection"] and len(location) > 1 else Settings
    name = location[1] if model is LeaderElection else location[0] if location else ""
    return next((field.default for field in model.model_fields.values() if field.alias == name), None)


def _shown(default: object) -> str:
    if isinstance(default, LeaderElection):
        return "a mapping with " + ", ".join(_known_keys(["leaderElection"]))
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return f"[{', '.join(default)}]"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _kind(content: object) -> str:
    if isinstance(content, list):
        return "a list"
    return "a text" if isinstance(content, str) else type(content).__name__
