"""Where the scheduler's configuration comes from: a file, else a ConfigMap, else the default.

In go the settings and, for a ConfigMap, a client; out come the profiles, or None where the settings name no source or
there is nothing at the place that they name. What is there and cannot be read or understood is a SettingsError: to plan
by other filters than the scheduler's would cut GPUs for pods that it never binds.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kubernetes.client import ApiClient

from controller import paths
from controller.scheduler_config import SchedulerConfigError, load_profiles, read_profiles, remarks
from controller.scheduling import SchedulerProfiles
from controller.settings import ConfigMapKey, Settings
from kube import apply
from kube.errors import ApiError, NotFound
from kube.settings import SettingsError

log = logging.getLogger(__name__)


def scheduler_profiles(settings: Settings, api: ApiClient | None = None) -> SchedulerProfiles | None:
    """The profiles, remarked upon once in the log. Without a client a ConfigMap is passed over."""
    found = _from_file(settings.scheduler_config_file) if settings.scheduler_config_file else None
    if not settings.scheduler_config_file and settings.scheduler.config.name and api is not None:
        found = _from_config_map(api, settings.scheduler.config)
    for line in remarks(found or {}):
        log.warning("%s", line)
    return found


def _from_file(path: str) -> SchedulerProfiles | None:
    try:
        found = load_profiles(Path(path))
    except SchedulerConfigError as error:
        raise SettingsError(f"schedulerConfigFile: {error}") from error
    if found is None:
        log.warning("schedulerConfigFile: %s is not there: pods are filtered as by kube-scheduler's default", path)
    return found


def _from_config_map(api: ApiClient, place: ConfigMapKey) -> SchedulerProfiles | None:
    title = f"scheduler.config: ConfigMap {place.namespace}/{place.name}"
    try:
        data = apply.get(api, paths.config_map(place.namespace, place.name)).get("data") or {}
    except NotFound:
        log.warning("%s is not there: pods are filtered as by kube-scheduler's default", title)
        return None
    except ApiError as error:
        raise SettingsError(f"{title} cannot be read: {error}") from error
    key = place.key or next(iter(data), "")
    if key not in data or (not place.key and len(data) > 1):
        wanted = f"has no key {key}" if place.key else "has several keys" if data else "is empty"
        raise SettingsError(f"{title} {wanted}: name one of {', '.join(sorted(data)) or 'its keys'} in key")
    try:
        return read_profiles(data[key])
    except SchedulerConfigError as error:
        raise SettingsError(f"{title}, key {key}: {error}") from error
