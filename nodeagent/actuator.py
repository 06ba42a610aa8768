"""Carries out the hardware part of one GPU's change: destroy, finish, create, each step behind the journal.

In goes a `GpuChange`, out comes what was done and, if the driver stopped it, why. Each step is written down before its
first driver call. Right before a destruction NVML is asked once more for processes; that a client holds the instance is
information, not failure. Never tries another order or placement, and stops between steps when a newer plan is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from nodeagent.changes import GpuChange
from nodeagent.driver import DriverError, GpuDriver, GpuInstance, InUseError, ObservedGpu
from nodeagent.journal import Action, Intent, Journal
from partitioning.layouts import Instance

log = logging.getLogger(__name__)
FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuated:
    """What became of the work on one GPU."""

    destroyed: tuple[Instance, ...] = ()
    created: tuple[Instance, ...] = ()
    error: DriverError | None = None
    fresh: bool = True
    """The driver was asked in this pass; else the error is that of an earlier try, and its pause is not over."""
    interrupted: bool = False
    """A newer generation came: the rest is for the next pass."""

    @property
    def acted(self) -> bool:
        """The driver was asked to change something."""
        return bool(self.destroyed or self.created or (self.error is not None and self.fresh))


@dataclass(frozen=True, slots=True)
class _Pause:
    """After a failure on one GPU: the same plan is not tried again at once."""

    edition: tuple[str, int]
    error: DriverError
    failures: int
    over_at: float


class Actuator:
    def __init__(self, driver: GpuDriver, journal: Journal, *, clock: Callable[[], float]) -> None:
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def run(self, change: GpuChange, *, edition: tuple[str, int], current: Callable[[], bool]) -> Actuated:
        """Work through the steps of one GPU as far as possible. `edition` is the plan's uid and generation."""
        pause = self._pauses.get(change.gpu.uuid)
        if not change.acts:
            self._pauses.pop(change.gpu.uuid, None)
            return Actuated()
        if pause is not None and pause.edition == edition and self._clock() < pause.over_at:
            return Actuated(error=pause.error, fresh=False)
        result = self._work(change, edition, current)
        if result.error is None:
            self._pauses.pop(change.gpu.uuid, None)
        else:
            failures = 1 + (pause.failures if pause is not None and pause.edition == edition else 0)
            seconds = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LAST_PAUSE_SECONDS)
            self._pauses[change.gpu.uuid] = _Pause(edition, result.error, failures, self._clock() + seconds)
            log.warning("GPU %d: %s; tried again in %g s", change.gpu.index, result.error, seconds)
        return result

    def seconds_to_retry(self, gpus: Collection[str]) -> float | None:
        """Until the first pause of these GPUs is over."""
        pauses = [pause for gpu, pause in self._pauses.items() if gpu in gpus]
        return min((max(pause.over_at - self._clock(), 0.0) for pause in pauses), default=None)

    def _work(self, change: GpuChange, edition: tuple[str, int], current: Callable[[], bool]) -> Actuated:
        done: list[tuple[Action, Instance]] = []
        stuck: list[Instance] = []
        problem: DriverError | None = None
        for step in self._steps(change):
            if not current():
                return _actuated(done, problem, interrupted=True)
            if step.action is Action.CREATE and any(_collide(change.gpu, step.placed, other) for other in stuck):
                continue
            intent = Intent(action=step.action, placed=step.placed, plan_uid=edition[0], generation=edition[1])
            try:
                step.run(intent)
            except InUseError as error:
                # Somebody holds this one; the other steps need not wait for it.
                problem = error
                stuck.append(step.placed)
            except DriverError as error:
                return _actuated(done, error)
            else:
                done.append((step.action, step.placed))
                log.info("GPU %d: %s of %s is done", change.gpu.index, step.action, step.placed)
        return _actuated(done, problem)

    def _steps(self, change: GpuChange) -> Iterator[_Step]:
        gpu = change.gpu
        for instance in change.destroy:
            yield _Step(Action.DESTROY, instance.placed, partial(self._destroy, gpu, instance))
        for instance in change.finish:
            yield _Step(Action.CREATE, instance.placed, partial(self._finish, gpu, instance))
        for placed in change.create:
            yield _Step(Action.CREATE, placed, partial(self._create, gpu))

    def _destroy(self, gpu: ObservedGpu, instance: GpuInstance, intent: Intent) -> None:
        # Of this instance only: others of the observation may be destroyed by now.
        processes = self._driver.processes(replace(gpu, instances=(instance,)))
        found = [process.pid for process in processes if process.instance == instance.id]
        if found:
            raise InUseError(f"destroying {instance.placed}", f"process {found[0]} runs on it")
        self._journal.begin(gpu.uuid, intent)
        for compute in instance.compute:
            self._driver.destroy_compute_instance(gpu.uuid, instance.id, compute.id)
        self._driver.destroy_gpu_instance(gpu.uuid, instance.id)
        self._journal.end(gpu.uuid, intent)

    def _finish(self, gpu: ObservedGpu, instance: GpuInstance, intent: Intent) -> None:
        self._journal.begin(gpu.uuid, intent)
        self._driver.create_compute_instance(gpu.uuid, instance.id)
        self._journal.end(gpu.uuid, intent)

    def _create(self, gpu: ObservedGpu, intent: Intent) -> None:
        self._journal.begin(gpu.uuid, intent)
        made = self._driver.create_gpu_instance(gpu.uuid, intent.placed)
        self._driver.create_compute_instance(gpu.uuid, made)
        self._journal.end(gpu.uuid, intent)


@dataclass(frozen=True, slots=True)
class _Step:
    action: Action
    placed: Instance
    run: Callable[[Intent], None]


def _actuated(
    done: Iterable[tuple[Action, Instance]], error: DriverError | None, *, interrupted: bool = False
) -> Actuated:
    steps = tuple(done)
    return Actuated(
        destroyed=tuple(placed for action, placed in steps if action is Action.DESTROY),
        created=tuple(placed for action, placed in steps if action is Action.CREATE),
        error=error,
        interrupted=interrupted,
    )


def _collide(gpu: ObservedGpu, one: Instance, other: Instance) -> bool:
    return bool(one.mask & other.mask) or (gpu.model is not None and gpu.model.excludes(one.profile, other.profile))
