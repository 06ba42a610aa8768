"""Crashes anywhere, of anything: drawn runs of each story; and switched off, what keeps them harmless is missed."""

from collections.abc import Callable

import pytest

from nodeagent import observation
from nodeagent.observed import holdings
from nodeagent.observed.memory import Memory
from nodeagent.observed.processes import Process, ProcessTable
from nodeagent.steps.journal import Journal
from nodeagent.steps.judged import JudgedGpu
from tests.crashes import run
from tests.crashes.faults import Fault
from tests.crashes.run import Case, Found
from tests.crashes.stories import STORIES
from tests.drawn import points
from tests.nodeagent.pods_memory import PodsMemory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DRAWN = 11
"""Of each story: 300 in all."""
DRAWN_OF_LEADS = 4
FEW_PLACES = "nothing planned"


def red(found: Found) -> str:
    return "\n".join([*found.harmed, *found.other_end])


@pytest.mark.parametrize("story", points([name for name in STORIES if not STORIES[name].nvidia], each=10))
def test_a_fault_harms_nothing_and_changes_no_end(story: str) -> None:
    found = run.run(1, 0, [story])
    assert found.runs == 1
    assert red(found) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("story", run.ALL)
def test_no_drawn_fault_harms_anything_or_changes_an_end(story: str) -> None:
    number = DRAWN if story in STORIES else DRAWN_OF_LEADS
    found = run.run(number, 1, [story])
    assert found.runs == number or story == FEW_PLACES
    assert red(found) == ""


def forget_holders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holdings, "read_memory", lambda _path, _aside: Memory(answered={}))


def forget_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "intents", lambda _self, _uuid: ())


def wait_for_no_withdrawal(patch: pytest.MonkeyPatch) -> None:
    def judged(**parts: object) -> object:
        partitions, verdict = parts["partitions"], parts["verdict"]
        free = frozenset(p.id for p in partitions if verdict(p).free)  # type: ignore[attr-defined, operator]
        return own(**{**parts, "released": free})  # type: ignore[arg-type]

    own = JudgedGpu
    patch.setattr(observation, "JudgedGpu", judged)


def see_no_processes(patch: pytest.MonkeyPatch) -> None:
    init = ProcessTable(processes=(Process(pid=1, program="systemd"),))
    patch.setattr(PodsMemory, "scan", lambda _world: init)


@pytest.mark.parametrize(
    ("switch_off", "story", "fault"),
    [
        (forget_holders, "kubelet forgets", Fault.KILL),
        (forget_steps, "plan is dropped", Fault.KILL),
        (wait_for_no_withdrawal, "from cut", Fault.KILL),
        (see_no_processes, "deleted by force", Fault.KILL),
    ],
)
def test_without_it_the_crash_test_is_red(
    monkeypatch: pytest.MonkeyPatch, switch_off: Callable[[pytest.MonkeyPatch], None], story: str, fault: Fault
) -> None:
    places = run.undisturbed(story).places
    switch_off(monkeypatch)
    found = Found(stories=1, points=len(places))
    for point in places:
        run.judge(Case(story, fault, point.number), found)
        if red(found):
            return
    pytest.fail(f"{found.runs} runs of {story!r}, and none is red")
