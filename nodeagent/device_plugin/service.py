"""Runs the device plugin: reads the config file, serves sockets, writes the confirmation file.

    config.json -> device lists -> sockets -> kubelet
         |             ^            |
         |     mps.json and CDI     v
         |      file (both read)    |
         +-------------------> loaded.json   (in force: pushed, and no Allocate of a withdrawn id still running)

One loop that compares and acts, woken by whatever may have changed and every 30 s. A bad config changes nothing: the
last good one stays in force and `loaded.json` says why. Never reads GPUs and never decides what is advertised.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kube.change_log import ChangeLog
from kube.kubelet_api.paths import KubeletPaths
from kube.logs import fields
from nodeagent.device_plugin.device_lists import DeviceLists
from nodeagent.device_plugin.doubts import Doubts, pods_by_id
from nodeagent.device_plugin.ledger import Ledger
from nodeagent.device_plugin.mps_health import PATIENCE_SECONDS, MpsHealth
from nodeagent.device_plugin.plugin_files import ConfigReader, LoadedFile
from nodeagent.device_plugin.registration import Registrar, RegistrationTiming
from nodeagent.device_plugin.server import Endpoint, ResourceServer
from nodeagent.handover import cdi
from nodeagent.handover.config import DeviceKind, DeviceListStrategy, PluginConfig, PluginFiles, Problem
from nodeagent.handover.files import Identity, Unreadable
from nodeagent.handover.watch import DirectoryWatches

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTiming:
    poll_seconds: float = 10.0
    failed_seconds: float = 5.0
    probe_seconds: float = 1.0  # of a ledger that cannot be written
    supervisor_patience_seconds: float = PATIENCE_SECONDS
    agent_patience_seconds: float = 5.0  # the kubelet's own pauses between two tries grow from 1 to 27 s
    registration: RegistrationTiming = field(default_factory=RegistrationTiming)


class PluginService:
    def __init__(
        self,
        *,
        state_dir: Path,
        kubelet_dir: Path,
        mps_root: Path,
        timing: ServiceTiming | None = None,
        boot_id: str = "",
        cdi_dir: Path = cdi.DEFAULT_DIRECTORY,
        read_only_pipes: bool = True,
    ) -> None:
        self._files, self._mps_root, self._boot_id = PluginFiles(state_dir), mps_root, boot_id
        self._paths = KubeletPaths(kubelet_dir)
        self._timing = timing or ServiceTiming()
        self._wake, self._quit = threading.Event(), threading.Event()
        self._ledger = Ledger(self._files, boot_id=boot_id, named=pods_by_id(self._paths.checkpoint))
        self._reader = ConfigReader(self._files)
        self._loaded = LoadedFile(self._files, mps_root=mps_root, ledger=self._ledger)
        self._lists, self._read_only_pipes = DeviceLists(), read_only_pipes
        self._cdi_dir = cdi_dir
        self._doubts = Doubts(self._files, self._paths.checkpoint, self._ledger)
        self._mps_health = MpsHealth(self._files, patience_seconds=self._timing.supervisor_patience_seconds)
        self._registrar = Registrar(
            self._paths, self._lists, judge=self._judge, on_change=self._wake.set, timing=self._timing.registration
        )
        self._endpoints: dict[str, Endpoint] = {}
        self._daemon_problems: Mapping[str, str] = {}
        self._change_log = ChangeLog(log)
        self._watches = DirectoryWatches(self._something_changed)

    def stop(self) -> None:
        """From any thread but in no signal handler: make `run` return."""
        self._quit.set()
        self._wake.set()

    def sockets(self) -> list[Path]:
        """As they are now; those of ended registrations are not there any more. From any thread."""
        return [endpoint.path for endpoint in tuple(self._endpoints.values())]

    def run(self) -> None:
        self._files.directory.mkdir(parents=True, exist_ok=True)
        self._lists.retain(self._loaded.registered_before())
        self._report(settled=False)  # nothing is in force yet, whatever an earlier process reported
        self._registrar.start()
        try:
            while not self._quit.is_set():
                self._wake.wait(self._pass())
                self._wake.clear()
        finally:
            self._close()

    def _pass(self) -> float:
        """The seconds until another one is due."""
        try:
            self._watches.follow(self._files.directory, self._paths.plugin_dir, self._cdi_dir)
            if (config := self._reader.read()) is not None:
                self._mps_health.claim({device.gpu for device in config.devices if device.kind is DeviceKind.MPS})
            self._judge_daemons()
            self._ledger.probe()
            self._advertise(config or self._reader.config)
            if config is not None:
                self._accept(config)
            self._serve()
            self._report(settled=self._is_settled())
        except Exception:
            # A plugin that ends takes every device from the kubelet: worse than one that is late.
            log.exception("the pass failed")
            return self._timing.failed_seconds
        again_seconds = self._timing.probe_seconds if self._ledger.unwritable else self._timing.poll_seconds
        return min(again_seconds, self._mps_health.seconds_to_due())

    def _advertise(self, config: PluginConfig) -> None:
        # Slices of a GPU whose daemon was not checked yet start unhealthy: no pod may get one before it answers.
        self._lists.replace(
            config.in_boot(self._boot_id),
            unready=self._mps_health.unready(),
            named=self._named(config),
            closed=bool(self._ledger.unwritable),
        )

    def _accept(self, config: PluginConfig) -> None:
        """It is in force."""
        log.info(
            "%d devices, %d withdrawn",
            len(config.devices),
            len(config.withdrawn),
            extra=fields(generation=config.generation, config=config.hash),
        )
        self._reader.accept(config)
        # An earlier holder may outlive every config that names its device.
        self._ledger.forget({*config.withdrawn, *(device.id for device in config.devices)} | self._doubts.unmarked())

    def _named(self, config: PluginConfig) -> frozenset[str] | None:
        """The devices that the container runtime can resolve; read after the config, before which it was written."""
        if config.device_list_strategy is not DeviceListStrategy.CDI_CRI:
            return None
        names = cdi.named_devices(self._cdi_dir)
        return frozenset() if isinstance(names, Unreadable) else names

    def _judge(self, kubelet: Identity | None) -> None:
        """Before anything is registered with it, and again."""
        doubted = self._doubts.judge(kubelet)
        self._lists.set_kubelet(kubelet, self._doubts.recorded)
        self._lists.set_doubted(doubted)

    def _judge_daemons(self) -> None:
        self._mps_health.refresh()
        problems = self._mps_health.problems()
        for gpu in sorted(problems.keys() | self._daemon_problems.keys()):
            if self._change_log.is_new(problems.get(gpu, ""), gpu):
                log.error("MPS on %s: %s", gpu, problems[gpu])
        self._daemon_problems = problems

    def _serve(self) -> None:
        for resource in self._lists.resources():
            if resource not in self._endpoints:
                server = ResourceServer(
                    resource,
                    lists=self._lists,
                    ledger=self._ledger,
                    doubts=self._doubts,
                    mps_health=self._mps_health,
                    mps_root=self._mps_root,
                    read_only_pipes=self._read_only_pipes,
                    patience_seconds=self._timing.agent_patience_seconds,
                    on_change=self._something_changed,
                )
                self._endpoints[resource] = Endpoint(server, self._paths.plugin_dir)
                self._registrar.add(self._endpoints[resource])

    def _something_changed(self) -> None:
        self._wake.set()
        self._registrar.wake()

    def _is_settled(self) -> bool:
        """Every stream has sent the lists of this config, and no Allocate of an id that it withdraws still runs."""
        pushed = all(endpoint.server.pushed() for endpoint in self._endpoints.values())
        return self._reader.has_accepted and pushed and not self._lists.running() & set(self._reader.config.withdrawn)

    def _report(self, *, settled: bool) -> None:
        registered = self._registrar.registered()
        self._loaded.write(
            self._reader,
            settled=settled,
            registered={resource: registered.get(resource, False) for resource in self._lists.resources()},
            problems=self._problems(),
        )

    def _problems(self) -> tuple[Problem, ...]:
        ledger = self._ledger.unwritable or self._ledger.problem
        general = [text for text in (self._reader.problem, ledger, self._registrar.blind()) if text]
        return (
            *(Problem(message=text) for text in general),
            *(Problem(gpu=gpu, message=text) for gpu, text in sorted(self._daemon_problems.items())),
            *self._unnamed(),
            *self._doubted(),
            *(Problem(resource=name, message=text) for name, text in self._registrar.problems().items()),
        )

    def _unnamed(self) -> tuple[Problem, ...]:
        """GPUs with devices that the container runtime could not resolve."""
        config = self._reader.config
        named = self._named(config)
        if named is None:
            return ()
        gpus = sorted({device.gpu for device in config.healthy() if device.id not in named})
        where = f"{self._cdi_dir / cdi.FILE_NAME} has no entry for its devices, so no container could start with one"
        return tuple(Problem(gpu=gpu, message=f"{where}; the agent writes it") for gpu in gpus)

    def _doubted(self) -> tuple[Problem, ...]:
        """GPUs with devices that the kubelet takes for free, and that were not seen free."""
        gpus = sorted({device.gpu for device in self._lists.doubted()})
        why = "the kubelet has no record of who got some of its devices: no pod gets these until they were seen free"
        return tuple(Problem(gpu=gpu, message=why) for gpu in gpus)

    def _close(self) -> None:
        self._watches.follow()
        self._registrar.stop()  # forgets its registrations
        for endpoint in self._endpoints.values():
            endpoint.stop()
        self._loaded.withdraw()
        self._report(settled=False)
