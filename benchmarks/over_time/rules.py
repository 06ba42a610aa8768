"""Simple rules that place jobs one by one on instances of their own, as a DRA driver does, with the same hardware.

On GPUs that are shared by MPS a place is memory: any free GB do, those of an idle slice of that size before others.
Waiting jobs are tried in the order of priority and age at each event. A rule rates the placements that no other job
holds; instances that are in the way go, the job starts when its own is made and shown. An idle instance at that place
is taken as it is, at once. With reservations, so many of the oldest jobs keep the place that fewest jobs hold.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from benchmarks.over_time.jobs import Job, Size
from benchmarks.over_time.timeline import Delays, Record, Timeline
from partitioning.layouts import Instance
from partitioning.models import GpuModel
from partitioning.placements import Placement, placements_of

RESERVED_AFTER_SECONDS = 600.0


@dataclass(slots=True, kw_only=True, eq=False)
class OwnedGpu:
    node: int
    index: int
    model: GpuModel
    held: dict[int, Placement] = field(default_factory=dict)
    """By job."""
    idle: list[Placement] = field(default_factory=list)
    busy_until: float = 0.0

    @property
    def mask(self) -> int:
        """What jobs hold."""
        mask = 0
        for placement in self.held.values():
            mask |= placement.taken
        return mask


Cost = tuple[float, ...]
Rate = Callable[[OwnedGpu, Placement, Mapping[str, int]], Cost]
"""What a placement costs, with how many jobs of each profile have come; the lowest is taken, the first of several."""


def first_fit(gpu: OwnedGpu, placement: Placement, _: Mapping[str, int]) -> Cost:
    """The first GPU, and on it the first place."""
    return (gpu.node, gpu.index, placement.instance.start)


def best_fit(gpu: OwnedGpu, placement: Placement, _: Mapping[str, int]) -> Cost:
    """Where fewest other placements are spoiled."""
    before = gpu.mask
    spoiled = _possible(gpu.model, before) - _possible(gpu.model, before | placement.taken)
    return (spoiled, placement not in gpu.idle)


def least_spoiled(gpu: OwnedGpu, placement: Placement, seen: Mapping[str, int]) -> Cost:
    """Where the free slices that jobs like those seen could not use grow least (fragmentation gradient)."""
    before = gpu.mask
    grown = _fragmentation(gpu.model, before | placement.taken, seen) - _fragmentation(gpu.model, before, seen)
    return (round(grown, 9), placement not in gpu.idle)


RULES: Mapping[str, tuple[Rate, int]] = {
    "first-fit": (first_fit, 0),
    "best-fit": (best_fit, 0),
    "best-fit-2": (best_fit, 2),
    "least-spoiled": (least_spoiled, 0),
}
"""With the number of reservations."""


def tightest(gpu: OwnedGpu, placement: Placement, _: Mapping[str, int]) -> Cost:
    """Best fit where free memory is free memory: the GPU that has most in use."""
    return (-gpu.mask.bit_count(), placement not in gpu.idle)


SHARED_RULES: Mapping[str, tuple[Rate, int]] = {"first-fit": (first_fit, 0), "best-fit": (tightest, 0)}
"""Of GPUs that are shared by MPS."""


def _possible(model: GpuModel, mask: int) -> int:
    return sum(not mask & one.blockers for places in placements_of(model).values() for one in places)


def _fragmentation(model: GpuModel, mask: int, seen: Mapping[str, int]) -> float:
    """Free memory slices that no placement of a profile can cover, weighted by how often it is requested."""
    whole = (1 << model.slots) - 1
    lost, jobs = 0.0, sum(seen.values())
    for profile, count in seen.items():
        usable = 0
        for one in placements_of(model).get(profile, ()):
            if not mask & one.blockers:
                usable |= one.instance.mask
        lost += count / jobs * (whole & ~mask & ~usable).bit_count()
    return lost


class Rule:
    """One rule on one cluster; `run` once."""

    def __init__(self, jobs: list[Job], size: Size, delays: Delays, name: str) -> None:
        self._jobs, self._timeline = jobs, Timeline(delays)
        self._rate: Rate
        self._rate, self._reservations = (SHARED_RULES if size.shared else RULES)[name]
        self._record = Record(jobs, size)
        self._gigabytes = size.gigabytes if size.shared else 0
        self._places = placements_of(size.model)
        self._gpus = [
            OwnedGpu(node=node, index=index, model=size.model)
            for node in range(size.nodes)
            for index in range(size.gpus)
        ]
        ranked = sorted(range(len(jobs)), key=lambda job: (-jobs[job].priority, int(jobs[job].arrival), jobs[job].name))
        self._rank = {job: rank for rank, job in enumerate(ranked)}
        self._waiting: dict[int, None] = {}
        self._seen: Counter[str] = Counter()
        self._reserved: dict[int, tuple[OwnedGpu, Placement]] = {}
        for job, one in enumerate(jobs):
            self._timeline.at(one.arrival, partial(self._arrive, job))

    def run(self, horizon: float | None) -> Record:
        """Until all jobs that can run have ended, or the horizon is reached."""
        while self._timeline.waits and (horizon is None or self._timeline.next_at <= horizon):
            self._timeline.advance()
            self._place()
            self._reserve()
        late = bool(self._waiting) or self._timeline.waits
        self._record.ended_at = horizon if horizon is not None and late else self._timeline.now
        return self._record

    def _arrive(self, job: int) -> None:
        self._waiting[job] = None
        if self._jobs[job].profile in self._places:
            self._seen[self._jobs[job].profile] += 1

    def _place(self) -> None:
        failed: set[str] = set()
        for job in sorted(self._waiting, key=self._rank.__getitem__):
            profile = self._jobs[job].profile
            if profile in failed and job not in self._reserved:
                continue
            best = min(self._options(job), key=lambda one: self._rate(one[0], one[1], self._seen), default=None)
            if best is None:
                failed.add(profile)
            else:
                self._take(job, *best)

    def _options(self, job: int) -> Iterator[tuple[OwnedGpu, Placement]]:
        for gpu in self._gpus:
            mask = gpu.mask
            for other, (kept, place) in self._reserved.items():
                if other != job and kept is gpu:
                    mask |= place.taken
            for place in self._places_on(gpu, mask, self._jobs[job].profile):
                if not mask & place.blockers:
                    yield gpu, place

    def _places_on(self, gpu: OwnedGpu, mask: int, profile: str) -> Iterable[Placement]:
        if not self._gigabytes:
            return self._places.get(profile, ())
        if "." in profile:
            return ()
        size = int(profile.removesuffix("gb"))
        found = [place for place in gpu.idle if place.instance.profile == profile]
        idle = 0
        for place in gpu.idle:
            idle |= place.taken
        bits = [1 << number for number in range(self._gigabytes) if not mask >> number & 1]
        if len(bits) >= size:
            taken = sum(sorted(bits, key=lambda bit: (bool(bit & idle), bit))[:size])
            found.append(Placement(instance=Instance(start=0, size=1, profile=profile), taken=taken, blockers=taken))
        return found

    def _take(self, job: int, gpu: OwnedGpu, place: Placement) -> None:
        del self._waiting[job]
        self._reserved.pop(job, None)
        gpu.held[job] = place
        now, start = self._timeline.now, self._timeline.now
        if place in gpu.idle:
            gpu.idle.remove(place)
        else:
            gone = [one for one in gpu.idle if one.taken & place.blockers or place.taken & one.blockers]
            gpu.idle = [one for one in gpu.idle if one not in gone]
            delays = self._timeline.delays
            gpu.busy_until = max(now + delays.agent, gpu.busy_until) + delays.cut(1, len(gone))
            start = self._timeline.next_tick(gpu.node, gpu.busy_until)
            self._record.changed(created=1, deleted=len(gone))
        self._timeline.at(start, partial(self._start, job, gpu))

    def _start(self, job: int, gpu: OwnedGpu) -> None:
        self._record.starts(job, self._timeline.now)
        self._timeline.after(self._jobs[job].duration, partial(self._end, job, gpu))

    def _end(self, job: int, gpu: OwnedGpu) -> None:
        gpu.idle.append(gpu.held.pop(job))
        self._record.ends(self._timeline.now)

    def _reserve(self) -> None:
        """The oldest that wait for long keep the place that fewest jobs hold, until they have it."""
        for job in sorted(self._waiting, key=self._rank.__getitem__) if self._reservations else ():
            if len(self._reserved) >= self._reservations:
                return
            one = self._jobs[job]
            if job in self._reserved or self._timeline.now - one.arrival < RESERVED_AFTER_SECONDS:
                continue
            kept = [(gpu, place) for gpu in self._gpus for place in self._places.get(one.profile, ())]
            free = [each for each in kept if not self._is_reserved(*each)]
            if free:
                self._reserved[job] = min(free, key=lambda each: _holders(*each))

    def _is_reserved(self, gpu: OwnedGpu, place: Placement) -> bool:
        return any(kept is gpu and place.blockers & other.taken for kept, other in self._reserved.values())


def _holders(gpu: OwnedGpu, place: Placement) -> int:
    return sum(bool(place.blockers & other.taken) for other in gpu.held.values())
