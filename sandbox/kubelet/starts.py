"""Starts one container, after its plugins' PreStartContainer.

Takes an admitted pod and a container's name, and starts the container with environment, mounts and devices merged from
its plugins' answers. No Allocate is made here: a restart uses the answers from admission. PreStartContainer may take 30
s, so it runs in a thread of its own where a plugin requires it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from sandbox.cdi import CdiError
from sandbox.kubelet.containers import ContainerRecord, ContainerRequest
from sandbox.kubelet.devices import DeviceTable, Holding
from sandbox.kubelet.injection import merge
from sandbox.kubelet.lifecycle import PodRun
from sandbox.kubelet.pods import Pod, Role
from sandbox.kubelet.registration import Endpoints, PluginClient
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Timings


@dataclass(frozen=True, slots=True)
class StartFailure:
    """The container's waiting reason and message; it is tried again."""

    reason: str
    message: str


@dataclass(eq=False, kw_only=True)
class ContainerStarts:
    table: DeviceTable
    endpoints: Endpoints
    runtime: ScriptedRuntime
    timings: Timings
    random: Random
    cdi_dirs: Sequence[Path] = ()

    def prepare(self, pod: Pod, name: str, done: Callable[[StartFailure | None], None]) -> None:
        """Call PreStartContainer where it is wanted; `done` is called once, perhaps from another thread."""
        calls: list[tuple[PluginClient, frozenset[str]]] = []
        for resource, count in pod.container(name).devices:
            if not count or not self.table.knows(resource):
                continue
            if resource not in self.endpoints:
                text = f"endpoint not found in cache for a registered resource: {resource}"
                done(StartFailure("CreateContainerConfigError", text))
                return
            client = self.endpoints.get(resource)
            holding = self._holdings(pod, name).get(resource)
            if client is not None and client.options.pre_start_required and holding is not None:
                calls.append((client, holding.device_ids))
        if not calls:
            done(None)
            return
        threading.Thread(target=self._pre_start, args=(calls, done), name="pre-start", daemon=True).start()

    def _pre_start(
        self, calls: list[tuple[PluginClient, frozenset[str]]], done: Callable[[StartFailure | None], None]
    ) -> None:
        for client, device_ids in calls:
            refusal = client.pre_start(sorted(device_ids), self.timings.prestart_timeout_seconds)
            if refusal is not None:
                done(StartFailure("CreateContainerConfigError", refusal.message))
                return
        done(None)

    def start(self, pod: Pod, name: str) -> ContainerRecord | StartFailure:
        container = pod.container(name)
        holdings = self._holdings(pod, name)
        script, timings = pod.script, self.timings
        given = merge({resource: h.answer for resource, h in holdings.items()}, container.env, self.random)
        try:
            options = given.resolved(self.cdi_dirs)
        except CdiError as error:
            return StartFailure("CreateContainerError", str(error))
        return self.runtime.start(
            ContainerRequest(
                pod_uid=pod.uid,
                namespace=pod.namespace,
                pod=pod.name,
                container=name,
                options=options,
                device_ids={resource: tuple(sorted(h.device_ids)) for resource, h in sorted(holdings.items())},
                run_seconds=container.run_seconds,
                exit_code=script.exit_code if container.role is Role.APP else 0,
                start_seconds=timings.start_seconds if script.start_seconds is None else script.start_seconds,
                stop_seconds=timings.stop_seconds if script.stop_seconds is None else script.stop_seconds,
                unkillable_seconds=script.unkillable_seconds,
            )
        )

    def health(self, run: PodRun) -> dict[tuple[str, str], dict[str, bool | None]]:
        """Of every device that a container of the pod got, by container and resource; None: not listed any more."""
        devices = {key: set(ids) for key, ids in run.device_health.items()}
        for name in run.containers:
            for resource, holding in self._holdings(run.pod, name).items():
                devices.setdefault((name, resource), set()).update(holding.device_ids)
        return {
            (name, resource): {device_id: self.table.health(resource, device_id) for device_id in sorted(ids)}
            for (name, resource), ids in sorted(devices.items())
        }

    def _holdings(self, pod: Pod, name: str) -> dict[str, Holding]:
        return self.table.holdings_of(pod.uid, name)
