"""Carries out the hardware part of one GPU's change: destroy, finish, create, each step after its journal entry.

Takes a `GpuChange`, returns what was done and, if the driver refused, why. Each step is in the journal before its first
driver call. Right before a destruction it reads NVML's processes once more, where a client is information and no
failure, and has the instance's name taken from container runtimes; an instance that keeps it is kept. One that a
program holds open that no list of the driver shows gets its compute instance again, and pods may get it meanwhile.
Stops between steps when a newer plan is there. Never tries another order or placement.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from kube.logs import fields
from nodeagent.hardware.driver import DriverError, GpuDriver, GpuInstance, InUseError, ObservedGpu
from nodeagent.steps.changes import GpuChange
from nodeagent.steps.journal import Action, HeldOpen, Intent, Journal
from partitioning.layouts import Instance

log = logging.getLogger(__name__)
USUAL_PAUSES = (1.0, 30.0)
"""Seconds: the first after a failure, which doubles, and the longest."""
HELD_OPEN_PAUSES = (5.0, 300.0)
"""After a driver refused what no process is seen to use: each try takes its id off the list."""
ACTING_SECONDS = 20.0
"""No further step on hardware begins after this time in one pass: the heartbeat and the status need passes that end."""
SpecVersion: TypeAlias = tuple[str, int]
"""The plan's uid and generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuated:
    """What became of the work on one GPU."""

    destroyed: tuple[Instance, ...] = ()
    created: tuple[Instance, ...] = ()
    error: DriverError | None = None
    fresh: bool = True
    """The driver was called in this pass; else the error is that of an earlier try, and its pause is not over."""
    seconds: float = 0.0
    """Since the first of the refusals that the error is the last of."""
    interrupted: bool = False
    """A newer plan arrived, or the pass had taken long enough: the rest is for the next pass."""

    @property
    def acted(self) -> bool:
        """The driver was called to change something."""
        return bool(self.destroyed or self.created or (self.error is not None and self.fresh))


class StillNamedError(DriverError):
    """A container could start with the name of this instance, so it was not destroyed."""

    kind = "still-named"


class HeldOpenError(InUseError):
    """The driver says that a client holds it, and lists no process: DCGM and exporters are known to do this."""

    kind = "held-open"


@dataclass(frozen=True, slots=True)
class _Pause:
    """After a failure on one GPU: the same plan is not tried again at once."""

    spec_version: SpecVersion | None
    """None where an earlier agent failed."""
    error: DriverError
    seconds: float
    over_at: float
    since: float


class Actuator:
    def __init__(
        self,
        driver: GpuDriver,
        journal: Journal,
        *,
        clock: Callable[[], float],
        stopping: Callable[[], bool] = lambda: False,
        forget: Callable[[GpuInstance], str] = lambda _: "",
    ) -> None:
        """`stopping` is true once the process is to end. `forget` takes the instance's name from container runtimes,
        and returns why that is not possible."""
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._stopping = stopping
        self._forget = forget
        self._pauses: dict[str, _Pause | None] = {}

    def run_all(
        self, changes: Iterable[GpuChange], *, spec_version: SpecVersion, newest: Callable[[], SpecVersion]
    ) -> dict[str, Actuated]:
        """One GPU after the other, by UUID, until there is a newer plan or the pass has taken long enough."""
        until = self._clock() + ACTING_SECONDS

        def may_go_on() -> bool:
            return newest() == spec_version and not self._stopping() and self._clock() < until

        return {change.gpu.uuid: self.run(change, spec_version=spec_version, may_go_on=may_go_on) for change in changes}

    def run(self, change: GpuChange, *, spec_version: SpecVersion, may_go_on: Callable[[], bool]) -> Actuated:
        """Work through the steps of one GPU as far as possible."""
        uuid, now = change.gpu.uuid, self._clock()
        pause = self._pause(uuid)
        left = change.kept or change.withdraw or change.destroy
        held = bool(left) and pause is not None and isinstance(pause.error, HeldOpenError)
        if not (change.acts or held):
            self._remember(uuid, None)
            return Actuated()
        if pause is not None and not held and pause.spec_version != spec_version:
            pause = None
        if pause is not None and (now < pause.over_at or not change.acts):
            return Actuated(error=pause.error, fresh=False, seconds=now - pause.since)
        result = self._work(change, spec_version, may_go_on)
        if result.error is None:
            self._remember(uuid, None)
            return result
        first_seconds, longest_seconds = HELD_OPEN_PAUSES if isinstance(result.error, HeldOpenError) else USUAL_PAUSES
        seconds, since = first_seconds, now
        if pause is not None and type(pause.error) is type(result.error):
            seconds, since = min(2 * pause.seconds, longest_seconds), pause.since
        self._remember(uuid, _Pause(spec_version, result.error, seconds, self._clock() + seconds, since))
        context = fields(gpu=change.gpu.index, error=result.error.kind)
        log.warning("GPU %d: %s; next try in %g s", change.gpu.index, result.error, seconds, extra=context)
        return replace(result, seconds=now - since)

    def rests(self, gpu_uuid: str) -> bool:
        """A program holds open what was to be destroyed on this GPU: until the next try pods may get all of it."""
        pause = self._pause(gpu_uuid)
        return pause is not None and isinstance(pause.error, HeldOpenError) and self._clock() < pause.over_at

    def seconds_to_retry(self, gpus: Collection[str]) -> float | None:
        """Until the first pause of these GPUs is over."""
        # One of a GPU that is held open lasts until its ids are withdrawn again, which no pass makes faster.
        pauses = [pause for gpu in gpus if (pause := self._pause(gpu)) is not None]
        waits = [p for p in pauses if p.over_at > self._clock() or not isinstance(p.error, HeldOpenError)]
        return min((max(pause.over_at - self._clock(), 0.0) for pause in waits), default=None)

    def _pause(self, gpu_uuid: str) -> _Pause | None:
        """At first as an earlier agent left it, if something was held open; a clock may have begun again since."""
        if gpu_uuid not in self._pauses:
            found, now, pause = self._journal.held_open(gpu_uuid), self._clock(), None
            if found is not None:
                first_seconds, longest_seconds = HELD_OPEN_PAUSES  # another version may have had others
                seconds = min(max(found.pause_seconds, first_seconds), longest_seconds)
                error = HeldOpenError(found.attempted, found.answer)
                pause = _Pause(None, error, seconds, min(found.over_at, now + seconds), min(found.since, now))
            self._pauses[gpu_uuid] = pause
        return self._pauses[gpu_uuid]

    def _remember(self, gpu_uuid: str, pause: _Pause | None) -> None:
        if pause is None and self._pause(gpu_uuid) is None:
            return
        self._pauses[gpu_uuid] = pause
        held_open = None
        if pause is not None and isinstance(pause.error, HeldOpenError):
            error = pause.error
            held_open = HeldOpen(
                attempted=error.attempted,
                answer=error.answer,
                since=pause.since,
                over_at=pause.over_at,
                pause_seconds=pause.seconds,
            )
        self._journal.hold(gpu_uuid, held_open)

    def _work(self, change: GpuChange, spec_version: SpecVersion, may_go_on: Callable[[], bool]) -> Actuated:
        gpu, interrupted = change.gpu, False
        problem: DriverError | None = None
        done: dict[Action, list[Instance]] = {Action.DESTROY: [], Action.CREATE: []}
        stuck: list[Instance] = []
        for action, placed, call in self._steps(change):
            if interrupted := not may_go_on():
                break
            if isinstance(problem, HeldOpenError) and action is Action.DESTROY:
                # It holds the others, too, and each would leave its place in the list for nothing.
                stuck.append(placed)
                continue
            if action is Action.CREATE and any(gpu.collide(placed, other) for other in stuck):
                continue
            began = self._clock()
            try:
                self._step(gpu, Intent(action=action, placed=placed, spec_version=spec_version), call)
            except InUseError as error:
                # A client holds this one; the other steps need not wait for it.
                problem = error
                stuck.append(placed)
            except DriverError as error:
                problem = error
                break
            else:
                done[action].append(placed)
                context = fields(gpu=gpu.index, action=str(action), seconds=self._clock() - began)
                log.info("GPU %d: %s of %s is done", gpu.index, action, placed, extra=context)
        destroyed, created = tuple(done[Action.DESTROY]), tuple(done[Action.CREATE])
        return Actuated(destroyed=destroyed, created=created, error=problem, interrupted=interrupted)

    def _steps(self, change: GpuChange) -> Iterator[tuple[Action, Instance, Callable[[], None]]]:
        gpu, driver = change.gpu, self._driver
        for instance in change.destroy:
            yield Action.DESTROY, instance.placed, partial(self._destroy, gpu, instance)
        for instance in change.finish:
            yield Action.CREATE, instance.placed, partial(driver.create_compute_instance, gpu.uuid, instance.id)
        for placed in change.create:
            yield Action.CREATE, placed, partial(self._create, gpu, placed)

    def _step(self, gpu: ObservedGpu, intent: Intent, call: Callable[[], None]) -> None:
        if intent.action is Action.DESTROY:
            self._check_idle(gpu, intent.placed)
        self._journal.begin(gpu.uuid, intent)
        call()
        self._journal.end(gpu.uuid, intent)

    def _check_idle(self, gpu: ObservedGpu, placed: Instance) -> None:
        # Of this instance only: others of the observation may be destroyed by now.
        alone = replace(gpu, instances=tuple(instance for instance in gpu.instances if instance.placed == placed))
        found = [process.pid for process in self._driver.processes(alone) if process.instance is not None]
        if found:
            raise InUseError(f"destroying {placed}", f"process {found[0]} runs on it")

    def _destroy(self, gpu: ObservedGpu, instance: GpuInstance) -> None:
        if why := self._forget(instance):
            raise StillNamedError(f"destroying {instance.placed}", why)
        try:
            for compute in instance.compute:
                self._driver.destroy_compute_instance(gpu.uuid, instance, compute)
        except InUseError as error:
            raise HeldOpenError(f"destroying {instance.placed}", error.answer) from error
        try:
            self._driver.destroy_gpu_instance(gpu.uuid, instance)
        except InUseError as error:
            self._driver.create_compute_instance(gpu.uuid, instance.id)
            raise HeldOpenError(f"destroying {instance.placed}", error.answer) from error

    def _create(self, gpu: ObservedGpu, placed: Instance) -> None:
        made = self._driver.create_gpu_instance(gpu.uuid, placed)
        self._driver.create_compute_instance(gpu.uuid, made)
