"""Runs a driver on one thread of its own, with a deadline for every call.

NVML calls block, some for a minute, and want one thread. A call that does not answer in time raises
DriverTimeoutError and may still take effect: until it has returned every further call fails at once, so that nothing
is done on top of an unknown state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from typing import Any, TypeVar

from nodeagent.hardware.driver import (
    ComputeInstance,
    DriverTimeoutError,
    GpuDriver,
    GpuInstance,
    GpuProcess,
    ObservedGpu,
)
from partitioning.layouts import Instance

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A call that was given up and has not returned."""

    what: str
    seconds: float
    """Since it was made."""


class ThreadedDriver:
    """A GpuDriver that hands every call to the thread of another."""

    def __init__(
        self, driver: GpuDriver, *, timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._driver = driver
        self._timeout_seconds = timeout_seconds
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvml")
        self._clock = clock
        self._late: Future[Any] | None = None
        self._late_call = ("", 0.0)
        """What it is, and when it was made."""

    def version(self) -> str:
        return self._run("asking for the driver's version", self._driver.version)

    def observe(self) -> tuple[ObservedGpu, ...]:
        return self._run("reading the GPUs", self._driver.observe)

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:
        return self._run(f"listing the processes on GPU {gpu.index}", self._driver.processes, gpu)

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        return self._run(f"creating {placed}", self._driver.create_gpu_instance, gpu_uuid, placed)

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        what = f"creating the compute instance of GPU instance {gpu_instance}"
        self._run(what, self._driver.create_compute_instance, gpu_uuid, gpu_instance)

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        what = f"destroying the compute instance of {instance.placed}"
        self._run(what, self._driver.destroy_compute_instance, gpu_uuid, instance, compute)

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        self._run(f"destroying {instance.placed}", self._driver.destroy_gpu_instance, gpu_uuid, instance)

    def close(self) -> bool:
        """Do not wait for a call that hangs; False where one may still take effect."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        return self._late is None or self._late.done()

    def hanging(self) -> Hanging | None:
        """The call that stands in the way of all others; safe from any thread."""
        late, (what, since) = self._late, self._late_call
        return None if late is None or late.done() else Hanging(what=what, seconds=self._clock() - since)

    def _run(self, what: str, call: Callable[..., T], *arguments: Any) -> T:
        if self._late is not None and not self._late.done():
            raise DriverTimeoutError(what, "an earlier driver call has not returned yet")
        self._late = None
        started_at = self._clock()
        future = self._executor.submit(call, *arguments)
        try:
            return future.result(self._timeout_seconds)
        except NoAnswer as error:
            self._late_call, self._late = (what, started_at), future
            raise DriverTimeoutError(what, f"no answer from the driver in {self._timeout_seconds:g} s") from error
