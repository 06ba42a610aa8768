"""Finds the scheduler's configuration: in a file, else in a ConfigMap, else its default.

Takes the settings and, for a ConfigMap, a client, and returns the profiles, or None where the settings name no source
or the named source does not exist. A source that exists and cannot be read or understood is a SettingsError: planning
with other filters than the scheduler's would change GPUs for pods that it never binds. `SourceWatch` reads the source
periodically and reports when the process should restart with other profiles; a failed read changes nothing.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from kubernetes.client import ApiClient

from controller.config.scheduler_config import SchedulerConfigError, load_profiles, profile_warnings, read_profiles
from controller.config.settings import ConfigMapKey, Settings
from controller.model.scheduling import SchedulerProfiles
from crds.v1alpha1 import paths
from kube import apply
from kube.change_log import ChangeLog
from kube.errors import ApiError, NotFound
from kube.settings import SettingsError

log = logging.getLogger(__name__)


POLL_SECONDS = 30.0


def scheduler_profiles(settings: Settings, api: ApiClient | None = None) -> SchedulerProfiles | None:
    """The profiles, with their warnings in the log. Without a client a ConfigMap is passed over."""
    found = _read(settings, api)
    if found is None and _named(settings, api):
        log.warning("%s is not there: pods are filtered as by kube-scheduler's default", _named(settings, api))
    for line in profile_warnings(found or {}):
        log.warning("%s", line)
    return found


class SourceWatch:
    """A thread that reads the source again every so often."""

    def __init__(
        self,
        settings: Settings,
        api: ApiClient,
        known: SchedulerProfiles,
        *,
        changed: Callable[[], None],
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`known` are the profiles that count now; `changed` is called once, when they are others, from the thread."""
        self._settings, self._api, self._known, self._changed = settings, api, dict(known), changed
        self._poll_seconds = poll_seconds
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="scheduler's configuration")

    def start(self) -> None:
        """Does nothing without a source."""
        if _named(self._settings, self._api):
            self._thread.start()

    def stop(self) -> None:
        """The result of a read in flight is ignored."""
        self._quit.set()

    def _run(self) -> None:
        problems, before = ChangeLog(log), self._known
        while not self._quit.wait(self._poll_seconds):
            try:
                found = dict(_read(self._settings, self._api) or {})
            except Exception as error:  # noqa: BLE001 - whatever the text is, its next version must be read
                problems.warn(f"{error}: keeping the configuration that was read before")
                continue
            problems.warn("")
            # Twice the same: a file may be read half written.
            if found == before and found != self._known and not self._quit.is_set():
                self._changed()
                return
            before = found


def _named(settings: Settings, api: ApiClient | None) -> str:
    """The source; '' where there is none."""
    place = settings.scheduler.config
    if settings.scheduler_config_file:
        return f"schedulerConfigFile: {settings.scheduler_config_file}"
    return f"scheduler.config: ConfigMap {place.namespace}/{place.name}" if place.name and api is not None else ""


def _read(settings: Settings, api: ApiClient | None) -> SchedulerProfiles | None:
    if settings.scheduler_config_file:
        try:
            return load_profiles(Path(settings.scheduler_config_file))
        except SchedulerConfigError as error:
            raise SettingsError(f"schedulerConfigFile: {error}") from error
    if not settings.scheduler.config.name or api is None:
        return None
    return _from_config_map(api, settings.scheduler.config, _named(settings, api))


def _from_config_map(api: ApiClient, place: ConfigMapKey, title: str) -> SchedulerProfiles | None:
    try:
        data = apply.get(api, paths.config_map(place.namespace, place.name)).get("data") or {}
    except NotFound:
        return None
    except ApiError as error:
        raise SettingsError(f"{title} cannot be read: {error}") from error
    key = place.key or next(iter(data), "")
    if key not in data or (not place.key and len(data) > 1):
        problem = f"has no key {key}" if place.key else "has several keys" if data else "is empty"
        raise SettingsError(f"{title} {problem}: name one of {', '.join(sorted(data)) or 'its keys'} in key")
    try:
        return read_profiles(data[key])
    except SchedulerConfigError as error:
        raise SettingsError(f"{title}, key {key}: {error}") from error
