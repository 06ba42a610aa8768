"""Explores the interleavings of a node: schedules of choices, led to what was not seen yet.

A schedule is a list of choices, so that it replays and shrinks. At each state one is taken that was not taken there
before, and where all were, any; in between time goes by as usual. A schedule ends after some choices in a row that
were known. Transitions are counted by the hash of the abstract state and the choice. A schedule that harms is shrunk by
dropping choices while it still harms.
"""

import hashlib
import random
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.crashes.explore.actors import USUAL, Choice, Node

MOST_CHOICES, KNOWN_IN_A_ROW, USUAL_SHARE = 40, 6, 0.4
Schedule = tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Harm:
    """What went wrong, by which schedule."""

    schedule: Schedule
    what: str

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.schedule))}: {self.what}"


@dataclass
class Explored:
    """What was seen. `transitions` are pairs of a state and a choice."""

    schedules: int = 0
    choices: int = 0
    states: set[str] = field(default_factory=set)
    taken: dict[str, set[Choice]] = field(default_factory=dict)
    harms: list[Harm] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def transitions(self) -> int:
        return sum(len(choices) for choices in self.taken.values())

    def figures(self) -> dict[str, int]:
        per_hour = self.transitions * 3600 / max(self.cpu_seconds, 1e-9)
        return {
            "schedules": self.schedules,
            "choices": self.choices,
            "states": len(self.states),
            "transitions": self.transitions,
            "per_cpu_hour": round(per_hour),
            "harmed": len(self.harms),
            "cpu_seconds": round(self.cpu_seconds),
        }


def explore(seed: int, *, schedules: int = 10**9, seconds: float = float("inf"), transitions: int = 10**9) -> Explored:
    """Until one of the bounds is met, or something is harmed."""
    found, rng = Explored(), random.Random(seed)
    began, cpu = time.monotonic(), time.process_time()
    while found.schedules < schedules and found.transitions < transitions and time.monotonic() - began < seconds:
        found.schedules += 1
        walk(found, rng)
        found.seconds, found.cpu_seconds = time.monotonic() - began, time.process_time() - cpu
        if found.harms:
            break
    return found


def walk(found: Explored, rng: random.Random) -> None:
    """One schedule."""
    with TemporaryDirectory() as path:
        node = Node(Path(path))
        schedule: list[Choice] = []
        known = 0
        try:
            at = digest(node)
            while len(schedule) < MOST_CHOICES and known < KNOWN_IN_A_ROW:
                found.states.add(at)
                taken = found.taken.setdefault(at, set())
                fresh = [choice for choice in node.choices() if choice not in taken]
                usual = rng.random() < USUAL_SHARE
                choice = Choice(rng.choice(USUAL)) if usual else rng.choice(fresh or node.choices())
                known = known + 1 if choice in taken else 0
                taken.add(choice)
                schedule.append(choice)
                found.choices += 1
                node.take(choice)
                at = digest(node)
        except Exception as error:  # noqa: BLE001  # reported with its schedule
            if not isinstance(error, AssertionError):
                traceback.print_exc()
            found.harms.append(Harm(tuple(schedule), f"{type(error).__name__}: {error}"))
        finally:
            node.world.disarm()


def digest(node: Node) -> str:
    return hashlib.blake2b(repr(node.state()).encode(), digest_size=8).hexdigest()


def replay(schedule: Iterable[Choice]) -> str:
    """What it harms, or nothing."""
    with TemporaryDirectory() as path:
        node = Node(Path(path))
        try:
            for choice in schedule:
                node.take(choice)
        except Exception as error:  # noqa: BLE001  # it is the answer
            return f"{type(error).__name__}: {error}"
        finally:
            node.world.disarm()
    return ""


def shrink(schedule: Sequence[Choice]) -> Schedule:
    """Without the choices that the harm does not need."""
    left = tuple(schedule)
    number = 0
    while number < len(left):
        shorter = left[:number] + left[number + 1 :]
        if replay(shorter):
            left = shorter
        else:
            number += 1
    return left
