"""Device plugin and kubelet without sockets: strict about what is advertised, and moved by `step` only."""

from collections.abc import Callable, Collection
from dataclasses import replace

from nodeagent.handover.cdi import named_devices
from nodeagent.handover.config import (
    NO_LEDGER,
    Allocation,
    DeviceKind,
    DeviceListStrategy,
    LedgerMark,
    Loaded,
    PluginConfig,
    PluginFiles,
    Problem,
    read_config,
    read_ledger,
    read_ledger_mark,
    read_loaded,
    write_ledger,
    write_loaded,
)
from nodeagent.handover.files import Identity, Unreadable, identity
from nodeagent.handover.seen_free import read_seen_free
from nodeagent.observed.kubelet import Allocatable, CheckpointEntry, Listed, NoAnswer


class PluginMemory:
    """Loads the config when `step` is called, not before."""

    def __init__(self, files: PluginFiles) -> None:
        self.files = files
        self.config = PluginConfig()
        self.problems: tuple[Problem, ...] = ()
        self.alive = True
        self.mute = False
        """It loads a config, and cannot write that it has."""
        self.boot = ""
        self.cdi = files.directory.parent / "no CDI"
        self.unready: set[str] = set()
        """GPUs whose MPS daemon is away: their slices are listed as unhealthy."""
        self.allocations: dict[str, Allocation] = {}
        self.doubted: frozenset[str] = frozenset()
        """Handed out, unknown to a kubelet that has lost its checkpoint, and not seen free since."""
        self.socket = (1, 1)
        """Of the kubelet that it is registered with."""
        self.admitting = False
        """That one has begun with a checkpoint that names every device."""
        self.lost = False
        """It began without the ledger that the agent has read."""
        self.recorded: Callable[[], Collection[str]] = tuple
        """Ids in the kubelet's checkpoint."""
        self.begun_with: frozenset[str] = frozenset()
        """Those with which this process or an earlier one began."""
        self._mark, self._losses = LedgerMark("book 0", 0), 0
        self._answered: Identity | None = None
        """The config file as it was when it was last confirmed."""
        self._write()

    def restart(self) -> None:
        """A new process has what is on disk; a record that is not there is begun again."""
        self.config = PluginConfig()
        found, mark, loaded = read_ledger(self.files), read_ledger_mark(self.files), read_loaded(self.files)
        begun = loaded.book if isinstance(loaded, Loaded) else ""
        self.lost = not mark.follows(read_seen_free(self.files).ledger) or begun not in ("", mark.book)
        self.allocations = {entry.id: entry for entry in found} if isinstance(found, tuple) else {}
        if self.lost:
            self.files.lost_ledger.touch()
            mark, config = NO_LEDGER, read_config(self.files)
            devices = config.devices if isinstance(config, PluginConfig) else ()
            self._losses += 1  # another time than that of any Allocate
            at = -float(self._losses)
            unknown = {d.id: self._unknown(d.id, d.resource, at) for d in devices}
            self.allocations = unknown | {i: replace(entry, at=at, again=True) for i, entry in self.allocations.items()}
        self._mark = mark if mark.book else LedgerMark(f"book after {self._mark.book}", 0)
        if not mark.book:
            self._write()
        self.doubted = self.unmarked()
        self.begun_with = frozenset(self.recorded()).union(loaded.named if isinstance(loaded, Loaded) else ())
        self._report("")  # nothing is in force yet
        self.step()

    def step(self) -> None:
        found = read_config(self.files)
        if not self.alive or not isinstance(found, PluginConfig):
            return
        self.config = found
        self.doubted &= self.unmarked().difference(self.recorded())
        if not self.mute:
            self._report(found.hash)

    def _report(self, in_force: str) -> None:
        earlier = read_loaded(self.files)
        # What was registered once stays so, over restarts too.
        resources = dict.fromkeys(earlier.registered, True) if isinstance(earlier, Loaded) else {}
        resources |= {device.resource: True for device in self.config.devices}
        loaded = Loaded(
            hash=in_force,
            boot_token="t",
            registered=resources,
            errors=self.problems,
            mps_root="/run/mps",
            book=self._mark.book,
            named=tuple(sorted(self.begun_with)),
        )
        # Each file is answered, also one with the content of the one before.
        if loaded != earlier or self._answered != identity(self.files.config):
            self._answered = identity(self.files.config)
            write_loaded(self.files, loaded)

    def listed(self) -> dict[str, dict[str, bool]]:
        """Whether each id of each resource is healthy."""
        names = named_devices(self.cdi)
        assert not isinstance(names, Unreadable)
        found: dict[str, dict[str, bool]] = {device.resource: {} for device in self.config.devices}
        for device in self.config.devices if self.alive else ():
            if device.id not in self.config.withdrawn:
                ready = device.kind is not DeviceKind.MPS or device.gpu not in self.unready
                real = device.kind is not DeviceKind.MIG or self.config.boot_id == self.boot
                resolves = self.config.device_list_strategy == DeviceListStrategy.ENVVAR or device.id in names
                kept_from_new = () if self.admitting and self.config.kubelet != self.socket else self.config.drained
                healthy = device.id not in self.doubted.union(self.config.unhealthy, kept_from_new) and resolves
                found[device.resource][device.id] = ready and real and healthy
        return found

    def advertised(self) -> dict[str, tuple[str, ...]]:
        """The healthy ones."""
        listed = self.listed()
        return {name: tuple(i for i, healthy in ids.items() if healthy) for name, ids in listed.items()}

    def unmarked(self) -> frozenset[str]:
        """What was handed out in this boot, and the agent has not seen free since."""
        marks = read_seen_free(self.files).allocations
        present = {i: entry for i, entry in self.allocations.items() if entry.boot_id in ("", self.boot)}
        return frozenset(i for i, entry in present.items() if marks.get(i) != entry.at)

    def allocate(self, device_id: str, resource: str, at: float) -> bool:
        if device_id not in self.advertised().get(resource, ()):
            return False
        lost = self.lost or self.files.lost_ledger.exists() or device_id in self.begun_with
        lost = lost and device_id not in self.allocations
        again = lost or device_id in self.unmarked()
        since = self.allocations[device_id].up_seconds if again and not lost else at
        since = 0.0 if lost else since
        self.allocations[device_id] = Allocation(
            id=device_id, resource=resource, at=at, boot_id=self.boot, up_seconds=since, again=again
        )
        self._write()
        return True

    def _write(self) -> None:
        self._mark = self._mark._replace(writes=self._mark.writes + 1)
        write_ledger(self.files, self.allocations.values(), self._mark)

    def _unknown(self, device_id: str, resource: str, at: float) -> Allocation:
        return Allocation(id=device_id, resource=resource, at=at, boot_id=self.boot, again=True)

    def starts(self, device_id: str, resource: str, pod_uid: str, at: float) -> bool:
        """The answer of PreStartContainer, for the pod that the kubelet's checkpoint has."""
        if device_id in self.config.occupied:
            return False
        if device_id not in self.allocations:
            self.allocations[device_id] = self._unknown(device_id, resource, at)
            self._write()
        entry, alone = self.allocations[device_id], read_seen_free(self.files).alone
        return not entry.again or alone.get(device_id) == (pod_uid, entry.at)


class KubeletMemory:
    """Devices as of the last `step`; pods as they were admitted."""

    def __init__(self, plugin: PluginMemory) -> None:
        self._plugin = plugin
        plugin.recorded = lambda: {i for entry in self.entries for i in entry.ids}
        self.devices: dict[str, tuple[str, ...]] = {}
        """Healthy ones: GetAllocatableResources shows no others, and no pod gets another."""
        self.capacity: dict[str, int] = {}
        self.held: dict[tuple[str, str], dict[str, dict[str, tuple[str, ...]]]] = {}
        self.known: set[tuple[str, str]] = set()
        self.entries: tuple[CheckpointEntry, ...] = ()
        self.age_seconds: float | None = 3600.0
        self.refuses = ""
        self.hides_devices = ""
        """Why GetAllocatableResources alone has no answer."""
        self.rivals: tuple[str, ...] = ()
        self.same_processes = True
        """The agent has the node's PID namespace."""

    def step(self) -> None:
        # A resource that was registered once stays for ever, with nothing in it.
        self.devices = {**dict.fromkeys(self.devices, ()), **self._plugin.advertised()}
        listed = {resource: len(ids) for resource, ids in self._plugin.listed().items()}
        self.capacity = {**dict.fromkeys(self.capacity, 0), **listed}

    def lose_checkpoint(self) -> None:
        """It starts again without one: its pods are listed without devices, permanently, and all devices are free."""
        self.held, self.entries = {key: {} for key in self.held}, ()
        self._plugin.doubted = self._plugin.unmarked()
        self.step()

    def given(self) -> set[str]:
        """Every device id that a listed pod holds."""
        return {i for pod in self.held.values() for found in pod.values() for ids in found.values() for i in ids}

    def listed(self) -> Listed | NoAnswer:
        if self.refuses:
            return NoAnswer(reason=self.refuses)
        return Listed(pods={key: self.held.get(key, {}) for key in sorted(self.known)})

    def allocatable(self) -> Allocatable | NoAnswer:
        why = self.refuses or self.hides_devices
        return NoAnswer(reason=why) if why else Allocatable(ids=dict(self.devices))

    def checkpoint(self) -> tuple[CheckpointEntry, ...]:
        return self.entries

    def rival_sockets(self) -> tuple[str, ...]:
        return self.rivals

    def shares_processes(self) -> bool:
        return self.same_processes

    def identity(self) -> Identity | None:
        return self._plugin.socket

    def seconds_since_start(self) -> float | None:
        return self.age_seconds
