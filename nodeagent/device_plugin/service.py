"""Runs the device plugin: reads the config file, serves sockets and MPS daemons, writes the confirmation file.

    config.json -> device lists -> sockets -> kubelet
         |             ^            |
         |        MPS daemons,      v
         |       CDI file (read)    |
         +-------------------> loaded.json   (in force: pushed, and no Allocate of a withdrawn id still running)

One loop that compares and acts, woken by whatever may have changed and every 30 s. A bad config changes nothing: the
last good one stays in force and `loaded.json` says why. Never reads GPUs and never decides what is advertised.
"""

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kube.kubelet_api.paths import KubeletPaths
from nodeagent.device_plugin.device_lists import DeviceLists
from nodeagent.device_plugin.ledger import Ledger
from nodeagent.device_plugin.mps_control import MpsControl
from nodeagent.device_plugin.mps_daemons import DaemonTiming, MpsDaemons
from nodeagent.device_plugin.registration import Registrar, RegistrationTiming
from nodeagent.device_plugin.server import Endpoint, ResourceServer
from nodeagent.handover import cdi
from nodeagent.handover.config import (
    DeviceKind,
    DeviceListStrategy,
    Loaded,
    PluginConfig,
    PluginFiles,
    Problem,
    read_config,
    read_loaded,
    write_loaded,
)
from nodeagent.handover.files import Identity, Unreadable, identity
from nodeagent.handover.watch import DirectoryWatch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTiming:
    poll_seconds: float = 10.0
    failed_seconds: float = 5.0
    daemons: DaemonTiming = field(default_factory=DaemonTiming)
    registration: RegistrationTiming = field(default_factory=RegistrationTiming)


class PluginService:
    def __init__(
        self,
        *,
        state_dir: Path,
        kubelet_dir: Path,
        mps_root: Path,
        environment: Mapping[str, str],
        timing: ServiceTiming | None = None,
        boot_id: str = "",
        cdi_dir: Path = cdi.DEFAULT_DIRECTORY,
    ) -> None:
        self._files = PluginFiles(state_dir)
        self._paths = KubeletPaths(kubelet_dir)
        self._mps_root = mps_root
        self._timing = timing or ServiceTiming()
        self._boot_id = boot_id
        self._wake, self._quit = threading.Event(), threading.Event()
        self._boot_token = str(uuid.uuid4())
        self._lists = DeviceLists()
        self._named_devices = cdi.NamedDevices(cdi_dir)
        self._ledger = Ledger(self._files)
        self._daemons = MpsDaemons(
            mps_root,
            control=lambda directory: MpsControl(directory / "pipe", environment),
            timing=self._timing.daemons,
            on_change=self._wake.set,
        )
        self._registrar = Registrar(
            self._paths, self._lists, on_change=self._wake.set, timing=self._timing.registration
        )
        self._endpoints: dict[str, Endpoint] = {}
        self._config = PluginConfig()  # in force or on its way
        self._in_force = ""  # hash of the config that loaded.json confirms
        self._file: Identity | None = None  # of config.json, when the present lists were read from it …
        self._confirmed_file: Identity | None = None  # … and when loaded.json last answered one
        self._loaded_once = False
        self._config_problem = ""
        self._daemon_problems: Mapping[str, str] = {}
        self._reported: Loaded | None = None
        self._watches = (
            DirectoryWatch(self._files.directory, self._wake.set),
            DirectoryWatch(self._paths.plugin_dir, self._registrar.wake),
            DirectoryWatch(cdi_dir, self._wake.set),
        )

    def stop(self) -> None:
        """Make `run` return; safe in a signal handler."""
        self._quit.set()
        self._wake.set()

    def run(self) -> None:
        self._files.directory.mkdir(parents=True, exist_ok=True)
        earlier = read_loaded(self._files)
        if isinstance(earlier, Loaded):
            self._lists.retain(tuple(earlier.registered))
        self._report()  # nothing is in force yet, whatever an earlier process reported
        self._registrar.start()
        try:
            while not self._quit.is_set():
                pause_seconds = self._pass()
                self._wake.wait(pause_seconds)
                self._wake.clear()
        finally:
            self._close()

    def _pass(self) -> float:
        """The seconds until another one is due."""
        try:
            for watch in self._watches:
                watch.ensure()
            self._load_config()
            self._lists.set_named(self._named(self._config))
            self._tend_daemons()
            self._serve()
            self._report()
        except Exception:
            # A plugin that ends takes every device from the kubelet: worse than one that is late.
            log.exception("the pass failed")
            return self._timing.failed_seconds
        return min(self._timing.poll_seconds, self._daemons.seconds_to_due())

    def _load_config(self) -> None:
        file = identity(self._files.config)  # before reading: a newer text under an older identity is read again
        found = read_config(self._files)
        if isinstance(found, PluginConfig):
            self._config_problem = ""
            self._file = file
            if not self._loaded_once or found != self._config:
                self._advertise(found)
        elif isinstance(found, Unreadable):
            self._keep_last(str(found))
        elif self._loaded_once:
            self._keep_last(f"{self._files.config.name} is gone")

    def _keep_last(self, problem: str) -> None:
        if problem != self._config_problem:
            log.error("config not loaded, the last good one stays in force: %s", problem)
        self._config_problem = problem

    def _advertise(self, config: PluginConfig) -> None:
        log.info("config %s: %d devices, %d withdrawn", config.hash, len(config.devices), len(config.withdrawn))
        self._daemons.claim({device.gpu for device in config.devices if device.kind is DeviceKind.MPS})
        # Slices of a GPU whose daemon was not checked yet start unhealthy: no pod may get one before it answers.
        self._lists.replace(config.in_boot(self._boot_id), unready=self._daemons.unready(), named=self._named(config))
        self._config, self._loaded_once = config, True
        self._ledger.forget({*config.withdrawn, *(device.id for device in config.devices)})

    def _named(self, config: PluginConfig) -> frozenset[str] | None:
        """The devices that the container runtime can resolve; read after the config, before which it was written."""
        if config.device_list_strategy is not DeviceListStrategy.CDI_CRI:
            return None
        names = self._named_devices.names()
        return frozenset() if isinstance(names, Unreadable) else names

    def _tend_daemons(self) -> None:
        if self._loaded_once:  # before, a daemon that a GPU needs would be ended
            self._daemons.tend()
        problems = self._daemons.problems()
        for gpu in sorted(problems.keys() - self._daemon_problems.keys()):
            log.error("MPS on %s: %s", gpu, problems[gpu])
        self._daemon_problems = problems
        self._lists.set_unready(self._daemons.unready())

    def _serve(self) -> None:
        for resource in self._lists.resources():
            if resource not in self._endpoints:
                server = ResourceServer(
                    resource,
                    lists=self._lists,
                    ledger=self._ledger,
                    daemons=self._daemons,
                    mps_root=self._mps_root,
                    on_change=self._something_changed,
                )
                self._endpoints[resource] = Endpoint(server, self._paths.plugin_dir)
                self._registrar.add(self._endpoints[resource])

    def _something_changed(self) -> None:
        self._wake.set()
        self._registrar.wake()

    def _report(self) -> None:
        pushed = all(endpoint.server.pushed() for endpoint in self._endpoints.values())
        settled = self._loaded_once and pushed and not self._lists.running() & set(self._config.withdrawn)
        if settled:
            self._in_force = self._config.hash
        # Every new config.json is answered by a new loaded.json, also one with the old text: the agent compares times.
        answering = settled and self._file != self._confirmed_file
        registered = self._registrar.registered()
        loaded = Loaded(
            hash=self._in_force,
            loaded_at=self._reported.loaded_at if self._reported else 0.0,
            boot_token=self._boot_token,
            registered={resource: registered.get(resource, False) for resource in self._lists.resources()},
            errors=self._problems(),
            knows_unhealthy=True,
            device_list_strategies=tuple(DeviceListStrategy),
            mps_root=str(self._mps_root),
        )
        if loaded == self._reported and not answering:
            return
        if answering or self._reported is None or loaded.hash != self._reported.hash:
            loaded = replace(loaded, loaded_at=time.time())
        try:
            write_loaded(self._files, loaded)
        except OSError as error:
            log.error("%s was not written: %s", self._files.loaded, error)
            return  # the next pass tries again
        self._reported = loaded
        if answering:
            self._confirmed_file = self._file

    def _problems(self) -> tuple[Problem, ...]:
        general = [text for text in (self._config_problem, self._ledger.problem, self._registrar.blind()) if text]
        return (
            *(Problem(message=text) for text in general),
            *(Problem(gpu=gpu, message=text) for gpu, text in sorted(self._daemon_problems.items())),
            *self._unnamed(),
            *(Problem(resource=name, message=text) for name, text in self._registrar.problems().items()),
        )

    def _unnamed(self) -> tuple[Problem, ...]:
        """GPUs with devices that the container runtime could not resolve."""
        named = self._named(self._config)
        if named is None:
            return ()
        gpus = sorted({device.gpu for device in self._config.healthy() if device.id not in named})
        where = f"{self._named_devices.path} has no entry for its devices, so no container could start with one"
        return tuple(Problem(gpu=gpu, message=f"{where}; the agent writes it") for gpu in gpus)

    def _close(self) -> None:
        """Daemons stay: containers use them."""
        for watch in self._watches:
            watch.stop()
        self._registrar.stop()  # forgets its registrations
        for endpoint in self._endpoints.values():
            endpoint.stop()
        self._loaded_once, self._in_force = False, ""
        self._report()
