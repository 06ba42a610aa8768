"""Makes the workloads that come with the benchmark, from a name, the load and a seed.

Takes the cluster too, since the rate of arrivals follows from its size. Loads are shares of all compute slices, or of
the memory of shared GPUs. The profiles are the smallest of each size that the model has, or slices of as much memory.
The same arguments give the same jobs on every machine.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from benchmarks.over_time.jobs import Job, Size, TraceError

MEDIAN_SECONDS = 600.0
FOREVER_SECONDS = 1e7
MIX = {1: 40, 2: 18, 3: 20, 4: 5, 7: 8}
MIGBENCH = {1: 35, 2: 25, 3: 25, 7: 5}
"""MIGBench, 2026: 500 jobs, log-normal lives, offered loads 0.9 and 1.4."""
SMALL, LARGE = {1: 60, 2: 30, 3: 10}, {3: 40, 4: 20, 7: 20, 2: 20}

Mix = Mapping[int, int]
"""Weights by compute slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`horizon`: when the replay ends, where it would not end by itself."""

    jobs: list[Job]
    horizon: float | None = None


class _Maker:
    """Draws jobs one after the other."""

    def __init__(self, size: Size, seed: int, *, sigma: float = 0.8) -> None:
        self.size, self.rng, self._sigma = size, random.Random(seed), sigma
        self._profiles, self._weights = size.profiles, size.weights
        self.jobs: list[Job] = []

    def life(self, median: float = MEDIAN_SECONDS) -> float:
        return round(self.rng.lognormvariate(0, self._sigma) * median, 3)

    def add(self, arrival: float, slices: int, duration: float) -> None:
        name = f"job-{len(self.jobs):05}"
        job = Job(name=name, arrival=round(arrival, 3), profile=self._profiles[slices], duration=duration)
        self.jobs.append(job)

    def draw(self, mix: Mix) -> int:
        there = {slices: weight for slices, weight in mix.items() if slices in self._profiles}
        return self.rng.choices(list(there), weights=list(there.values()))[0]

    def steady(self, load: float, mix: Mix, count: int, *, start: float = 0.0, median: float = MEDIAN_SECONDS) -> float:
        """Poisson arrivals whose work is this load in the mean; returns when the last one comes."""
        drawn = [(self.draw(mix), self.life(median)) for _ in range(count)]
        gap = self.work(drawn) / count / (load * self.size.capacity)
        now = start
        for slices, life in drawn:
            now += self.rng.expovariate(1 / gap)
            self.add(now, slices, life)
        return now

    def work(self, drawn: Iterable[tuple[int, float]]) -> float:
        return sum(self._weights[self._profiles[slices]] * life for slices, life in drawn)


def migbench(size: Size, load: float, seed: int) -> Workload:
    maker = _Maker(size, seed)
    maker.steady(load, MIGBENCH, 500)
    return Workload(jobs=maker.jobs)


def steady(size: Size, load: float, seed: int) -> Workload:
    """Lives with heavy tails."""
    maker = _Maker(size, seed, sigma=1.2)
    maker.steady(load, MIX, 60 * size.nodes * size.gpus)
    return Workload(jobs=maker.jobs)


def trickle(size: Size, load: float, seed: int) -> Workload:
    """Small pods one by one, as notebooks come, and a whole GPU now and then."""
    maker = _Maker(size, seed)
    end = maker.steady(load, {1: 85, 2: 15}, 30 * size.nodes * size.gpus, median=3 * MEDIAN_SECONDS)
    whole = max(size.profiles)
    now = 1800.0
    while now < end:
        maker.add(now + maker.rng.uniform(0, 600), whole, maker.life())
        now += 3600.0
    return Workload(jobs=sorted(maker.jobs, key=lambda job: job.arrival))


def bursts(size: Size, load: float, seed: int) -> Workload:
    """Many pods within seconds, then nothing until their work is this load."""
    maker, now = _Maker(size, seed), 0.0
    gpus = size.nodes * size.gpus
    for _ in range(24):
        drawn = [(maker.draw(MIX), maker.life()) for _ in range(maker.rng.randint(gpus + 3, 2 * gpus + 10))]
        for slices, life in drawn:
            maker.add(now + maker.rng.uniform(0, 3), slices, life)
        now += maker.work(drawn) / (load * size.capacity)
    return Workload(jobs=sorted(maker.jobs, key=lambda job: job.arrival))


def turning(size: Size, load: float, seed: int) -> Workload:
    """A backlog whose mix turns: what small pods have cut, large ones cannot use, and the other way round."""
    maker, now = _Maker(size, seed), 0.0
    for mix in (SMALL, LARGE, SMALL, LARGE):
        now = maker.steady(load, mix, 16 * size.nodes * size.gpus, start=now)
    return Workload(jobs=maker.jobs)


def stuck(size: Size, load: float, seed: int) -> Workload:
    """A pod of a whole GPU in front that can never run, since a pod that never ends is on every GPU."""
    maker = _Maker(size, seed)
    whole = max(size.profiles)
    once = [slices for slices in size.profiles if whole > slices > whole // 2]
    if not once:
        raise TraceError(f"--jobs: stuck: {size.model.key} has no profile of which just one fits alongside others")
    gpus = size.nodes * size.gpus
    for number in range(gpus):
        maker.add(number, min(once), FOREVER_SECONDS)
    maker.add(gpus + 1.0, whole, MEDIAN_SECONDS)
    left = (whole - min(once)) / whole
    end = maker.steady(load * left, {1: 50, 2: 30, 3: 20}, 40 * gpus, start=600.0)
    return Workload(jobs=maker.jobs, horizon=end + 3600)


MAKERS: Mapping[str, tuple[Callable[[Size, float, int], Workload], float]] = {
    "migbench": (migbench, 1.4),
    "steady": (steady, 0.65),
    "trickle": (trickle, 0.2),
    "bursts": (bursts, 0.33),
    "turning": (turning, 1.3),
    "stuck": (stuck, 0.75),
}
"""With the load where none is given."""


def make(name: str, size: Size, seed: int) -> Workload | None:
    """From `steady` or `steady:0.5`; None where no workload is called so. Raises TraceError."""
    kind, _, given = name.partition(":")
    if kind not in MAKERS:
        return None
    maker, load = MAKERS[kind]
    try:
        load = float(given) if given else load
    except ValueError:
        load = 0.0
    if not 0.01 <= load <= 10:
        raise TraceError(f"--jobs: the load in {name!r} is no number from 0.01 to 10: write {kind}:0.65")
    return maker(size, load, seed)
