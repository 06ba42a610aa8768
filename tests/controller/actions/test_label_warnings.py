"""What is wrong with a node's labels is reported once, by a log line and an Event."""

import json
import logging
import shlex

import pytest

from controller.actions.label_warnings import LabelWarnings
from controller.actions.node_labels import changes, values_before
from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN, MIG_MANAGER, MONITORS
from crds.v1alpha1.names import ANNOTATION_OPERATOR_LABELS, LABEL_DRIVER, LABEL_PARTITIONING
from tests.builders.objects import node
from tests.controller.actions.recorder import Recorder
from tests.controller.cache.state_bench import StateBench


def test_bad_labels_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bench, recorder = StateBench(), Recorder()
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
    bench, recorder = StateBench(), Recorder()
    warnings = LabelWarnings(recorder, bench.state, clock=bench.clock)

    for mode in ("mips", "mig", "mips", None):
        bench.node(node(mode=mode))
        warnings.run()
    bench.state.observe_node("n1", None)
    warnings.run()

    assert len(recorder.emitted) == 2


@pytest.mark.parametrize(("value", "warned"), [("closed", False), ("close", True), ("", True)])
def test_value_that_closes_no_driver_is_warned_about(value: str, warned: bool) -> None:
    bench, recorder = StateBench(), Recorder()
    bench.node(node(labels={LABEL_PARTITIONING: "mig", LABEL_DRIVER: value}))
    LabelWarnings(recorder, bench.state, clock=bench.clock).run()
    assert [f"label gpuplan.dev/driver={value} is not understood" in each[3] for each in recorder.emitted] == [
        True
    ] * warned


WRITE = (
    "kubectl annotate node n1 --overwrite gpuplan.dev/operator-labels="
    """'{"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.mig-manager": "true"}'"""
)
REMOVE = "kubectl annotate node n1 gpuplan.dev/operator-labels-"
RECORDS = {
    "as the controller writes it": (json.dumps({DEVICE_PLUGIN: "true", MIG_MANAGER: None}), "false", ""),
    "spoilt, and the labels are off": ("spoilt", "false", WRITE),
    "spoilt, and a label is on": ("[]", "true", REMOVE),
    "spoilt, and the operator has left": ("[]", None, REMOVE),
}


@pytest.mark.parametrize(("record", "value", "command"), RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("mode", ["mig", None])
def test_record_of_the_operators_labels_that_is_not_followed_is_warned_about(
    record: str, value: str | None, command: str, mode: str | None
) -> None:
    bench, recorder = StateBench(), Recorder()
    raw = node(mode=mode, metadata={"annotations": {ANNOTATION_OPERATOR_LABELS: record}})
    raw["metadata"]["labels"] |= dict.fromkeys((DEVICE_PLUGIN, MIG_MANAGER), value) if value else {}
    bench.node(raw)

    LabelWarnings(recorder, bench.state, clock=bench.clock).run()

    messages = [message for *_, message in recorder.emitted]
    assert [message.endswith(command) for message in messages] == ([True] if command else [])
    assert all("neither set nor restored" in message for message in messages)


def test_record_that_the_warning_proposes_is_followed() -> None:
    assert values_before(WRITE.partition("=")[2].strip("'")) == {DEVICE_PLUGIN: "true", MIG_MANAGER: "true"}


ON, OFF = ({key: value for key in (DEVICE_PLUGIN, MIG_MANAGER)} for value in ("true", "false"))
PARKED = dict.fromkeys(MONITORS, "false")


@pytest.mark.parametrize("labels", [OFF | PARKED, ON | PARKED, PARKED, OFF | {MONITORS[0]: "false"}])
@pytest.mark.parametrize("mode", ["mig", None])
def test_the_command_puts_back_dcgm_too(labels: dict[str, str], mode: str | None) -> None:
    """The record was spoilt while DCGM was off for a change: as a shell takes the command, and the controller."""
    bench, recorder = StateBench(), Recorder()
    raw = node(mode=mode, metadata={"annotations": {ANNOTATION_OPERATOR_LABELS: "spoilt"}})
    raw["metadata"]["labels"] |= labels
    bench.node(raw)
    LabelWarnings(recorder, bench.state, clock=bench.clock).run()
    ((*_, message),) = recorder.emitted

    written = shlex.split(message.partition("kubectl annotate ")[2])[-1].partition(f"{ANNOTATION_OPERATOR_LABELS}=")
    found = changes(raw["metadata"]["labels"], written[2], manage=True, released=mode is None)
    put_back = {key: value for key, value in found.labels.items() if key in MONITORS}
    assert put_back == {key: "true" for key in labels if key in MONITORS}
