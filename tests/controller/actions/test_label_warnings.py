"""What is wrong with a node's labels is reported once, by a log line and an Event."""

import logging

import pytest

from controller.actions.label_warnings import LabelWarnings
from tests.builders.objects import node
from tests.controller.actions.recorder import Recorder
from tests.controller.cache.state_bench import Bench


def test_bad_labels_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bench, recorder = Bench(), Recorder()
    warnings = LabelWarnings(recorder, bench.state, clock=bench.clock)

    raw = node(mode="mips")
    for _ in range(2):
        bench.node(raw)
        warnings.run()
    raw["metadata"]["labels"]["another"] = "label"
    bench.node(raw)
    bench.clock.now += 1000.0  # every node is judged again
    warnings.run()

    ((about, event_type, reason, message),) = recorder.emitted
    assert (about, event_type, reason) == ("Node/n1", "Warning", "PartitioningLabels")
    assert "use one of mig, mps, auto" in message
    assert [record.getMessage() for record in caplog.records] == [f"node n1: {message}"]


def test_labels_that_are_mended_and_broken_again_are_warned_about_again() -> None:
    bench, recorder = Bench(), Recorder()
    warnings = LabelWarnings(recorder, bench.state, clock=bench.clock)

    for mode in ("mips", "mig", "mips", None):
        bench.node(node(mode=mode))
        warnings.run()
    bench.state.observe_node("n1", None)
    warnings.run()

    assert len(recorder.emitted) == 2
