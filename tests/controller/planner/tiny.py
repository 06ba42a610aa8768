"""Tiny clusters and the best that can be made of them, by trying everything: no code of the planner is used.

`best` tries every layout of every GPU and every way to assign the pods to nodes. It returns the most pods per priority
level, compared from the top, and the fewest idle instances that have to be destroyed for it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product

from hypothesis import strategies as st

from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PlanView, PodView
from partitioning.models import GpuModel
from partitioning.resources import mig_resource
from tests.builders.models import A30, A100
from tests.controller.planner.builders import cluster, holder, mig, pod, server

Placed = tuple[str, int]
Counts = tuple[tuple[str, int], ...]
Verdict = tuple[tuple[int, ...], int]
"""Pods served per level, the highest first, and the cost."""
PROFILES = {
    "A30": ("1g.6gb", "2g.12gb", "4g.24gb"),
    "A100": ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
}
MODELS = {"A30": A30, "A100": A100}


def _slots(model: GpuModel, placed: Placed) -> range:
    spec = model.profile(placed[0])
    assert spec is not None
    return range(placed[1], placed[1] + spec.size)


@cache
def layouts(name: str) -> tuple[frozenset[Placed], ...]:
    """Every set of instances that do not overlap."""
    model = MODELS[name]
    found: list[tuple[frozenset[Placed], frozenset[int]]] = [(frozenset(), frozenset())]
    for profile in PROFILES[name]:
        spec = model.profile(profile)
        assert spec is not None
        for start in spec.starts:
            taken = frozenset(_slots(model, (profile, start)))
            found += [(one | {(profile, start)}, slots | taken) for one, slots in found if not slots & taken]
    return tuple(one for one, _ in found)


@cache
def choices(
    name: str, used: frozenset[Placed], idle: frozenset[Placed], requested_profiles: frozenset[str]
) -> dict[Counts, int]:
    """What a GPU can give, in the profiles that are requested, and the least that each choice costs."""
    found: dict[Counts, int] = {}
    for layout in layouts(name):
        if used <= layout:
            offer = Counter(profile for profile, _ in layout - used if profile in requested_profiles)
            cost = len(idle - layout)
            key = tuple(sorted(offer.items()))
            found[key] = min(cost, found.get(key, cost))
    return {
        offer: cost
        for offer, cost in found.items()
        if not any(
            other != offer and least <= cost and all(dict(other).get(name, 0) >= count for name, count in offer)
            for other, least in found.items()
        )
    }


def best(snapshot: Snapshot) -> Verdict:
    names = {model.key: name for name, model in MODELS.items()}
    requested_profiles = frozenset(resource for one in snapshot.pending for resource, _ in one.gpu)
    profiles = frozenset(
        profile for known in PROFILES.values() for profile in known if mig_resource(profile) in requested_profiles
    )
    nodes = [[choices(names[_model(gpu).key], *_holds(gpu), profiles) for gpu in plan.gpus] for plan in snapshot.plans]
    known: dict[tuple[int, Counts], int | None] = {}

    def cost_on(node: int, members: Sequence[PodView]) -> int | None:
        requested: Counter[str] = Counter()
        for one in members:
            requested.update(dict(one.gpu))
        key = (node, tuple(sorted(requested.items())))
        if key not in known:
            known[key] = min(_costs(nodes[node], requested), default=None)
        return known[key]

    verdicts = []
    for homes in product(range(-1, len(nodes)), repeat=len(snapshot.pending)):
        costs = [
            cost_on(node, [one for one, home in zip(snapshot.pending, homes, strict=True) if home == node])
            for node in range(len(nodes))
        ]
        if None not in costs:
            served = [one for one, home in zip(snapshot.pending, homes, strict=True) if home >= 0]
            verdicts.append((by_level(snapshot, served), sum(cost or 0 for cost in costs)))
    return max(verdicts, key=lambda verdict: (verdict[0], -verdict[1]))


def _costs(gpus: Sequence[Mapping[Counts, int]], requested: Counter[str]) -> Iterator[int]:
    for offers in product(*(offered.items() for offered in gpus)):
        offered: Counter[str] = Counter()
        for offer, _ in offers:
            offered.update({mig_resource(profile): count for profile, count in offer})
        if requested <= offered:
            yield sum(cost for _, cost in offers)


def verdict_of(snapshot: Snapshot, result: PlanningResult) -> Verdict:
    placed = {one.uid for one in result.placed}
    served = [one for one in snapshot.pending if one.uid in placed]
    return by_level(snapshot, served), result.counts.partitions_destroyed


def by_level(snapshot: Snapshot, served: Sequence[PodView]) -> tuple[int, ...]:
    levels = sorted({one.priority for one in snapshot.pending}, reverse=True)
    return tuple(sum(one.priority == level for one in served) for level in levels)


def _model(gpu: GpuView) -> GpuModel:
    assert gpu.model is not None
    return gpu.model


def _holds(gpu: GpuView) -> tuple[frozenset[Placed], frozenset[Placed]]:
    """Used and idle instances."""
    used = frozenset((part.profile, part.start) for part in gpu.partitions if part.used)
    return used, frozenset((part.profile, part.start) for part in gpu.partitions if not part.used)


@st.composite
def tiny_clusters(draw: st.DrawFn) -> Snapshot:
    """At most three GPUs on one or two nodes, at most four pods."""
    names = draw(st.lists(st.sampled_from(sorted(MODELS)), min_size=1, max_size=2))
    servers: list[tuple[NodeView, PlanView]] = []
    running: list[PodView] = []
    for number, name in enumerate(names):
        most = 3 if len(names) == 1 else 2 - number
        gpus = [_gpu(draw, name, index) for index in range(draw(st.integers(1, most)))]
        node = f"node-{number}"
        servers.append(server(node, *gpus))
        held = Counter(part.profile for gpu in gpus for part in gpu.partitions if part.used)
        if held:
            running.append(holder(node, *sorted(held.items())))
    profiles = [profile for name in sorted(set(names)) for profile in PROFILES[name]]
    pending = [
        pod(
            f"pod-{number}",
            (draw(st.sampled_from(profiles)), draw(st.sampled_from((1, 1, 1, 2)))),
            priority=draw(st.sampled_from((0, 0, 10))),
            created=number,
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    return cluster(*servers, pods=running, pending=pending)


def _gpu(draw: st.DrawFn, name: str, index: int) -> GpuView:
    layout = sorted(draw(st.sampled_from(layouts(name))))
    used = [placed for placed in layout if draw(st.booleans())]
    return mig(index, gpu_model=MODELS[name], used=used, idle=[placed for placed in layout if placed not in used])
