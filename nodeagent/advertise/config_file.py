"""Renders the device plugin's config from the changes of all GPUs, and owns the file that the plugin reads it from.

Takes the changes of a pass and writes `config.json` atomically, and only when it differs from the file on disk. Must
never replace a config that withdraws something before the plugin has loaded it: a config that is skipped or loaded late
could bring an id back after it was confirmed gone.
"""

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from kube.change_log import ChangeLog
from kube.logs import fields
from nodeagent.advertise.faults import Faults
from nodeagent.handover.config import Device, Loaded, PluginConfig, PluginFiles, read_config, read_loaded, write_config
from nodeagent.handover.files import Identity, Unreadable
from nodeagent.handover.mps_state import MpsState, read_mps
from nodeagent.hardware.driver import Health, ObservedGpu
from nodeagent.steps.changes import GpuChange

log = logging.getLogger(__name__)


def render(changes: Iterable[GpuChange], before: PluginConfig, faults: Faults, *, boot_id: str = "") -> PluginConfig:
    """Every partition that exists and may be advertised, including the withdrawn ones.

    A GPU that does not even report its UUID may be any of those not observed: what `before` has of these stays.
    Devices of broken GPUs are listed as Unhealthy, and so are MIG devices that were not observed in this boot. What was
    listed so stays while its GPU is not well, or is recovering.
    """
    listed, before = before.unhealthy, before.in_boot(boot_id)
    found = tuple(changes)
    observed = {change.gpu.uuid for change in found}
    kept = [device for device in before.devices if device.gpu not in observed] if "" in observed else []
    advertised = [partition for change in found for partition in change.advertise]
    withdrawn = [partition for change in found for partition in change.withdraw]
    devices = {partition.id: partition.device for partition in [*withdrawn, *advertised]}
    refused = {p.id for p in withdrawn} - {p.id for p in advertised}
    refused |= {device.id for device in kept} & set(before.withdrawn)
    unhealthy = {i for change in found for i in _unhealthy(change.gpu, devices.values(), before, faults)}
    # Instances of the last boot are doubted only until they are observed.
    unhealthy -= {i for i in unhealthy if i not in listed and devices[i].gpu in faults.recovering}
    unhealthy |= {device.id for device in kept if "" in faults.broken or device.id in before.unhealthy}
    return PluginConfig.of([*devices.values(), *kept], refused, unhealthy, boot_id=boot_id)


def _unhealthy(gpu: ObservedGpu, devices: Iterable[Device], before: PluginConfig, faults: Faults) -> Iterable[str]:
    """Only a GPU that is well for a while becomes healthy again: one that cannot be read stays as it was listed."""
    mine = [device.id for device in devices if device.gpu == gpu.uuid]
    if gpu.uuid in faults.broken:
        return mine
    well = gpu.health is Health.OK and gpu.uuid not in faults.recovering
    return [] if well else [i for i in mine if i in before.unhealthy]


def withdraw_all(config: PluginConfig) -> PluginConfig:
    """The same devices with every one withdrawn: nothing is advertised, and nothing forgotten."""
    return replace(config, withdrawn=tuple(sorted({device.id for device in config.devices})))


def without(config: PluginConfig, ids: Collection[str]) -> PluginConfig:
    """Without these devices: their record ends, and with the last MPS slice of a GPU its daemon."""
    return replace(
        config,
        devices=tuple(device for device in config.devices if device.id not in ids),
        withdrawn=tuple(i for i in config.withdrawn if i not in ids),
        unhealthy=tuple(i for i in config.unhealthy if i not in ids),
        drained=tuple(i for i in config.drained if i not in ids),
    )


def more_unhealthy(config: PluginConfig, ids: Iterable[str]) -> PluginConfig:
    """The same devices, those of `ids` that are among them listed as Unhealthy too."""
    listed = {device.id for device in config.devices}
    return replace(config, unhealthy=tuple(sorted(listed.intersection(ids).union(config.unhealthy))))


def occupy(config: PluginConfig, ids: Iterable[str]) -> PluginConfig:
    """The same devices; no pod gets one of `ids`, and no container starts with it."""
    listed = {device.id for device in config.devices}
    return replace(more_unhealthy(config, ids), occupied=tuple(sorted(listed.intersection(ids))))


def drain(config: PluginConfig, ids: Iterable[str], kubelet: Identity | None) -> PluginConfig:
    """The same devices; no new pod gets one of `ids`, and who holds one keeps it.

    `kubelet`: the one whose pods are known to be admitted.
    """
    found = tuple(sorted({device.id for device in config.devices}.intersection(ids)))
    return replace(config, drained=found, kubelet=kubelet if found else None)


def counts(config: PluginConfig) -> dict[str, int]:
    """Healthy devices per resource, as the Node's allocatable counts them; zero where there is none."""
    return _counted(config, config.healthy())


def capacities(config: PluginConfig) -> dict[str, int]:
    """Listed devices per resource, the unhealthy ones included, as the Node's capacity counts them."""
    return _counted(config, config.advertised())


def _counted(config: PluginConfig, devices: Iterable[Device]) -> dict[str, int]:
    found = Counter(device.resource for device in devices)
    return {resource: found[resource] for resource in sorted({device.resource for device in config.devices})}


class ConfigFile:
    """Owns `config.json`; the plugin owns `loaded.json`."""

    def __init__(self, files: PluginFiles, *, boot_id: str = "") -> None:
        self._files, self._change_log = files, ChangeLog(log)
        self.boot_id = boot_id
        found = read_config(files)
        if isinstance(found, Unreadable):
            log.warning("%s is not used: MPS slices are known again only while a pod holds them", found)
        before = found if isinstance(found, PluginConfig) else PluginConfig()
        self.config = replace(before, occupied=before.in_boot(boot_id).occupied)
        self._exists = isinstance(found, PluginConfig)
        self._answered_ns = 0

    @property
    def known(self) -> bool:
        """What the plugin was last sent is known: a config was on disk, or has been written since."""
        return self._exists

    def loaded(self) -> Loaded | None:
        """What the plugin reports as in force."""
        # Before reading: an answer that is replaced meanwhile must not lend its later time to the one that was read.
        self._answered_ns = _changed_ns(self._files.loaded) or 0
        found = read_loaded(self._files)
        self._change_log.warn(f"device plugin: {found}" if isinstance(found, Unreadable) else "")
        return found if isinstance(found, Loaded) else None

    def mps(self) -> MpsState | None:
        """What the supervisor of MPS daemons reports."""
        found = read_mps(self._files)
        self._change_log.warn(f"MPS: {found}" if isinstance(found, Unreadable) else "", "mps")
        return found if isinstance(found, MpsState) else None

    def in_force(self, loaded: Loaded | None) -> bool:
        """The plugin loaded exactly this config, after it was written. `loaded` is what `loaded()` returned last."""
        if not self._exists or loaded is None or loaded.hash != self.config.hash:
            return False
        written_ns = _changed_ns(self._files.config)
        return written_ns is not None and self._answered_ns >= written_ns

    def write(self, config: PluginConfig, *, in_force: bool, overdue: bool, again: bool = False) -> bool:
        """Write it if it differs and may be written now, or `again`; True if it is on disk."""
        if self._exists and config == self.config and self._on_disk() and not again:
            return True
        before = {device.id for device in self.config.advertised()}
        takes_away = before - {device.id for device in config.advertised()}
        if self._exists and takes_away and not (in_force or overdue):
            if not self._on_disk():
                write_config(self._files, self.config)  # what is gone can never be in force
            return False
        write_config(self._files, config)
        self.config, self._exists = config, True
        listed = ", ".join(f"{count} {resource}" for resource, count in counts(config).items()) or "nothing"
        if self._change_log.is_new(listed, "counts"):
            log.info("advertised to the kubelet from now on: %s", listed, extra=fields(config=config.hash))
        return True

    def _on_disk(self) -> bool:
        """The file exists and is not from the future: after a clock was set back no answer would ever be younger."""
        written_ns = _changed_ns(self._files.config)
        return written_ns is not None and written_ns <= time.time_ns()


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
