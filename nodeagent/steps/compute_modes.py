"""Keeps a GPU in compute mode EXCLUSIVE_PROCESS while it is shared by MPS, and gives it its mode back afterwards.

In this mode only the MPS server can compute on the GPU, so a client that does not use MPS, and with it no limit, is
refused by the driver. The mode that was there before is on disk before the driver is called, so that a restart, or a
driver that forgot the mode, changes nothing about what is restored. Must never change the mode of a GPU that gpuplan
does not share, and never restores one that it did not set.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path

from pydantic import TypeAdapter

from kube.change_log import ChangeLog
from nodeagent.handover.files import read_json, wire, write_json
from nodeagent.hardware.driver import DriverError, GpuDriver, ObservedGpu

log = logging.getLogger(__name__)
EXCLUSIVE_PROCESS = 3  # NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


@wire
class _File:
    before: dict[str, int] = field(default_factory=dict)
    """By GPU UUID, the mode that it had before it was shared."""


_FILE = TypeAdapter(_File)


class ComputeModes:
    def __init__(self, driver: GpuDriver, path: Path, *, exclusive: bool) -> None:
        """With `exclusive` false nothing is set, and what was set before is restored."""
        self._driver, self._path, self._exclusive = driver, path, exclusive
        self._change_log = ChangeLog(log)

    def hold(self, gpus: Iterable[ObservedGpu], shared: Collection[str]) -> Mapping[str, str]:
        """Set and restore; by GPU, why its mode is not as it should be. Call it before the config is written."""
        found = read_json(self._path, _FILE)
        before = dict(found.before) if isinstance(found, _File) else {}
        problems = {}
        for gpu in gpus:
            if gpu.problem or gpu.compute_mode is None or gpu.mig_enabled:
                continue
            try:
                if self._exclusive and gpu.uuid in shared:
                    self._set(gpu, gpu.compute_mode, before)
                elif gpu.uuid in before:
                    self._restore(gpu, gpu.compute_mode, before)
            except (DriverError, OSError) as error:
                problems[gpu.uuid] = f"its compute mode could not be changed: {error}"
            self._change_log.warn(problems.get(gpu.uuid, ""), gpu.uuid)
        return problems

    def _set(self, gpu: ObservedGpu, mode: int, before: dict[str, int]) -> None:
        if mode == EXCLUSIVE_PROCESS:
            return
        if before.setdefault(gpu.uuid, mode) == mode:
            self._write(before)
        self._driver.set_compute_mode(gpu.uuid, EXCLUSIVE_PROCESS)
        log.info("GPU %d: compute mode EXCLUSIVE_PROCESS, as long as it is shared", gpu.index)

    def _restore(self, gpu: ObservedGpu, mode: int, before: dict[str, int]) -> None:
        if mode == EXCLUSIVE_PROCESS:
            self._driver.set_compute_mode(gpu.uuid, before[gpu.uuid])
            log.info("GPU %d: compute mode %d, as before it was shared", gpu.index, before[gpu.uuid])
        del before[gpu.uuid]
        self._write(before)

    def _write(self, before: dict[str, int]) -> None:
        write_json(self._path, _FILE, _File(before=before))
