"""Runs a driver on threads of its own, so that a GPU whose calls do not return delays none of the others.

NVML calls block in C and cannot be ended from outside. Each GPU has a thread for its calls, and one more counts the
GPUs; observing calls all GPUs at once. A call without an answer in time raises DriverTimeoutError and may still take
effect, so no call is made for that GPU until the call has returned and a pause is over. Never makes two calls for one
GPU at a time, and never waits longer than one deadline for any number of GPUs.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from nodeagent.hardware.driver import (
    ComputeInstance,
    DriverError,
    DriverGoneError,
    DriverHangsError,
    DriverTimeoutError,
    GpuDriver,
    GpuInstance,
    GpuProcess,
    Health,
    ObservedGpu,
    RefusedError,
)
from partitioning.layouts import Instance

T = TypeVar("T")
log = logging.getLogger(__name__)
COOL_DOWN_SECONDS = 60.0
"""Pause after a late call: a GPU that is slow every time delays a pass once a minute, and not every pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A call that was given up and has not returned."""

    what: str
    seconds: float
    """Since it was made."""


class _Lane:
    """One thread that makes one call at a time. A daemon: a call that never returns must not keep the process."""

    def __init__(self, name: str, clock: Callable[[], float], *, cool_down_seconds: float, remedy: str) -> None:
        self._name, self._clock, self._remedy = name, clock, remedy
        self._cool_down_seconds = cool_down_seconds
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: Future[Any] | None = None
        self._refusal = ("", "")
        """What was attempted and the driver's answer, while the lane takes no calls. The words stay the same meanwhile:
        they are in the plan's status, and each change would be a write."""
        self._made_at, self._returned_at = 0.0, 0.0

    def start(self, call: Callable[[], T]) -> Future[T]:
        """Have the thread make the call; raises DriverTimeoutError while an earlier one has not returned."""
        if self._late is not None:
            if not self._late.done() or self._clock() - self._returned_at < self._cool_down_seconds:
                raise DriverHangsError(*self._refusal)
            self._late = None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._made_at = self._clock()
        self._tasks.put(partial(_settle, future, call))
        return future

    def finish(self, what: str, future: Future[T], timeout_seconds: float) -> T:
        """The answer of a call that has had its time. Raises what the call raised, or DriverTimeoutError."""
        if future.done():
            return future.result()
        answer = f"no answer from the driver in {timeout_seconds:g} s; {self._remedy}"
        self._refusal, self._late = (what, answer), future
        future.add_done_callback(self._returned)
        log.warning("%s: %s", what, answer)
        raise DriverHangsError(what, answer)

    def hanging(self) -> Hanging | None:
        late = self._late
        if late is None or late.done():
            return None
        return Hanging(what=self._refusal[0], seconds=self._clock() - self._made_at)

    def close(self) -> None:
        self._tasks.put(None)

    def _returned(self, _: Future[Any]) -> None:
        self._returned_at = self._clock()
        log.info("%s: the call has returned", self._refusal[0])

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class ThreadedDriver(GpuDriver):
    """A GpuDriver that hands every call to the threads of another."""

    def __init__(
        self, driver: GpuDriver, *, timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._driver = driver
        self._timeout_seconds = timeout_seconds
        remedy = "the driver is not called again until this call returns"
        self._node = _Lane("nvml", clock, cool_down_seconds=0.0, remedy=remedy)
        remedy = (
            "this GPU is left alone until the call returns, the others are not affected; if it stays so, look for Xid "
            "errors in the kernel log of the node, and drain and reboot it: while a call hangs no GPU can be reset"
        )
        self._lanes = defaultdict[int, _Lane](
            lambda: _Lane("nvml-gpu", clock, cool_down_seconds=COOL_DOWN_SECONDS, remedy=remedy)
        )
        self._observed_gpus: dict[int, ObservedGpu] = {}
        """The last observation of each GPU that was not late."""

    def version(self) -> str:
        return self._run(self._node, "reading the driver's version", self._driver.version)

    def count(self) -> int:
        return self._run(self._node, "counting the GPUs", self._driver.count)

    def observe_gpu(self, index: int) -> ObservedGpu:
        return self._observed({index}, {})[0]

    def observe(self, kept: Iterable[ObservedGpu] = ()) -> tuple[ObservedGpu, ...]:
        return self._observed(range(self.count()), {gpu.index: gpu for gpu in kept})

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:
        what = f"listing the processes on GPU {gpu.index}"
        return self._run(self._lanes[gpu.index], what, partial(self._driver.processes, gpu))

    def release(self) -> None:
        """Not while a call hangs, which may use the library still."""
        lanes = [self._node, *self._lanes.values()]
        if hanging := next(filter(None, (lane.hanging() for lane in lanes)), None):
            raise DriverTimeoutError("closing the driver", f"{hanging.what} has not returned")
        self._run(self._node, "closing the driver", self._driver.release)

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        what = f"creating {placed}"
        return self._change(gpu_uuid, what, partial(self._driver.create_gpu_instance, gpu_uuid, placed))

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        what = f"creating the compute instance of GPU instance {gpu_instance}"
        self._change(gpu_uuid, what, partial(self._driver.create_compute_instance, gpu_uuid, gpu_instance))

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        what = f"destroying the compute instance of {instance.placed}"
        self._change(gpu_uuid, what, partial(self._driver.destroy_compute_instance, gpu_uuid, instance, compute))

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        what = f"destroying {instance.placed}"
        self._change(gpu_uuid, what, partial(self._driver.destroy_gpu_instance, gpu_uuid, instance))

    def set_compute_mode(self, gpu_uuid: str, mode: int) -> None:
        what = f"setting the compute mode of {gpu_uuid}"
        self._change(gpu_uuid, what, partial(self._driver.set_compute_mode, gpu_uuid, mode))

    def close(self) -> bool:
        """Do not wait for a call that hangs; False where one may still take effect."""
        lanes = [self._node, *self._lanes.values()]
        for lane in lanes:
            lane.close()
        return not any(lane.hanging() for lane in lanes)

    def hanging(self) -> Hanging | None:
        """The call that blocks all others, on the node or on every single GPU; safe from any thread."""
        if (node := self._node.hanging()) is not None:
            return node
        gpus = [lane.hanging() for lane in list(self._lanes.values())]
        found = [hanging for hanging in gpus if hanging is not None]
        return min(found, key=lambda hanging: hanging.seconds) if found and len(found) == len(gpus) else None

    def _observed(self, indexes: Iterable[int], kept: Mapping[int, ObservedGpu]) -> tuple[ObservedGpu, ...]:
        driver = self._driver
        calls = {i: partial(driver.still, kept[i]) if i in kept else partial(driver.observe_gpu, i) for i in indexes}
        answers = self._run_all({index: (f"reading GPU {index}", call) for index, call in calls.items()})
        found = []
        for index, answer in sorted(answers.items()):
            if isinstance(answer, DriverGoneError):
                raise answer
            if isinstance(answer, ObservedGpu):
                self._observed_gpus[index] = answer
                found.append(answer)
            else:
                # Of the last observation, name and model still hold; the instances may be changing at this moment.
                last, why = self._observed_gpus.get(index, ObservedGpu(index=index, uuid="")), str(answer)
                hangs = isinstance(answer, DriverHangsError)
                unread = replace(last, instances=(), problem=why, health=Health.UNKNOWN, health_message=why)
                found.append(replace(unread, hangs=hangs))
        return tuple(found)

    def _change(self, gpu_uuid: str, what: str, call: Callable[[], T]) -> T:
        index = next((index for index, gpu in self._observed_gpus.items() if gpu.uuid == gpu_uuid), None)
        if index is None:
            raise RefusedError(what, f"no GPU {gpu_uuid} was observed")
        return self._run(self._lanes[index], what, call)

    def _run(self, lane: _Lane, what: str, call: Callable[[], T]) -> T:
        future = lane.start(call)
        wait([future], self._timeout_seconds)
        return lane.finish(what, future, self._timeout_seconds)

    def _run_all(self, calls: Mapping[int, tuple[str, Callable[[], T]]]) -> dict[int, T | DriverError]:
        """One call for each GPU, all at the same time and with one deadline."""
        answers: dict[int, T | DriverError] = {}
        started: dict[int, Future[T]] = {}
        for index, (_, call) in calls.items():
            try:
                started[index] = self._lanes[index].start(call)
            except DriverError as error:
                answers[index] = error
        wait(started.values(), self._timeout_seconds)
        # The late ones first: each must be known to hang, even where another answer is an exception that ends the pass.
        for index, future in sorted(started.items(), key=lambda item: item[1].done()):
            try:
                answers[index] = self._lanes[index].finish(calls[index][0], future, self._timeout_seconds)
            except DriverError as error:
                answers[index] = error
        return answers


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    try:
        answer = call()
    except BaseException as error:  # noqa: BLE001 - raised again where the answer is awaited
        future.set_exception(error)
    else:
        future.set_result(answer)
