"""Carries out the hardware part of one GPU's change: destroy, finish, create, each step behind the journal.

In goes a `GpuChange`, out comes what was done and, if the driver stopped it, why. Each step is written down before its
first driver call. Right before a destruction NVML is asked once more for processes; that a client holds the instance is
information, not failure. Never tries another order or placement, and stops between steps when a newer plan is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from nodeagent.changes import GpuChange
from nodeagent.driver import DriverError, GpuDriver, GpuInstance, InUseError, ObservedGpu
from nodeagent.journal import Action, Intent, Journal
from partitioning.layouts import Instance

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuated:
    """What became of the work on one GPU."""

    destroyed: tuple[Instance, ...] = ()
    created: tuple[Instance, ...] = ()
    error: DriverError | None = None
    interrupted: bool = False
    """A newer generation came: the rest is for the next pass."""


class Actuator:
    def __init__(self, driver: GpuDriver, journal: Journal) -> None:
        self._driver = driver
        self._journal = journal

    def run(self, change: GpuChange, *, plan_uid: str, generation: int, current: Callable[[], bool]) -> Actuated:
        """Work through the steps of one GPU as far as possible."""
        destroyed: list[Instance] = []
        created: list[Instance] = []

        def intent(action: Action, placed: Instance) -> Intent:
            return Intent(action=action, placed=placed, plan_uid=plan_uid, generation=generation)

        def outcome(error: DriverError | None = None, *, interrupted: bool = False) -> Actuated:
            return Actuated(destroyed=tuple(destroyed), created=tuple(created), error=error, interrupted=interrupted)

        try:
            for instance in change.destroy:
                if not current():
                    return outcome(interrupted=True)
                self._destroy(change.gpu, instance, intent(Action.DESTROY, instance.placed))
                destroyed.append(instance.placed)
            for instance in change.finish:
                if not current():
                    return outcome(interrupted=True)
                self._finish(change.gpu, instance, intent(Action.CREATE, instance.placed))
                created.append(instance.placed)
            for placed in change.create:
                if not current():
                    return outcome(interrupted=True)
                self._create(change.gpu, placed, intent(Action.CREATE, placed))
                created.append(placed)
        except DriverError as error:
            log.warning("GPU %d: %s", change.gpu.index, error)
            return outcome(error)
        return outcome()

    def _destroy(self, gpu: ObservedGpu, instance: GpuInstance, intent: Intent) -> None:
        found = [process.pid for process in self._driver.processes(gpu) if process.instance == instance.id]
        if found:
            raise InUseError(f"destroying {instance.placed}", f"process {found[0]} runs on it")
        self._journal.begin(gpu.uuid, intent)
        for compute in instance.compute:
            self._driver.destroy_compute_instance(gpu.uuid, instance.id, compute.id)
        self._driver.destroy_gpu_instance(gpu.uuid, instance.id)
        self._journal.end(gpu.uuid)
        log.info("GPU %d: destroyed %s", gpu.index, instance.placed)

    def _finish(self, gpu: ObservedGpu, instance: GpuInstance, intent: Intent) -> None:
        self._journal.begin(gpu.uuid, intent)
        self._driver.create_compute_instance(gpu.uuid, instance.id)
        self._journal.end(gpu.uuid)
        log.info("GPU %d: finished %s", gpu.index, instance.placed)

    def _create(self, gpu: ObservedGpu, placed: Instance, intent: Intent) -> None:
        self._journal.begin(gpu.uuid, intent)
        made = self._driver.create_gpu_instance(gpu.uuid, placed)
        self._driver.create_compute_instance(gpu.uuid, made)
        self._journal.end(gpu.uuid)
        log.info("GPU %d: created %s", gpu.index, placed)
