"""Runs the MPS control daemons of a node: reads which GPUs have slices, keeps their daemons, reports what it finds.

    config.json (the agent's) -> daemons -> mps.json -> device plugin, agent

One loop that compares and acts, woken by a new config and by each check that ended. A bad config changes nothing. It
reads no API and no GPU, and nothing of the agent or the device plugin ends it; when it ends itself the daemons stay,
and the next one adopts them. Never ends a daemon because it cannot read what is desired.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from kube.change_log import ChangeLog
from nodeagent.handover.config import DeviceKind, PluginConfig, PluginFiles, read_config
from nodeagent.handover.mps_state import MpsState, write_mps
from nodeagent.handover.watch import DirectoryWatches
from nodeagent.mps import logs
from nodeagent.mps.control import Defaults, MpsControl
from nodeagent.mps.daemons import DaemonTiming, MpsDaemons

log = logging.getLogger(__name__)
POLL_SECONDS = 10.0
FAILED_SECONDS = 5.0
WHOLE_GPU = 100  # per cent


class MpsSupervisor:
    """`run` until `stop`."""

    def __init__(
        self,
        *,
        state_dir: Path,
        mps_root: Path,
        environment: Mapping[str, str],
        many_users: bool = True,
        timing: DaemonTiming | None = None,
    ) -> None:
        self._files, self._root, self._logs = PluginFiles(state_dir), mps_root, state_dir / "mps-logs"
        self._wake, self._quit = threading.Event(), threading.Event()
        self._daemons = MpsDaemons(
            mps_root,
            control=lambda directory: MpsControl(
                directory / "pipe", environment, logs=self._logs / directory.name, many_users=many_users
            ),
            timing=timing or DaemonTiming(),
            on_change=self._wake.set,
        )
        self._watches = DirectoryWatches(self._wake.set)
        self._claimed: Mapping[str, Defaults] | None = None
        self._written: MpsState | None = None
        self._change_log = ChangeLog(log)

    def stop(self) -> None:
        """From any thread but in no signal handler: make `run` return. Daemons stay: containers use them."""
        self._quit.set()
        self._wake.set()

    def run(self) -> None:
        try:
            while not self._quit.is_set():
                self._wake.wait(self._pass())
                self._wake.clear()
        finally:
            self._watches.follow()

    def _pass(self) -> float:
        """The seconds until another one is due."""
        try:
            self._watches.follow(self._files.directory)
            self._read()
            if self._claimed is not None:  # before, a daemon that a GPU needs would be ended
                self._daemons.tend()
                self._report(self._daemons.state())
            logs.bound([*self._logs.glob("*"), *self._root.glob("*/log")])
        except Exception:
            # Without this process no daemon is started again: worse than one that is late.
            log.exception("the pass failed")
            return FAILED_SECONDS
        return min(POLL_SECONDS, self._daemons.seconds_to_due())

    def _read(self) -> None:
        config = read_config(self._files)
        if isinstance(config, PluginConfig):
            self._change_log.warn("", "config")
            if (claimed := shares(config)) != self._claimed:
                self._daemons.claim(claimed)
                self._claimed = claimed
        elif config is not None:
            self._change_log.warn(f"the daemons stay as they are: {config}", "config")

    def _report(self, state: MpsState) -> None:
        for daemon in state.daemons:
            self._change_log.warn(f"MPS on {daemon.gpu}: {daemon.problem}" if daemon.problem else "", daemon.gpu)
            alarm = f"MPS on {daemon.gpu}: {daemon.alarm}" if daemon.alarm else ""
            self._change_log.warn(alarm, (daemon.gpu, daemon.alarms))
        # A client can cause one alarm after the other, for as long as it runs.
        alarms = ((daemon.gpu, daemon.alarms) for daemon in state.daemons)
        self._change_log.retain({"config", *alarms, *(daemon.gpu for daemon in state.daemons)})
        if state != self._written:
            write_mps(self._files, state)
            self._written = state


def shares(config: PluginConfig) -> dict[str, Defaults]:
    """By GPU with slices: what the largest share of it has of memory and of threads.

    Of mergeable devices that is their sum, since a container may hold all of them.
    """
    slices = [device for device in config.devices if device.kind is DeviceKind.MPS]
    found: dict[str, Defaults] = {}
    for gpu in sorted({device.gpu for device in slices}):
        mine = [device for device in slices if device.gpu == gpu]
        memory = [device.memory_mib for device in mine if not device.mergeable]
        threads = [device.thread_percent or WHOLE_GPU for device in mine if not device.mergeable]
        memory.append(sum(device.memory_mib for device in mine if device.mergeable))
        threads.append(sum(device.thread_percent or WHOLE_GPU for device in mine if device.mergeable))
        found[gpu] = Defaults(memory_mib=max(memory), thread_percent=min(max(threads), WHOLE_GPU))
    return found
