"""Whose turn it is to have a GPU drained: given up without progress, kept once it has begun, back after a pause."""

import pytest

from controller.cache.drain_turns import (
    BEGUN_SECONDS,
    FIRST_PAUSE_SECONDS,
    FREE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    UNCHANGED_SECONDS,
    DrainTurns,
)
from controller.model.results import Drained

CAME = -3.0 * UNCHANGED_SECONDS
"""Each holder that is known, on the clock of these tests."""


def held(*holders: str, uid: str = "large", gpu: int = 0, created: float = CAME) -> Drained:
    return Drained(
        uid=uid,
        key=("team", uid),
        node="n1",
        gpu=gpu,
        partitions=(f"MIG-{gpu}",),
        holders=holders,
        created=(int(created),) * len(holders),
    )


class Turns:
    """Turns on one clock, noted once a minute."""

    def __init__(self) -> None:
        self.turns = DrainTurns()
        self.now = 0.0
        self.pending = {"large", "other"}

    def note(self, drained: Drained | None, seconds: float = 0.0) -> bool:
        """Whether the large pod rests after as long."""
        end = self.now + seconds
        while True:
            self.turns.note(() if drained is None else (drained,), self.pending, self.now, wall=self.now)
            if self.now >= end:
                return "large" in self.turns.resting(self.now)
            self.now += min(60.0, end - self.now)

    def rests_for(self) -> float:
        start = self.now
        while "large" in self.turns.resting(self.now):
            self.now += 60.0
        return self.now - start


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (held(), held(), FREE_SECONDS),
        (held("a", "b"), held("a", "b"), UNCHANGED_SECONDS),
        (held("a", "b"), held("b"), -CAME),
        (held("a", "b", created=-60), held("b"), UNCHANGED_SECONDS),
        (held("a", "b", created=0), held("b"), UNCHANGED_SECONDS),
        (held("a", "b", created=-2 * BEGUN_SECONDS), held("b"), BEGUN_SECONDS),
    ],
    ids=["nothing holds it", "no holder leaves", "a holder has left", "a young one", "one not known", "a very old one"],
)
def test_a_drain_is_given_up_after(before: Drained, after: Drained, seconds: float) -> None:
    turns = Turns()
    turns.note(before)
    assert not turns.note(after, seconds - 60)
    assert turns.note(after, 60)


def test_each_holder_that_leaves_is_progress() -> None:
    turns = Turns()
    turns.note(held("a", "b", "c"), UNCHANGED_SECONDS - 60)
    assert not turns.note(held("b", "c"), -CAME - 60)
    assert not turns.note(held("c"), -CAME - 60)


def test_a_holder_that_comes_or_another_gpu_is_no_progress() -> None:
    turns = Turns()
    turns.note(held("a"), UNCHANGED_SECONDS / 2)
    turns.note(held("a", "b"))
    assert turns.note(held("c", gpu=1), UNCHANGED_SECONDS / 2)


def test_progress_on_another_gpu_is_not_held_against_the_next_one() -> None:
    """Its agent is silent, say: the pod has had a GPU drained for long, since a holder has left it."""
    turns = Turns()
    turns.note(held("a", "b"), 60)
    turns.note(held("b"), 2 * UNCHANGED_SECONDS)
    assert not turns.note(held("c", gpu=1))
    assert not turns.note(held("c", gpu=1), UNCHANGED_SECONDS - 60)
    assert turns.note(held("c", gpu=1), 120)


def test_the_pause_doubles_up_to_a_limit() -> None:
    turns = Turns()
    pauses = []
    for _ in range(8):
        turns.note(held("a"), UNCHANGED_SECONDS)
        pauses.append(turns.rests_for())
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS


def test_the_next_pod_has_a_turn_of_its_own_meanwhile() -> None:
    turns = Turns()
    turns.note(held("a"), UNCHANGED_SECONDS)
    turns.note(held("a", uid="other"), UNCHANGED_SECONDS - 60)
    assert turns.turns.resting(turns.now) == frozenset()
    turns.note(held("a", uid="other"), 60)
    assert turns.turns.resting(turns.now) == {"other"}


def test_a_pod_that_is_gone_is_forgotten() -> None:
    turns = Turns()
    turns.note(held("a"), UNCHANGED_SECONDS)
    turns.pending = {"other"}
    assert not turns.note(None)


def test_a_pass_without_the_drain_ends_the_turn() -> None:
    turns = Turns()
    turns.note(held("a"), UNCHANGED_SECONDS - 60)
    turns.note(None)
    assert not turns.note(held("a"), UNCHANGED_SECONDS - 60)


def test_several_pods_have_turns_of_their_own() -> None:
    turns = DrainTurns()
    for now in (0.0, UNCHANGED_SECONDS):
        others = ("b",) if now else ("a", "b")
        turns.note((held("a"), held(*others, uid="other", gpu=1)), {"large", "other"}, now, wall=now)
    assert turns.resting(UNCHANGED_SECONDS) == {"large"}
