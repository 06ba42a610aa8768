"""Judges which device ids are in use, from everything that can be a witness.

Takes the node's pods, the kubelet's List, and the ids that memory, ledger and checkpoint vote for. Returns, for each
id, Free, Used (and by which pod) or Unknown (and why). Unknown counts as used everywhere: an id is free only if a
complete List shows no holder and no other witness contradicts it. NVML's processes are read last, right before a
destruction. Pure: must never read anything itself.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import GpuProcess, ObservedGpu
from nodeagent.hardware.gpu_ids import names_a_device
from nodeagent.hardware.partitions import Partition
from nodeagent.observed.kubelet import Held, Listed, NoAnswer
from nodeagent.observed.pods import NodePod, ObservedPods

NOTHING: Mapping[str, str] = MappingProxyType({})


class Use(StrEnum):
    FREE = "Free"
    USED = "Used"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """On one partition. `pod` is namespace/name of the holder where known; `why` is a sentence for Unknown."""

    use: Use
    pod: str = ""
    why: str = ""
    other_id: str = ""
    """The id under which it is held, or may be, where that is not its own: the kubelet counts its own id as free."""
    forgotten: bool = False
    """Held under its own id, which the kubelet counts as free all the same: it has lost its record of the holder."""

    @property
    def free(self) -> bool:
        return self.use is Use.FREE


Twice: TypeAlias = Mapping[str, tuple[tuple[NodePod, ...], bool]]
"""The unfinished pods that hold one id, where there are several, and whether that has lasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The answers of one pass."""

    held: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Pod (namespace/name) that lives, or vanished and may still run, by device id."""
    known: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """All ids that a pod was observed with, by its UID: another pod may have its name by now."""
    doubtful: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Why, by device id."""
    short: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Why nothing is known of a resource's other ids."""
    blind: str = ""
    """Why nothing is known of any id."""
    forgotten: Collection[str] = ()
    """Held by pods that the kubelet listed with them once, and lists without them since: it takes them for free."""
    twice: Twice = field(default_factory=lambda: MappingProxyType({}))
    left: Collection[str] = ()
    """Ids that no pod may start with, since a process of an earlier one is left."""
    alone: Mapping[str, tuple[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    """UID of the only pod that may have it, with the time of the Allocate, by id that was handed out again before it
    was seen free."""
    strange: Mapping[str, str] = field(init=False)
    """Why any partition may be in use, by an id of a GPU resource that names none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "strange", _strange({**dict.fromkeys(self.doubtful, ""), **self.held}))

    def of(self, partition: Partition, slices: Container[str] = frozenset()) -> Verdict:
        """`slices` are the ids of our MPS slices: those of replicas have the form of other plugins' ids."""
        if partition.id in self.held:
            return Verdict(use=Use.USED, pod=self.held[partition.id], forgotten=partition.id in self.forgotten)
        if other_id := _other_id(partition, self.held, slices):
            return Verdict(use=Use.USED, pod=self.held[other_id], other_id=other_id)
        if other_id := _other_id(partition, self.doubtful, slices):
            return Verdict(use=Use.UNKNOWN, why=self.doubtful[other_id], other_id=other_id)
        if other_id := min(self.strange, default=""):
            return Verdict(use=Use.UNKNOWN, why=self.strange[other_id], other_id=other_id)
        why = self.doubtful.get(partition.id) or self.blind or self.short.get(partition.resource)
        return Verdict(use=Use.UNKNOWN, why=why) if why else Verdict(use=Use.FREE)


def _other_id(partition: Partition, ids: Iterable[str], slices: Container[str]) -> str:
    """The first id, other than its own, through which the partition may be used."""
    is_slice = partition.kind is DeviceKind.MPS
    others = (i for i in ids if i != partition.id and not (is_slice and i in slices))
    return min((i for i in others if partition.used_through(i)), default="")


def with_processes(
    verdict: Verdict, partition: Partition, gpu: ObservedGpu, processes: Iterable[GpuProcess], held: Iterable[str]
) -> Verdict:
    """NVML's verdict on a partition without another holder. For an MPS slice it can only raise a doubt."""
    if not verdict.free:
        return verdict
    if partition.kind is DeviceKind.MPS:
        if any(device_id.startswith(f"{gpu.uuid}::") for device_id in held):
            # The clients of a slice in use: NVML does not distinguish the slices of a GPU.
            return verdict
        clients = sorted(process.pid for process in processes if process.mps_client)
        why = f"MPS client process {clients[0]} runs on the GPU, and no pod holds a slice of it" if clients else ""
        return Verdict(use=Use.UNKNOWN, why=why) if clients else verdict
    instance = gpu.at(partition.placed) if partition.placed is not None else None
    place = instance.id if instance is not None else None
    found = sorted(process.pid for process in processes if process.instance == place)
    return Verdict(use=Use.USED, why=f"process {found[0]} runs on it") if found else verdict


def judge(pods: ObservedPods, listed: Listed | NoAnswer, votes: Usage, *, too_early: str = "") -> Usage:
    """What the other witnesses than the present List say (`votes`), and that.

    `too_early` is the reason why a List is not to be believed yet, however complete it looks.
    """
    held = dict(votes.held)
    if isinstance(listed, Listed):
        for namespace, name in sorted(listed.pods):
            held.update(dict.fromkeys(listed.ids([(namespace, name)]), f"{namespace}/{name}"))
    blind = too_early or _blind(pods, listed)
    short = shortfalls(pods, listed, votes) if isinstance(listed, Listed) else {}
    return replace(votes, held=held, short=short, blind=blind)


def _strange(ids: Mapping[str, str]) -> dict[str, str]:
    """`ids` are those that a pod holds or may hold, with the pod where it is known."""
    what = "an id of another device plugin or driver that names no partition here: any may be in use until it ends"
    holders = {i: f"pod {pod} holds" if pod else "a pod that is gone may hold" for i, pod in sorted(ids.items())}
    return {i: f"{holder} {i}, {what}" for i, holder in holders.items() if not names_a_device(i)}


def shortfalls(pods: ObservedPods, listed: Listed, votes: Usage) -> dict[str, str]:
    """Per resource: the first pod of which not every device is known, and what is missing."""
    found: dict[str, str] = {}
    for pod in pods.pods:
        if not pod.ended:
            for resource, why in _unlisted(pod, listed.pods.get(pod.key, {})):
                found.setdefault(resource, why)
            for resource, count in pod.hidden:
                why = f"init containers of pod {pod.title} hold {count} more of {resource}, unlisted, until it ends"
                found.setdefault(resource, why)
    for gone in pods.vanished:
        if len(votes.known.get(gone.uid, ())) < gone.requested or gone.hidden:
            for resource in gone.resources:
                found.setdefault(resource, f"pod {gone.title} left the API before it ended and may still run")
    return found


def lists_all_of(pod: NodePod, containers: Mapping[str, Held]) -> bool:
    """Whether the List shows as many devices as the pod's containers request."""
    return not any(_unlisted(pod, containers))


def _unlisted(pod: NodePod, containers: Mapping[str, Held]) -> Iterable[tuple[str, str]]:
    for name, amounts in pod.containers:
        for resource, count in amounts:
            shown = len(containers.get(name, {}).get(resource, ()))
            if shown < count:
                yield resource, f"pod {pod.title} requests {count} of {resource} and the kubelet lists {shown}"


def _blind(pods: ObservedPods, listed: Listed | NoAnswer) -> str:
    if isinstance(listed, NoAnswer):
        return listed.reason
    if not pods.synced:
        return "the pods of this node were not read from the API yet"
    return out_of_step(pods, listed)


def out_of_step(pods: ObservedPods, listed: Listed) -> str:
    """Where the kubelet and the API differ in which pods there are."""
    for pod in pods.pods:
        if pod.handled and not pod.ended and pod.key not in listed.pods:
            return f"the kubelet does not list pod {pod.title}, which it has handled"
    known = {pod.key for pod in pods.pods} | {gone.key for gone in pods.vanished} | pods.departed
    for namespace, name in sorted(listed.pods):
        if (namespace, name) not in known:
            return (
                f"the kubelet lists pod {namespace}/{name}, which the API does not show on this node yet; if it is a "
                "static pod, check that no admission policy refuses its mirror pod"
            )
    return ""
