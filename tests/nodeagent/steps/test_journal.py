"""The journal of one GPU's steps, and the pause after a step that failed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.desired.target import Unchanged
from nodeagent.hardware.driver import (
    GpuInstance,
    GpuLostError,
    MigMode,
    ObservedGpu,
)
from nodeagent.steps.actuator import Actuator
from nodeagent.steps.changes import GpuChange
from nodeagent.steps.journal import Action, Intent, Journal
from partitioning.layouts import Instance
from tests.builders.observed import instance
from tests.clock import Clock

WHOLE = instance("3g.40gb", 4)
HALF = instance("3g.40gb", 4, uuid="")
PLACED = WHOLE.placed


def gpu(*instances: GpuInstance, problem: str = "") -> ObservedGpu:
    return ObservedGpu(index=0, uuid="GPU-1", mig_mode=MigMode.ENABLED, instances=instances, problem=problem)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize(
    ("observed", "left", "ended"),
    [
        pytest.param(gpu(), set(), True, id="nothing there"),
        pytest.param(gpu(WHOLE), set(), True, id="complete"),
        pytest.param(gpu(HALF), {PLACED}, False, id="half-made"),
        pytest.param(gpu(problem="lost"), set(), False, id="cannot be read"),
    ],
)
def test_an_open_intent_is_settled_against_what_is_observed(
    tmp_path: Path, action: Action, observed: ObservedGpu, left: set[Instance], ended: bool
) -> None:
    intent = Intent(action=action, placed=PLACED, spec_version=("u", 3))
    Journal(tmp_path).begin("GPU-1", intent)
    journal = Journal(tmp_path)
    assert journal.intents("GPU-1") == (intent,)

    assert journal.settle(observed) == left
    assert (journal.intents("GPU-1") == ()) is ended


def test_a_step_after_one_that_was_refused_does_not_hide_it(tmp_path: Path) -> None:
    refused = Intent(action=Action.DESTROY, placed=PLACED, spec_version=("u", 3))
    following = Intent(action=Action.CREATE, placed=replace(PLACED, start=0, size=1), spec_version=("u", 3))
    journal = Journal(tmp_path)
    for intent in (refused, refused, following):
        journal.begin("GPU-1", intent)
    assert Journal(tmp_path).intents("GPU-1") == (refused, following)
    journal.end("GPU-1", following)

    # Its compute instance is gone, and the driver said InUse of the rest: that is ours to settle.
    assert Journal(tmp_path).settle(gpu(HALF)) == {PLACED}
    assert Journal(tmp_path).settle(gpu()) == frozenset()
    assert list(tmp_path.glob("*")) == []


@pytest.mark.parametrize("text", ["{", "null", "[]", '{"version": 1}', '{"intents": [{"action": "burn"}]}'])
def test_a_journal_that_cannot_be_read_is_no_intent(tmp_path: Path, text: str) -> None:
    (tmp_path / "GPU-1.json").write_text(text)

    assert Journal(tmp_path).settle(gpu(HALF)) == frozenset()


class Unwilling:
    """A driver of which every change fails."""

    def __getattr__(self, name: str) -> Any:
        raise GpuLostError(name, "GPU is lost")


def test_the_pause_of_a_gpu_that_is_gone_causes_no_pass(tmp_path: Path) -> None:
    clock = Clock()
    actuator = Actuator(Unwilling(), Journal(tmp_path), clock=clock)
    actuator.run(
        GpuChange(gpu=gpu(), target=Unchanged(), create=(PLACED,)), spec_version=("u", 1), may_go_on=lambda: True
    )
    clock.now += 60

    assert actuator.seconds_to_retry({"GPU-1"}) == 0
    assert actuator.seconds_to_retry({"GPU-2"}) is None
