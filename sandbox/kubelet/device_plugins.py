"""Assembles the device side of one kubelet: table, endpoints, checkpoint, Allocate and Registration.

Takes Register calls and device lists of plugins, and the pod book; provides the parts that admission, starts, pod-
resources and the status tick use. It begins with what an earlier kubelet left in the checkpoint; without a readable one
all devices count as free.
"""

import logging
import time
from collections.abc import Callable
from random import Random

from kube.kubelet_api.paths import KubeletPaths
from sandbox.kubelet.allocation import Allocator, Checkpoint, CheckpointFile
from sandbox.kubelet.devices import DeviceTable
from sandbox.kubelet.lifecycle import PodBook
from sandbox.kubelet.registration import Endpoints, Registration
from sandbox.kubelet.settings import Switches, Timings

log = logging.getLogger(__name__)


class DevicePlugins:
    def __init__(
        self,
        *,
        paths: KubeletPaths,
        book: PodBook,
        timings: Timings,
        switches: Switches,
        random: Random,
        changed: Callable[[str], None],
    ) -> None:
        self._book = book
        self._switches = switches
        self._changed = changed
        self._checkpoint = CheckpointFile(paths.checkpoint)
        self.table = DeviceTable(grace_seconds=timings.endpoint_grace_seconds, random=random)
        self.endpoints: Endpoints = {}
        self._restore(time.monotonic())
        self.allocator = Allocator(
            table=self.table,
            endpoints=self.endpoints,
            checkpoint=self._checkpoint,
            free_inactive=self.free_inactive,
        )
        self.registration = Registration(
            plugin_dir=paths.plugin_dir,
            table=self.table,
            endpoints=self.endpoints,
            dial_timeout_seconds=timings.dial_timeout_seconds,
            changed=self._device_update,
        )

    def free_inactive(self) -> None:
        """Free what pods hold that are not active, once all pods are known. Only List and admission call this."""
        if self._book.sources_ready:
            self.table.free_inactive(self._keeping_uids)

    def _keeping_uids(self) -> frozenset[str]:
        last = frozenset() if self._switches.active_list else self.allocator.last_admitted
        return self._book.active_uids() | last

    def close(self) -> None:
        self._checkpoint.close()
        self.registration.close()

    def _restore(self, now: float) -> None:
        checkpoint = self._checkpoint.load()
        if not isinstance(checkpoint, Checkpoint):
            log.info("continue after failing to read checkpoint file: %s", checkpoint.message)
            return
        self.table.restore(checkpoint.holdings, checkpoint.registered, now)
        for resource in checkpoint.registered:
            self.endpoints[resource] = None

    def _device_update(self, resource: str) -> None:
        self.allocator.save()
        self._changed(resource)
