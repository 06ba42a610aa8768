"""Draws into what a cluster is cut, and who waits, hour by hour, with and without draining.

`python -m benchmarks.over_time.layouts --measure` replays the backlog whose mix turns and keeps what was seen in
docs/pictures/layouts.json; `--write` draws docs/pictures/layouts.svg from it, `--check` fails where that is stale. The
replay is the one of `published`, which looking does not change.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.over_time.cluster import Cluster
from benchmarks.over_time.jobs import Job, Size, read_size
from benchmarks.over_time.picture import FONT
from benchmarks.over_time.product import Product
from benchmarks.over_time.published import DOCS, UNDRAINED
from benchmarks.over_time.timeline import Delays
from benchmarks.over_time.workloads import make
from controller.config.settings import Settings

KEPT, PICTURE = DOCS / "pictures/layouts.json", DOCS / "pictures/layouts.svg"
JOBS, CLUSTER, SEED = "turning", "nodes=2,gpus=4,model=H100-80GB", 1
POLICIES: Mapping[str, Settings] = {UNDRAINED: Settings(drains=0), "gpuplan": Settings()}
STEP_SECONDS = 300.0
WIDTH, LEFT, RIGHT, TOP, TALL, LOW, GAP = 920, 60, 20, 60, 120, 80, 46
COLOURS = ("#f9e79f", "#f5b041", "#5dade2", "#1f618d", "#922b21")
"""From the smallest profile to the whole GPU."""
Series = Mapping[str, Sequence[int]]
"""By profile, one number per step."""


class Seen(NamedTuple):
    """What a replay showed: compute slices in instances, and pods that wait."""

    layout: dict[str, list[int]]
    waiting: dict[str, list[int]]


class Watched(Cluster):
    """Looks at itself once per step."""

    def __init__(self, jobs: list[Job], size: Size) -> None:
        super().__init__(jobs, size, Delays(), seed=SEED)
        profiles = [size.profiles[slices] for slices in sorted(size.profiles)]
        self.seen = Seen({name: [] for name in profiles}, {name: [] for name in profiles})
        self._steps = 0

    def _schedule(self) -> bool:
        found = super()._schedule()
        while self.timeline.now >= self._steps * STEP_SECONDS:
            self._look()
            self._steps += 1
        return found

    def _look(self) -> None:
        there = Counter(one.profile for gpus in self.gpus.values() for gpu in gpus for one in gpu.instances)
        waiting = Counter(self.jobs[job].profile for job in self.pending)
        for name, weight in self.size.weights.items():
            if name in self.seen.layout:
                self.seen.layout[name].append(there[name] * weight)
                self.seen.waiting[name].append(waiting[name])


def watch(settings: Settings, size: Size, jobs: list[Job]) -> Seen:
    cluster = Watched(jobs, size)
    cluster.controller = Product(cluster, settings)
    cluster.run(None)
    return cluster.seen


def svg(seen: Mapping[str, Mapping[str, Series]], slices: int) -> str:
    """`seen` by policy; `slices` are all that the cluster has."""
    steps = max(len(numbers) for one in seen.values() for numbers in one["layout"].values())
    most = max(map(_most, (one["waiting"] for one in seen.values())))
    panel = TALL + LOW + GAP + 34
    height = TOP + panel * len(seen)
    profiles = list(next(iter(seen.values()))["layout"])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {FONT}>',
        "<title>Compute slices by profile, and pods that wait, over the hours of a backlog whose mix turns</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_legend(profiles),
    ]
    for number, (policy, one) in enumerate(seen.items()):
        top = TOP + panel * number
        lines.append(f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{policy}</text>')
        lines += [_named(top, f"{slices} slices"), *_stacked(one["layout"], steps, slices, (top, TALL))]
        low = top + TALL + 14
        lines += [_named(low, f"{most} wait"), *_stacked(one["waiting"], steps, most, (low, LOW))]
        lines += _hours(steps, top, top + TALL + 14 + LOW)
    return "\n".join([*lines, "</svg>", ""])


def _most(series: Series) -> int:
    return max(map(sum, zip(*series.values(), strict=True)))


def _legend(profiles: Sequence[str]) -> Iterator[str]:
    for number, (name, colour) in enumerate(zip(profiles, COLOURS, strict=True)):
        left = LEFT + number * 120
        yield f'<rect x="{left}" y="10" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 17}" y="20">{name}</text>'


def _at(step: int, steps: int) -> float:
    return round(LEFT + step * (WIDTH - LEFT - RIGHT) / steps, 1)


def _named(top: int, what: str) -> str:
    return f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end" font-size="10" fill="#555">{what}</text>'


def _stacked(series: Series, steps: int, full: int, place: tuple[int, int]) -> Iterator[str]:
    """One area per profile, the smallest below; `place` is top and height."""
    top, tall = place
    bottom, below = top + tall, [0] * steps
    for numbers, colour in zip(series.values(), COLOURS, strict=True):
        padded = [*numbers, *[0] * (steps - len(numbers))]
        above = [low + number for low, number in zip(below, padded, strict=True)]
        edge = [f"{_at(step, steps)} {round(bottom - tall * high / full, 1)}" for step, high in enumerate(above)]
        back = [f"{_at(step, steps)} {round(bottom - tall * low / full, 1)}" for step, low in enumerate(below)]
        yield f'<path d="M{"L".join([*edge, *reversed(back)])}Z" fill="{colour}"/>'
        below = above
    yield f'<path d="M{LEFT} {top}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#888"/>'


def _hours(steps: int, top: int, bottom: int) -> Iterator[str]:
    per_hour = round(3600 / STEP_SECONDS)
    for step in range(0, steps + 1, per_hour):
        left = _at(step, steps)
        yield f'<path d="M{left} {top}V{bottom}" stroke="#fff" stroke-opacity="0.4"/>'
        yield f'<text x="{left}" y="{bottom + 14}" text-anchor="middle" fill="#555">{step // per_hour} h</text>'


def drawn() -> str:
    """The picture of what is kept."""
    kept: dict[str, Any] = json.loads(KEPT.read_text())
    return svg(kept, read_size(CLUSTER).capacity)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.over_time.layouts", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    for name in ("--measure", "--write", "--check"):
        choice.add_argument(name, action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.measure:
        size = read_size(CLUSTER)
        workload = make(JOBS, size, SEED)
        assert workload is not None
        found = {policy: watch(settings, size, workload.jobs)._asdict() for policy, settings in POLICIES.items()}
        KEPT.write_text(json.dumps(found) + "\n")
    elif arguments.write:
        PICTURE.write_text(drawn())
    elif PICTURE.read_text() != drawn():
        print("stale: layouts.svg. Run `python -m benchmarks.over_time.layouts --write`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
