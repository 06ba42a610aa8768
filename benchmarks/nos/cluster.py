"""Clusters as nos' own tests and measurements describe them -> the views that our planner reads.

nos counts slices per GPU and knows no placements; here they get some: slices in use sit at the highest free start, the
largest first, and idle ones where they leave most room. Takes counts, returns views, or raises with the sentence why
such a card cannot exist. Every slice in use is held by a pod of its own; only GPUs are scarce. Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from controller.model.known_geometries import model_named
from controller.model.scheduling import Taint
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PartitionView, PlanView, PodView
from partitioning.layouts import Layout
from partitioning.models import GpuModel, ProfileSpec
from partitioning.mps import MpsSlice, check_slices, slice_of_gb
from partitioning.packing import DoesNotFit, pack
from partitioning.placement_sets import enumerate_placements
from partitioning.placements import placements_of
from partitioning.resources import classify, mig_resource, mps_resource_gb

PLENTY = {"cpu": 1 << 40, "memory": 1 << 60, "pods": 1 << 20}
_GB = re.compile(r"([1-9]\d*)gb")

Counts = Mapping[str, int]
"""Slices by profile: 1g.5gb for MIG, 10gb for MPS."""


class ImpossibleError(ValueError):
    """No hardware is like that; the text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU as nos describes it."""

    index: int
    model: GpuModel
    used: Counts
    free: Counts
    later: Counts | None = None
    """Slices that must have a place in addition to those in use, instead of the idle ones: what nos expects to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One node with what its GPUs hold; `pods` hold the slices in use."""

    node: NodeView
    plan: PlanView
    pods: tuple[PodView, ...]


def card_model(name: str, spellings: Collection[str] = ()) -> GpuModel:
    """The catalogued model of this name, its profiles under the names that its driver gave them, where given."""
    model = model_named(name)
    if model is None:
        raise ImpossibleError(f"there is no GPU model {name}")
    profiles = tuple(_spelt(spec, spellings) for spec in model.profiles)
    return model if profiles == model.profiles else replace(model, profiles=profiles)


def _spelt(spec: ProfileSpec, spellings: Collection[str]) -> ProfileSpec:
    """nos knows 7g.79gb, as early drivers called it: a pod that requests it gets it from such a driver only."""
    name = next((alias for alias in spec.aliases if alias in spellings), spec.name)
    return replace(spec, name=name, aliases=tuple(sorted({spec.name, *spec.aliases} - {name})))


def resource_of(profile: str) -> str:
    """The resource of a slice in nos' words; raises ImpossibleError for anything else."""
    gigabytes = _GB.fullmatch(profile)
    resource = mps_resource_gb(int(gigabytes[1])) if gigabytes else mig_resource(profile)
    if classify(resource) is None:
        raise ImpossibleError(f"{profile} is no slice: write 1g.5gb or 10gb")
    return resource


def server(
    name: str, kind: str, cards: Iterable[Card], *, enabled: bool = True, taints: tuple[Taint, ...] = ()
) -> Server:
    """A node labelled `mig` or `mps`; raises ImpossibleError."""
    gpus = tuple(_gpu(name, kind, card) for card in cards)
    pods = tuple(chain.from_iterable(_holders(name, gpu) for gpu in gpus))
    node = NodeView(
        name=name,
        uid=f"uid-{name}",
        allocatable=offered(gpus),
        taints=taints,
        partitioning=kind if enabled else None,
        gpu_count=len(gpus),
    )
    plan = PlanView(name=name, uid=f"plan-{name}", node_uid=node.uid, agent_alive=True, gpus=gpus)
    return Server(node=node, plan=plan, pods=pods)


def offered(gpus: Iterable[GpuView]) -> dict[str, int]:
    """What a node with these GPUs shows as allocatable."""
    allocatable = dict(PLENTY)
    for gpu in gpus:
        for partition in gpu.partitions:
            allocatable[partition.resource] = allocatable.get(partition.resource, 0) + 1
    return allocatable


def snapshot(servers: Sequence[Server], pending: Iterable[PodView]) -> Snapshot:
    ordered = sorted(servers, key=lambda one: one.node.name)
    return Snapshot(
        nodes=tuple(one.node for one in ordered),
        plans=tuple(one.plan for one in ordered),
        pods=tuple(pod for one in ordered for pod in one.pods),
        pending=tuple(pending),
    )


def pending_pod(number: int, name: str, requests: Counts, *, priority: int = 0) -> PodView:
    """A pod that the scheduler could not place; `requests` by resource name, in planning's units."""
    sorted_requests = tuple(sorted((resource, amount) for resource, amount in requests.items() if amount))
    return PodView(
        namespace="nos",
        name=name,
        uid=f"pending-{number}",
        created=number,
        priority=priority,
        requests=sorted_requests,
        gpu=tuple((resource, amount) for resource, amount in sorted_requests if classify(resource) is not None),
        unschedulable=True,
    )


def _gpu(node: str, kind: str, card: Card) -> GpuView:
    for count in (*card.used.values(), *card.free.values()):
        if count < 0:
            raise ImpossibleError(f"GPU {card.index} holds {count} slices of a kind")
    partitions = _mig(card) if kind == "mig" else _mps(card)
    numbered = [replace(part, id=f"{node}-{card.index}-{number}") for number, part in enumerate(partitions)]
    return GpuView(
        index=card.index,
        uuid=f"GPU-{node}-{card.index}",
        model=card.model,
        mig_enabled=kind == "mig",
        state="Unmanaged",
        partitions=tuple(replace(part, pod=f"nos/{part.id}" if part.used else "") for part in numbered),
    )


def _mig(card: Card) -> list[PartitionView]:
    for profile in (*card.used, *card.free, *(card.later or ())):
        if card.model.profile(profile) is None:
            raise ImpossibleError(f"{card.model.key} has no profile {profile}")
    used = _highest(card)
    free = _alongside(card.model, used, card.free)
    assert free is not None
    return [
        PartitionView(
            resource=mig_resource(one.profile),
            profile=one.profile,
            start=one.start,
            size=one.size,
            state="Used" if one in used else "Free",
        )
        for one in free
    ]


def _highest(card: Card) -> Layout:
    """Slices in use at the highest starts that leave room for the others, the largest slices first."""
    places = placements_of(card.model)
    specs = [(card.model.profile(name), count) for name, count in sorted(card.used.items()) if count]
    requested = [(places[spec.name], count) for spec, count in specs if spec is not None]
    layouts = [Layout.of(place.instance for place in found) for found in enumerate_placements(0, requested)]
    layouts.sort(key=_starts_of_largest, reverse=True)
    fitting = [layout for layout in layouts if _alongside(card.model, layout, card.free) is not None]
    if not fitting:
        raise ImpossibleError(f"one {card.model.key} cannot hold {_spelled(card.used, card.free)}")
    for layout in fitting:
        if card.later is None or _alongside(card.model, layout, card.later) is not None:
            return layout
    raise ImpossibleError(f"one {card.model.key} cannot come to hold {_spelled(card.used, card.later or {})}")


def _alongside(model: GpuModel, used: Layout, requested: Counts) -> Layout | None:
    packed = pack(model, pinned=used, requested={name: count for name, count in requested.items() if count})
    return None if isinstance(packed, DoesNotFit) else packed.layout


def _spelled(*parts: Counts) -> str:
    counts = [f"{count} x {name}" for part in parts for name, count in sorted(part.items()) if count]
    return " and ".join(counts) or "nothing"


def _starts_of_largest(layout: Layout) -> list[tuple[int, str, int]]:
    return sorted(((one.size, one.profile, one.start) for one in layout), reverse=True)


def _mps(card: Card) -> list[PartitionView]:
    used, free = _shares(card.used), _shares(card.free)
    for others in (free, _shares(card.later or {})):
        problem = check_slices(card.model.memory_mib, card.model.compute_capability, [*used, *others])
        if problem is not None:
            raise ImpossibleError(f"GPU {card.index}: {problem}")
    shares = [(share, "Used") for share in used] + [(share, "Free") for share in free]
    return [PartitionView(resource=share.resource, memory_mib=share.memory_mib, state=state) for share, state in shares]


def _shares(counts: Counts) -> list[MpsSlice]:
    return [_share(name) for name, count in sorted(counts.items()) for _ in range(count)]


def _share(profile: str) -> MpsSlice:
    found = _GB.fullmatch(profile)
    if found is None:
        raise ImpossibleError(f"{profile} is no MPS slice: write 10gb")
    return slice_of_gb(int(found[1]))


def _holders(node: str, gpu: GpuView) -> Iterator[PodView]:
    for partition in gpu.partitions:
        if partition.used:
            yield PodView(
                namespace="nos",
                name=partition.id,
                uid=partition.id,
                node=node,
                phase="Running",
                requests=((partition.resource, 1),),
                gpu=((partition.resource, 1),),
            )
