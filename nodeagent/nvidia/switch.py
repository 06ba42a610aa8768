"""Takes NVIDIA's device plugin from one config to another, and confirms from files, kubelet and Node that it is there.

Takes the config that the plan has and one moment of the node, returns how far it is: a stage for the status, and the
key that the controller may label the node with. That key is named only while no container holds a device and the Node
has had the taint for some seconds, for the plugin cannot withdraw a single device. A link that was switched proves
nothing: the socket must have been made after it, and with replicas the MPS daemon started after it. Where it was not,
the lost signal is sent, to the daemon only while nothing is held. Must never request a config that this node's
pod does not see yet: config-manager would end and fall back to the default.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crds.v1alpha1.names import Reason
from nodeagent.advertise.advertiser import NvidiaPlugin
from nodeagent.advertise.confirm import Stage
from nodeagent.advertise.taint import BOUND_SECONDS, NodeGuard
from nodeagent.durations import Durations
from nodeagent.nvidia.advertised_by_nvidia import Registered
from nodeagent.nvidia.node_files import NodeFiles
from nodeagent.nvidia.record import SwitchRecord
from nodeagent.nvidia.signals import MPS_DAEMON, PLUGIN, SendSighup, Signals
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pods import NodePod, ObservedPods
from partitioning.nvidia_plugin import CONFIG_LABEL, NodeConfig

PROJECTED_SECONDS, LOADED_SECONDS, ALLOCATABLE_SECONDS = 180.0, 60.0, 30.0
"""The kubelet projects a new key within two minutes; then the programs read it; then three of its status ticks."""
TAINT_SECONDS = 3.0
"""Pods that the scheduler was about to bind are bound, and in our watch, after that."""
RETRY_SECONDS = 300.0
SIGNAL_SECONDS = 3.0
"""A signal that was not lost has had its effect by then. The link of the daemon's pod names the key for 10 s at first:
its config-manager ends without a process to signal, and goes back to the default each time it starts."""
DAEMON_SECONDS = 600.0
"""Until that link names the key again: the kubelet restarts config-manager after up to five minutes."""
DONE = Stage(schedulable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What one pass knows of a node that NVIDIA's device plugin serves."""

    node: ObservedNode
    pods: ObservedPods
    held: str
    """What is, or may be, in use; empty: nothing."""
    held_before: str
    """Which container holds a device that the config of the plan does not have."""
    registered: Registered
    """Of the config that the plan has."""
    answered: bool
    """The kubelet did, in this pass; else `registered` is what it showed last."""


class Switch:
    """Call `advance` once a pass."""

    def __init__(
        self, files: NodeFiles, guard: NodeGuard, record: Path, *, sighup: SendSighup, clock: Callable[[], float]
    ) -> None:
        self._files, self._guard, self._record = files, guard, SwitchRecord(record)
        self._durations, self._signals = Durations(clock), Signals(sighup, clock)

    def advance(self, config: NodeConfig, now: Inputs) -> NvidiaPlugin:
        key, plugin = now.node.plugin_config, now.pods.device_plugin
        if key != config.key:
            self._record.forget(config.key)
            self._signals.forget()
        if plugin is None:
            progress = NvidiaPlugin(stage=self._no_plugin(now), key=key)
        elif key != config.key:
            progress = self._prepare(config, now, plugin)
        else:
            progress = NvidiaPlugin(stage=self._confirm(config, now, plugin), key=key)
            if progress.stage.failed and progress.stage.reason is not Reason.WAITING_FOR_RELEASE:
                self._guard.lift(now.node)
        self._durations.end_pass()
        return progress

    def _prepare(self, config: NodeConfig, now: Inputs, plugin: NodePod) -> NvidiaPlugin:
        key = now.node.plugin_config
        if config.shared and plugin.mig_strategy == "mixed":
            self._guard.lift(now.node)
            message = (
                f"pod {plugin.title} has MIG_STRATEGY=mixed in its environment, with which NVIDIA's device plugin "
                "refuses MPS and ends: set the GPU Operator's mig.strategy to none or single, or use "
                "devicePlugin.backend gpuplan"
            )
            return NvidiaPlugin(stage=Stage(reason=Reason.NOT_SUPPORTED, message=message, failed=True), key=key)
        if self._files.digest(plugin.uid, config.key) != config.digest:
            self._guard.lift(now.node)
            unseen = self._late(
                "projected",
                PROJECTED_SECONDS,
                f"pod {plugin.title} does not see the key {config.key} of its ConfigMap yet: check that "
                "devicePlugin.config of gpuplan's chart names the ConfigMap that this plugin mounts, that this is "
                "neither immutable nor full (1 MiB), and the controller's log",
            )
            return NvidiaPlugin(stage=unseen, key=key, projections=self._files.projections(plugin.uid))
        stage = self._request(config, now)
        return NvidiaPlugin(stage=stage, key=config.key if stage is ASKED else key)

    def _request(self, config: NodeConfig, now: Inputs) -> Stage:
        """ASKED where the node may be labelled with the key."""
        if now.held:
            self._guard.lift(now.node)
            message = f"NVIDIA's device plugin changes all GPUs of a node at once, and {now.held}"
            return Stage(reason=Reason.WAITING_FOR_RELEASE, message=message)
        # A controller that is away must not close the node to all pods: now and then the taint is tried again.
        if self._guard.closed_seconds % RETRY_SECONDS >= LOADED_SECONDS:
            self._guard.lift(now.node, for_now=True)
            message = f"the controller has not labelled the node {CONFIG_LABEL}={config.key}: check that it runs"
            return Stage(reason=Reason.ADVERTISE_TIMEOUT, message=message, failed=True)
        why = self._guard.close(now.node)
        if not now.node.changing or self._durations.seconds("tainted", config.key) < TAINT_SECONDS:
            return waiting(why or "the Node gets a taint before NVIDIA's device plugin changes its config")
        return ASKED

    def _confirm(self, config: NodeConfig, now: Inputs, plugin: NodePod) -> Stage:
        key, chosen_ns = self._files.chosen(plugin.uid)
        if key != config.key:
            return self._late(
                "chosen",
                LOADED_SECONDS,
                f"config-manager of pod {plugin.title} has chosen {key or 'no config'}, not {config.key}: read "
                "its log; the ConfigMap must have a key `default` too, which it reads first",
            )
        at_ns, served_ns = self._record.since(config.key, chosen_ns), self._files.served_ns(config.resource)
        stage = (
            (self._daemon(config, now, plugin, at_ns, served_ns) if config.shared else None)
            or self._given_twice(now)
            or self._loaded(config, now, plugin, at_ns, served_ns)
            or self._counted(config, now)
        )
        if stage is None:
            self._record.confirm(config.key, served_ns)
            self._signals.forget()  # they had their effect
        return stage or self._opened(now)

    def _daemon(self, config: NodeConfig, now: Inputs, plugin: NodePod, at_ns: int, served_ns: int) -> Stage | None:
        """None where the MPS daemon was started with these limits."""
        if self._files.started_ns(config.resource) >= at_ns:
            return None
        daemon = now.pods.mps_daemon
        if daemon is None:
            if now.registered.foreign:
                # The plugin has not reloaded: the devices of before are still offered.
                return self._given_twice(now) or self._loaded(config, now, plugin, at_ns, served_ns)
            # Its pod does not tolerate the taint; meanwhile the plugin waits for it and offers nothing.
            self._guard.lift(now.node)
            return self._late(
                "daemon's pod",
                PROJECTED_SECONDS,
                "no pod of NVIDIA's MPS control daemon runs on this node: GPU feature discovery places it by the label "
                "nvidia.com/mps.capable=true, so check that it runs",
            )
        if self._files.chosen(daemon.uid)[0] != config.key:
            # A signal that came too late has made it read this other config.
            self._signals.forget(daemon.uid)
            message = f"config-manager of pod {daemon.title} has not chosen {config.key} yet, which takes some restarts"
            return self._late("daemon's config", DAEMON_SECONDS, message)
        if self._durations.seconds("daemon", config.key) < SIGNAL_SECONDS:
            return waiting("NVIDIA's MPS daemon has not loaded its config yet")
        if now.held:
            if self._durations.seconds("held", config.key) >= LOADED_SECONDS:
                self._guard.lift(now.node)  # a pod may run for days, and the taint keeps off all others
            return Stage(
                reason=Reason.WAITING_FOR_RELEASE,
                message="NVIDIA's MPS daemon still has the limits of the config before, and is reloaded when no "
                "container holds a replica: delete the pods that do",
            )
        return self._reloaded(
            daemon.uid, MPS_DAEMON, config, f"pod {daemon.title}: the MPS daemon keeps the old limits"
        )

    def _given_twice(self, now: Inputs) -> Stage | None:
        """A pod came between the last look and the change. Nothing but the taint keeps others off its GPU, so that one
        has no bound: a person is called."""
        if not now.held_before:
            return None
        self._guard.close(now.node)
        message = f"{now.held_before} of the config before, and others could get the same GPU, so the node stays closed"
        return self._late("held", BOUND_SECONDS, f"{message}: delete the pod", reason=Reason.WAITING_FOR_RELEASE)

    def _loaded(self, config: NodeConfig, now: Inputs, plugin: NodePod, at_ns: int, served_ns: int) -> Stage | None:
        loaded = served_ns >= at_ns
        if loaded and now.registered.exact:
            return None
        what = "the kubelet does not have exactly its devices" if loaded else "it has not loaded the config"
        # What it marked as Unhealthy since it was confirmed would be healthy again after a signal.
        known = self._record.is_confirmed(config.key, served_ns)
        if loaded and (known or not (now.answered and now.registered.foreign)):
            what = f"NVIDIA's device plugin: {what}: read the log of its pod, and delete it where that names no fault"
            return self._late("registered", LOADED_SECONDS, what)
        if self._durations.seconds("loaded", config.key) < LOADED_SECONDS:
            return waiting(f"NVIDIA's device plugin: {what} yet")
        return self._reloaded(plugin.uid, PLUGIN, config, f"NVIDIA's device plugin: {what}")

    def _reloaded(self, pod_uid: str, program: str, config: NodeConfig, what: str) -> Stage:
        if why := self._signals.send(pod_uid, program, config.key):
            return self._late(f"signal to {program}", 0.0, f"{what}, and {why}: delete the pod")
        return self._late(f"reload {program}", LOADED_SECONDS, f"{what}: delete the pod if that lasts")

    def _counted(self, config: NodeConfig, now: Inputs) -> Stage | None:
        shown = now.node.allocatable.get(config.resource, 0)
        if shown == now.registered.count:
            return None
        message = f"the Node shows {shown} of {config.resource}, and the kubelet has {now.registered.count}"
        return self._late("counted", ALLOCATABLE_SECONDS, message)

    def _opened(self, now: Inputs) -> Stage:
        why = self._guard.lift(now.node)
        return Stage(reason=Reason.ADVERTISING, message=why) if why else DONE

    def _no_plugin(self, now: Inputs) -> Stage:
        # Its pod does not tolerate the taint.
        self._guard.lift(now.node)
        message = (
            "no pod of NVIDIA's device plugin runs on this node: run its DaemonSet here (GPU Operator: label the node "
            "nvidia.com/gpu.deploy.device-plugin=true)"
        )
        return self._late("plugin", LOADED_SECONDS, message, reason=Reason.DEVICE_PLUGIN_ERROR)

    def _late(self, what: str, seconds: float, message: str, *, reason: Reason = Reason.ADVERTISING) -> Stage:
        if self._durations.seconds(what, message) < seconds:
            return Stage(reason=reason, message=message)
        reason = Reason.ADVERTISE_TIMEOUT if reason is Reason.ADVERTISING else reason
        after = f", after {seconds:g} s" if seconds else ""
        return Stage(reason=reason, message=f"{message}{after}", failed=True)


def waiting(message: str) -> Stage:
    return Stage(reason=Reason.ADVERTISING, message=message)


ASKED = waiting(f"the controller names the new config in the node's label {CONFIG_LABEL}")
