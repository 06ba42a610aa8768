"""The explorer of interleavings harms nothing, finds what was harmful once, and its schedules replay and shrink."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.observed.ends import EndBook, Ends, Gone
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import CheckpointEntry
from nodeagent.observed.lost_records import LostRecords
from nodeagent.observed.pods import ObservedPods
from nodeagent.observed.processes import Process, ProcessTable
from tests.crashes.explore.actors import Choice
from tests.crashes.explore.explorer import explore, replay, shrink
from tests.drawn import points
from tests.nodeagent.node_fakes import KubeletMemory, PluginMemory
from tests.nodeagent.pods_memory import PodsMemory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SwitchOff = Callable[[pytest.MonkeyPatch], None]


def doubt_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PluginMemory, "unmarked", lambda _plugin: frozenset())


def start_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PluginMemory, "starts", lambda *_args: True)


def see_no_processes(patch: pytest.MonkeyPatch) -> None:
    init = ProcessTable(processes=(Process(pid=1, program="systemd"),))
    patch.setattr(PodsMemory, "scan", lambda _world: init)


def miss_no_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LostRecords, "lost", lambda *_: "")


def read_no_claims(patch: pytest.MonkeyPatch) -> None:
    def checkpoint(kubelet: KubeletMemory) -> tuple[CheckpointEntry, ...]:
        return tuple(entry for entry in own(kubelet) if not any("gpu.nvidia.com/" in i for i in entry.ids))

    own = KubeletMemory.checkpoint
    patch.setattr(KubeletMemory, "checkpoint", checkpoint)


def believe_the_watch(patch: pytest.MonkeyPatch) -> None:
    def judge(book: EndBook, gone: Iterable[Gone], pods: ObservedPods, *arguments: Any, **how: Any) -> Ends:
        found = own(book, gone, pods, *arguments, **how)
        return replace(found, stale=frozenset(), strangers="") if found.stale else found

    own = EndBook.judge
    patch.setattr(EndBook, "judge", judge)


def believe_the_last_holder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Holdings, "_unseen_doubts", lambda *_, **_how: {})


FOUND: dict[str, tuple[SwitchOff, str, str]] = {
    "the kubelet lost its checkpoint": (doubt_nothing, "pod, checkpoint is lost, pod", "use"),
    "a device of a pod that was deleted by force goes on": (
        start_at_once,
        "pod, pod is deleted by force, pod",
        "use",
    ),
    "deleted by force, with a long grace period": (
        see_no_processes,
        "pod, pod is deleted by force, plan, rounds, minute, rounds",
        "are gone",
    ),
    "the state directory is wiped": (
        miss_no_records,
        "pod, pod is deleted by force, everything is lost, plan, rounds",
        "are gone",
    ),
    "replaced while the watch stands still": (
        believe_the_watch,
        "pod, round, pods are late, pod is replaced, plan, round, minute, rounds",
        "are gone",
    ),
    "replaced before the agent saw it": (
        believe_the_watch,
        "pod, agent restarts, pods are late, pod is replaced, round, minute, plan, rounds",
        "are gone",
    ),
    "handed out again, and the second pod has ended": (
        believe_the_last_holder,
        "plan, pod, pod is replaced, pod is replaced, pass, pod ends, rounds",
        "are gone",
    ),
    "held by a claim": (read_no_claims, "claim, plan, rounds", "are gone"),
}
"""By what was harmful once: the repair, how it harms without it as shortly as it gets, and what is harmed."""


def schedule(text: str) -> tuple[Choice, ...]:
    return tuple(Choice(act) for act in text.split(", "))


@pytest.mark.parametrize("harm", FOUND)
def test_what_was_harmful_once_is_harmless_and_seen_without_its_repair(
    monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    switch_off, text, what = FOUND[harm]
    assert replay(schedule(text)) == ""
    switch_off(monkeypatch)
    assert what in replay(schedule(text))


@pytest.mark.parametrize("harm", points([*FOUND]))
def test_what_is_left_of_a_schedule_is_all_that_it_takes(monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    switch_off, text, _ = FOUND[harm]
    short = schedule(text)
    switch_off(monkeypatch)
    assert shrink((Choice("node"), *short, Choice("time"))) == short


@pytest.mark.thorough
def test_nothing_is_harmed() -> None:
    found = explore(1, schedules=4)
    assert found.harms == []
    assert found.transitions > len(found.states) > 10


def test_the_same_seed_sees_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = explore(2, schedules=1), explore(2, schedules=1)
    assert first.states == second.states
    assert first.taken == second.taken


@pytest.mark.thorough
def test_the_explorer_finds_a_harm_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    read_no_claims(monkeypatch)
    found = explore(2, schedules=60)
    (harm,) = found.harms
    assert replay(harm.schedule) == harm.what
    assert replay(shrink(harm.schedule))
