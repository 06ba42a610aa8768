"""The pass of a node whose GPUs NVIDIA's device plugin serves, in place of the steps on hardware and our own plugin.

Takes an observation and the desired items, first makes our own plugin advertise nothing, then has `switch` bring
NVIDIA's to the config of the plan; returns what the report reads of any pass. All GPUs of the node share one config, so
one of them that cannot have it stops all. Must never change hardware, nor name a new config while a device is held.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from crds.v1alpha1 import gpu_operator
from crds.v1alpha1.names import TAINT_CHANGING, Reason
from nodeagent.advertise.advertiser import Advertised, NvidiaPlugin
from nodeagent.advertise.confirm import Confirmation, Stage
from nodeagent.advertise.delivery import Delivery
from nodeagent.advertise.taint import NodeGuard
from nodeagent.desired.items import DesiredItems
from nodeagent.desired.target import Refusal, Target, Unchanged
from nodeagent.handover.config import DeviceKind, PluginConfig
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.partitions import whole
from nodeagent.nvidia.advertised_by_nvidia import advertised_by_nvidia, registered
from nodeagent.nvidia.own_plugin import Blocking, OwnPlugin
from nodeagent.nvidia.switch import DONE, Inputs, Switch, waiting
from nodeagent.observation import Observation
from nodeagent.observed.kubelet import Allocatable, Held
from nodeagent.observed.node import ObservedNode
from nodeagent.outcome.pass_result import PassWork
from nodeagent.steps.changes import GpuChange
from nodeagent.steps.compute_modes import EXCLUSIVE_PROCESS
from partitioning.nvidia_plugin import CONFIG_LABEL, OWN_KEY, NodeConfig
from partitioning.resources import SHARED


class NvidiaBackend:
    """Call `work` once a pass, in place of actuator and advertiser."""

    def __init__(self, own_plugin: OwnPlugin, guard: NodeGuard, switch: Switch) -> None:
        self._own_plugin, self._guard, self._switch = own_plugin, guard, switch
        self._ids: Held = {}
        """Those that the kubelet showed last."""

    def work(self, observation: Observation, desired: DesiredItems, confirmed: Mapping[str, str]) -> PassWork:
        withdrawal, ours = self._own_plugin.withdraw(observation)
        observation = self._as_served(observation)
        holders = {gpu.uuid: _holders(observation, gpu) for gpu in observation.gpus}
        progress = self._progress(observation, desired, withdrawal, held=any(holders.values()))
        waits = progress.stage.reason is Reason.WAITING_FOR_RELEASE
        changes = {
            item.index: _change(item.gpu, desired.target(item, ()), observation, desired.nvidia)
            for item in desired.items
            if item.gpu is not None
        }
        for index, change in changes.items():
            blocking = ours[change.gpu.uuid] or (holders[change.gpu.uuid] if waits else ())
            changes[index] = replace(change, blocking=blocking, unreleased=(whole(change.gpu),) if withdrawal else ())
        return PassWork(
            observation=observation,
            desired=desired,
            changes=changes,
            actuated={},
            advertised=self._advertised(observation, progress),
            confirmed=confirmed,
        )

    def _as_served(self, observation: Observation) -> Observation:
        """The same, read as a node whose devices NVIDIA's plugin advertises."""
        readings = observation.readings
        if isinstance(readings.allocatable, Allocatable):
            self._ids = readings.allocatable.ids
        node = readings.node
        if node is not None:
            parts = tuple(part for part in node.operator_parts if part != gpu_operator.DEVICE_PLUGIN)
            node = replace(node, operator_parts=parts)
        config = advertised_by_nvidia(self._ids, observation.gpus)
        return replace(observation, readings=replace(readings, config=config, node=node), rival=_foreign_label(node))

    def _progress(
        self, observation: Observation, desired: DesiredItems, withdrawal: Stage | None, *, held: bool
    ) -> NvidiaPlugin:
        node, config = observation.readings.node, desired.nvidia
        if node is None:
            return NvidiaPlugin(stage=waiting("this Node was not read from the API yet"), key="")
        if not isinstance(config, NodeConfig) or desired.paused or desired.disabled or observation.rival:
            self._guard.lift(node)
            return NvidiaPlugin(stage=DONE, key=node.plugin_config)
        # Without a GPU to ask about, nothing would be in use.
        unread = observation.driver_problem is not None or not observation.gpus
        if withdrawal or unread:
            self._guard.lift(node)
            stage = withdrawal or waiting("the GPUs of this node cannot be read")
            return NvidiaPlugin(stage=stage, key=node.plugin_config)
        found = registered(config, self._ids, observation.gpus)
        known = isinstance(observation.readings.allocatable, Allocatable)
        # On a GPU that is lost, say; that of a MIG device is not known by its id.
        elsewhere = _held(observation, lambda i: not any(gpu.uuid in i for gpu in observation.gpus))
        moment = Inputs(
            node=node,
            pods=observation.pods,
            held="another one is in use" if held else elsewhere,
            held_before=_held(observation, lambda i: not config.has(i)),
            registered=replace(found, exact=found.exact and known),
            answered=known,
        )
        return self._switch.advance(config, moment)

    def _advertised(self, observation: Observation, progress: NvidiaPlugin) -> Advertised:
        readings, node = observation.readings, observation.readings.node
        shown = node.allocatable if node is not None else {}
        complete = {name for name, ids in self._ids.items() if shown.get(name, 0) == len(ids)}
        schedulable = frozenset(d.id for d in readings.config.devices if d.resource in complete)
        confirmed, stage = progress.stage.schedulable, progress.stage
        closed = node is not None and node.changing and stage.reason is Reason.WAITING_FOR_RELEASE
        return Advertised(
            config=readings.config,
            confirmation=Confirmation(
                all_allocatable=confirmed,
                all_withdrawn=confirmed,
                unlisted=confirmed,
                stages={gpu.uuid: progress.stage for gpu in observation.gpus},
                schedulable=schedulable,
            ),
            rival=observation.rival,
            overdue=closed and stage.failed,
            unwritten=stage.message if closed else "",
            tainted=f"the node has the taint {TAINT_CHANGING}, which keeps off every pod" if closed else "",
            delivery=Delivery(note=_discovered(node)),
            mode_problems={gpu.uuid: why for gpu in observation.gpus if (why := _mode_note(gpu, readings.config))},
            nvidia_plugin=progress,
        )


def _change(
    gpu: ObservedGpu, target: Target, observation: Observation, desired: NodeConfig | Refusal | None
) -> GpuChange:
    """Of a node whose plan is paused, what it lacks; nothing of any other is a change of hardware."""
    readings = observation.readings
    there = readings.node.plugin_config if readings.node is not None else ""
    moves = isinstance(desired, NodeConfig) and desired.key != there
    return GpuChange(
        gpu=gpu,
        target=target,
        advertise=tuple(p for p in observation.judge(gpu).partitions if p.device in readings.config.devices),
        differs=isinstance(target, Unchanged) and target.planned is not None and moves,
    )


def _holders(observation: Observation, gpu: ObservedGpu) -> Blocking:
    """What is in use, or not known to be free, whatever the ids; an MPS server without clients is no holder."""
    judged = observation.judge(gpu)
    if found := judged.with_verdicts(p for p in judged.partitions if not judged.verdict(p).free):
        return found
    alone = whole(gpu)
    verdicts = [observation.usage.of(p) for p in (alone, replace(alone, resource=SHARED))]
    verdicts += [] if judged.partitions else [judged.verdict(alone)]
    return tuple((alone, verdict) for verdict in verdicts if not verdict.free)[:1]


def _held(observation: Observation, foreign: Callable[[str], bool]) -> str:
    """The first holder of such an id."""
    return next((f"pod {pod} holds {i}" for i, pod in sorted(observation.usage.held.items()) if foreign(i)), "")


def _foreign_label(node: ObservedNode | None) -> str:
    if node is None or not node.plugin_config or OWN_KEY.fullmatch(node.plugin_config):
        return ""
    return (
        f"a person or another program has given this node the config {node.plugin_config!r} of NVIDIA's device plugin, "
        f"so gpuplan changes nothing: remove it with kubectl label node {node.name} {CONFIG_LABEL}-"
    )


def _discovered(node: ObservedNode | None) -> str:
    """What feature discovery says of sharing; it follows within some minutes, and nothing waits for it."""
    labels = node.discovered if node is not None else {}
    if not labels:
        return ""
    listed = ", ".join(f"nvidia.com/{name}={value}" for name, value in sorted(labels.items()))
    return f"GPU feature discovery labels the node {listed}; it follows a change within some minutes"


def _mode_note(gpu: ObservedGpu, config: PluginConfig) -> str:
    mine: Sequence[DeviceKind] = [device.kind for device in config.devices if device.gpu == gpu.uuid]
    if gpu.compute_mode != EXCLUSIVE_PROCESS or DeviceKind.WHOLE not in mine:
        return ""
    return (
        "it is in compute mode EXCLUSIVE_PROCESS and serves one process: NVIDIA's MPS daemon sets that back when it "
        f"ends; where none runs, run nvidia-smi -i {gpu.index} -c 0"
    )
