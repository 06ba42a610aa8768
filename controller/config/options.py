"""Builds the planner's options from the settings.

Takes the settings and returns PlannerOptions, with the file of known geometries and the scheduler's configuration read
and checked. A file that cannot be used at all is a SettingsError; a geometry that cannot exist is a warning, which
`warn_about_geometries` also logs for models that only their nodes report. Reads nothing but what the settings name.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from kubernetes.client import ApiClient

from controller.config.geometries_file import GeometriesError, read_geometries
from controller.config.scheduler_source import scheduler_profiles
from controller.config.settings import Settings
from controller.model.known_geometries import KnownGeometries
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from kube.change_log import ChangeLog
from kube.settings import SettingsError
from kube.yaml_text import NotYaml, read_yaml_file
from partitioning.models import GpuModel

log = logging.getLogger(__name__)


class Planner(Protocol):
    """`controller.planning.plan`."""

    def __call__(
        self, snapshot: Snapshot, options: PlannerOptions, *, out_of_time: Callable[[], bool] = ...
    ) -> PlanningResult:
        """One pass."""


def planner_options(settings: Settings, api: ApiClient | None = None) -> PlannerOptions:
    """Raises SettingsError, naming fields as the settings do. `api`: to read a ConfigMap from."""
    path = settings.known_mig_geometries_file
    profiles = scheduler_profiles(settings, api)
    names = settings.scheduler_names
    if profiles is not None and "scheduler_names" not in settings.model_fields_set:
        names = tuple(profiles)
    return PlannerOptions(
        scheduler_names=frozenset(names),
        profiles=profiles or {},
        improve_steps=settings.improve_steps,
        drains=settings.drains,
        drained_percent=settings.drained_percent,
        mps_replicas=settings.mps_replicas,
        ack_units=settings.ack_memory == "units",
        geometries=_geometries(Path(path)) if path else None,
    )


def _geometries(path: Path) -> KnownGeometries:
    content = read_yaml_file(path)
    try:
        if isinstance(content, NotYaml):
            raise GeometriesError(content.sentence)
        return read_geometries(content)
    except GeometriesError as error:
        raise SettingsError(f"knownMigGeometriesFile: {path}: {error}") from error


def warn_about_geometries(planner: Planner, options: PlannerOptions) -> Planner:
    """The same planner; it warns once of each entry of the file that a model met by it cannot have."""
    known = options.geometries
    if known is None:
        return planner
    problems = ChangeLog(log)
    seen: set[GpuModel] = set()

    def plan(
        snapshot: Snapshot, options: PlannerOptions, *, out_of_time: Callable[[], bool] = lambda: False
    ) -> PlanningResult:
        models = {gpu.model for plan in snapshot.plans for gpu in plan.gpus if gpu.model is not None} - seen
        seen.update(models)
        for model in sorted(models, key=lambda model: (model.key, model.names)):
            _warn(known.ignored(model), problems)
        return planner(snapshot, options, out_of_time=out_of_time)

    _warn(known.warnings, problems)
    return plan


def _warn(lines: Iterable[str], problems: ChangeLog) -> None:
    for line in lines:
        problems.warn(f"knownMigGeometriesFile: {line}", about=line)
