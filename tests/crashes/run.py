"""Runs the crash test: a story with a fault at one place, judged against the undisturbed story.

Harmed is a run in which something in use was touched or given twice, or in which what must hold at each place did not;
`other_end` one that ends otherwise than undisturbed, or that raised.
"""

import random
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.crashes import controllers
from tests.crashes.faults import Fault, Node, OneFault, applies
from tests.crashes.points import NoStrike, Point, Strike
from tests.crashes.stories import STORIES, end

MOST_LATER = 6
ALL = (*STORIES, controllers.STORY)


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    story: str
    fault: Fault | None = None
    at: int = 0
    later: int = 1

    def __str__(self) -> str:
        more = f" and {self.later} later" if self.fault is Fault.TWICE else ""
        return f"{self.story}: {self.fault} at {self.at}{more}"


@dataclass(frozen=True, slots=True)
class Lived:
    """How it went."""

    places: tuple[Point, ...]
    end: Mapping[str, object]
    harm: str = ""


def live(case: Case) -> Lived:
    def strike(node: Node) -> Strike:
        return NoStrike() if case.fault is None else OneFault(node, case.fault, case.at, case.later)

    if case.story == controllers.STORY:
        try:
            return Lived(*controllers.live(strike))
        except Exception:  # noqa: BLE001  # reported with its case
            return Lived((), {}, traceback.format_exc())
    story = STORIES[case.story]
    with TemporaryDirectory() as path:
        world = story.world(Path(path))
        world.points.strike = strike(world)
        try:
            story.live(world)
            found = end(world)
        except Exception:  # noqa: BLE001  # reported with its case
            return Lived(tuple(world.points.reached), {}, traceback.format_exc())
        finally:
            world.disarm()
        return Lived(tuple(world.points.reached), found)


@cache
def undisturbed(story: str) -> Lived:
    lived = live(Case(story))
    assert not lived.harm, f"{story}, undisturbed: {lived.harm}"
    return lived


def cases(stories: Iterable[str] = ALL) -> Iterator[Case]:
    """Every fault at every place of every story; two kills in turn one to six places apart."""
    for story in stories:
        for point in undisturbed(story).places:
            for fault in Fault:
                if fault in faults_of(story) and applies(fault, point):
                    yield Case(story, fault, point.number, 1 + point.number % MOST_LATER)


def faults_of(story: str) -> frozenset[Fault]:
    return controllers.FAULTS if story == controllers.STORY else STORIES[story].faults


@dataclass
class Found:
    """Of all runs."""

    stories: int
    points: int
    faults: int = len(Fault)
    runs: int = 0
    harmed: list[str] = field(default_factory=list)
    other_end: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> dict[str, object]:
        found = asdict(self)
        return {**found, "harmed": len(self.harmed), "other_end": len(self.other_end), "seconds": round(self.seconds)}


def run(number: int = 0, seed: int = 0, stories: Iterable[str] = ALL, until: float = float("inf")) -> Found:
    """All cases, or so many drawn ones."""
    began, names = time.monotonic(), tuple(stories)
    found = Found(stories=len(names), points=sum(len(undisturbed(name).places) for name in names))
    chosen = list(cases(names))
    if number:
        chosen = random.Random(seed).sample(chosen, min(number, len(chosen)))
    for case in chosen:
        if time.monotonic() - began > until:
            break
        judge(case, found)
    found.seconds = time.monotonic() - began
    return found


def judge(case: Case, found: Found) -> None:
    lived, expected = live(case), undisturbed(case.story)
    found.runs += 1
    place = expected.places[case.at - 1]
    title = f"{case} ({place.process}, {place.what})"
    if lived.harm:
        found.harmed.append(f"{title}: {lived.harm}")
    elif other := differences(case, lived, expected):
        found.other_end.append(f"{title}: {other}")


def differences(case: Case, lived: Lived, expected: Lived) -> dict[str, tuple[object, object]]:
    """Of the end, with that of the undisturbed story."""
    open_end = STORIES[case.story].open_end if case.story in STORIES else frozenset()
    compared = expected.end.keys() - open_end
    return {what: (lived.end[what], expected.end[what]) for what in compared if lived.end[what] != expected.end[what]}
