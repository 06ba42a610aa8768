"""The GPU Operator's DCGM leaves a node while a partition is held open, and comes back: also after a crash."""

import json

import pytest

from controller.actions.node_labels import Changes, NodeLabels, changes, values_before
from crds.v1alpha1 import paths
from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN, MIG_MANAGER, MONITORS, UNLOADING, UPGRADE_STATE
from crds.v1alpha1.names import (
    ANNOTATION_OPERATOR_LABELS,
    CLOSED,
    LABEL_DRIVER,
    LABEL_NODE_AGENT,
    LABEL_PARTITIONING,
)
from kube import apply
from tests.builders.objects import condition, node, status
from tests.controller.cluster import ApiCluster, Bench
from tests.drawn import thorough

DCGM, EXPORTER = MONITORS
RIVALS_OFF = {DEVICE_PLUGIN: "false", MIG_MANAGER: "false"}
BEFORE = {DEVICE_PLUGIN: "true", MIG_MANAGER: "true"}
MONITORED = {DCGM: "true", EXPORTER: "true"}
PARKED = {DCGM: "false", EXPORTER: "false"}
ENABLED = {LABEL_PARTITIONING: "mig", LABEL_NODE_AGENT: "true", **RIVALS_OFF}


def noted(before: dict[str, str]) -> dict[str, str | None]:
    return {ANNOTATION_OPERATOR_LABELS: json.dumps(before)}


CASES = {
    "both are on": (
        {**ENABLED, **MONITORED},
        BEFORE,
        True,
        Changes(labels=PARKED, annotations=noted(BEFORE | MONITORED)),
    ),
    "one is on": (
        {**ENABLED, EXPORTER: "true", DCGM: "false"},
        BEFORE,
        True,
        Changes(labels={EXPORTER: "false"}, annotations=noted({**BEFORE, EXPORTER: "true"})),
    ),
    "there is none": (ENABLED, BEFORE, True, Changes()),
    "paused by the operator": ({**ENABLED, DCGM: "paused-for-driver-upgrade"}, BEFORE, True, Changes()),
    "done already": ({**ENABLED, **PARKED}, BEFORE | MONITORED, True, Changes()),
    "a person put it back meanwhile": ({**ENABLED, **MONITORED}, BEFORE | MONITORED, True, Changes()),
    "over": ({**ENABLED, **PARKED}, BEFORE | MONITORED, False, Changes(labels=MONITORED, annotations=noted(BEFORE))),
    "over, and a person works on the driver": (
        {**ENABLED, **PARKED, LABEL_DRIVER: CLOSED},
        BEFORE | MONITORED,
        False,
        Changes(),
    ),
    "over, and the operator unloads the driver": (
        {**ENABLED, **PARKED, UPGRADE_STATE: UNLOADING},
        BEFORE | MONITORED,
        False,
        Changes(),
    ),
    "over, and a person changed one": (
        {**ENABLED, **PARKED, DCGM: "x"},
        BEFORE | MONITORED,
        False,
        Changes(labels={EXPORTER: "true"}, annotations=noted(BEFORE)),
    ),
    "disabled meanwhile, and a pod holds a device": (
        {LABEL_NODE_AGENT: "true", **RIVALS_OFF, **PARKED},
        BEFORE | MONITORED,
        True,
        Changes(labels=MONITORED, annotations=noted(BEFORE)),
    ),
    "a record that is not understood": ({**ENABLED, **MONITORED}, {"x": "y"}, True, Changes()),
}


@pytest.mark.parametrize(("labels", "record", "held_open", "expected"), CASES.values(), ids=CASES)
def test_labels_of_dcgm(labels: dict[str, str], record: dict[str, str], held_open: bool, expected: Changes) -> None:
    assert changes(labels, json.dumps(record), manage=True, released=False, held_open=held_open) == expected
    reported = changes(labels, json.dumps(record), manage=False, released=False, held_open=held_open)
    assert reported == changes(labels, json.dumps(record), manage=True, released=False, held_open=False)


def test_all_is_restored_where_the_node_is_handed_back() -> None:
    labels = {LABEL_NODE_AGENT: "true", **RIVALS_OFF, **PARKED}
    found = changes(labels, json.dumps(BEFORE | MONITORED), manage=True, released=True)
    assert found.labels == {LABEL_NODE_AGENT: None, **BEFORE, **MONITORED}
    assert found.annotations == {ANNOTATION_OPERATOR_LABELS: None}


def test_record_with_them_is_understood() -> None:
    assert values_before(json.dumps(BEFORE | MONITORED)) == BEFORE | MONITORED


def report(cluster: ApiCluster, state: str, reason: str, *, alive: str = "True") -> None:
    gpu = {"index": 0, "state": state, "reason": reason}
    uid = cluster.get_node()["metadata"]["uid"]
    found = status(gpu, node_uid=uid, conditions=[condition("AgentAlive", alive, "Heartbeat")])
    cluster.agent_status("n1", found)


def shown(cluster: ApiCluster) -> dict[str, str]:
    labels = cluster.get_node()["metadata"]["labels"]
    return {key: labels[key] for key in MONITORS}


def run(bench: Bench, work: NodeLabels) -> None:
    bench.load()
    bench.clock.now += 6
    work.run()


@pytest.fixture
def work(bench: Bench) -> NodeLabels:
    bench.cluster.node(node("n1", labels={LABEL_PARTITIONING: "mig", **BEFORE, **MONITORED}))
    bench.cluster.plan("n1")
    found = NodeLabels(bench.environment, manage_operator=True)
    run(bench, found)
    return found


@pytest.mark.parametrize(
    "after",
    [("Ready", "Confirmed", "True"), ("Failed", "HeldOpen", "True"), ("WaitingForRelease", "HeldOpen", "False")],
    ids=["done", "given up", "the agent is silent"],
)
@pytest.mark.parametrize(
    "crash", [None, "after it parked", "before it restores", *thorough("before it parks", "after it restored")]
)
def test_dcgm_leaves_for_the_change_and_comes_back(
    bench: Bench, work: NodeLabels, after: tuple[str, str, str], crash: str | None
) -> None:
    def turn(*crashes: str) -> NodeLabels:
        """One controller ends at this point, and another goes on."""
        if crash == crashes[0]:
            fault = bench.cluster.refuse("PATCH", paths.node("n1"), 503)
            run(bench, work)
            bench.cluster.server.faults.remove(fault)
        else:
            run(bench, work)
        if crash in crashes:
            other = Bench(bench.cluster)
            run(other, NodeLabels(other.environment, manage_operator=True))
        return work

    report(bench.cluster, "WaitingForRelease", "HeldOpen")
    turn("before it parks", "after it parked")
    assert shown(bench.cluster) == PARKED
    state, reason, alive = after
    report(bench.cluster, state, reason, alive=alive)
    turn("before it restores", "after it restored")
    assert shown(bench.cluster) == MONITORED
    record = bench.cluster.get_node()["metadata"]["annotations"][ANNOTATION_OPERATOR_LABELS]
    assert json.loads(record) == BEFORE


def test_dcgm_comes_back_where_people_decide_about_the_labels_from_now_on(bench: Bench, work: NodeLabels) -> None:
    report(bench.cluster, "WaitingForRelease", "HeldOpen")
    run(bench, work)
    assert shown(bench.cluster) == PARKED

    apply.merge_patch(bench.cluster.api, paths.plan("n1"), {"spec": {"devicePlugin": {"backend": "nvidia"}}})
    report(bench.cluster, "Ready", "Confirmed")
    run(bench, work)

    assert shown(bench.cluster) == MONITORED
    found = bench.cluster.get_node()["metadata"]
    assert json.loads(found["annotations"][ANNOTATION_OPERATOR_LABELS]) == BEFORE
    run(bench, work)
    assert bench.cluster.get_node()["metadata"]["resourceVersion"] == found["resourceVersion"]


def test_what_was_set_is_put_back_where_people_decide_about_all_labels_from_now_on(
    bench: Bench, work: NodeLabels
) -> None:
    """`operatorLabels: report` after `manage`: DCGM's at once, the others' with the node; a person's own stay."""
    report(bench.cluster, "WaitingForRelease", "HeldOpen")
    run(bench, work)
    assert shown(bench.cluster) == PARKED
    apply.merge_patch(bench.cluster.api, paths.node("n1"), {"metadata": {"labels": {EXPORTER: "x"}}})

    other = Bench(bench.cluster)
    reports = NodeLabels(other.environment, manage_operator=False)
    run(other, reports)
    assert shown(bench.cluster) == {DCGM: "true", EXPORTER: "x"}
    run(other, reports)
    assert shown(bench.cluster) == {DCGM: "true", EXPORTER: "x"}, "it is still held open"

    apply.merge_patch(bench.cluster.api, paths.node("n1"), {"metadata": {"labels": {LABEL_PARTITIONING: None}}})
    uid = bench.cluster.get_node()["metadata"]["uid"]
    bench.cluster.agent_status("n1", status(node_uid=uid, conditions=[condition("HandedBack", "True", "NodeDisabled")]))
    run(other, reports)
    found = bench.cluster.get_node()["metadata"]
    assert found["labels"] == {**BEFORE, DCGM: "true", EXPORTER: "x"}
    assert ANNOTATION_OPERATOR_LABELS not in found.get("annotations", {})


def test_waiting_for_a_pod_parks_nothing(bench: Bench, work: NodeLabels) -> None:
    report(bench.cluster, "WaitingForRelease", "WaitingForRelease")
    run(bench, work)
    assert shown(bench.cluster) == MONITORED


def test_without_manage_nothing_is_parked(bench: Bench) -> None:
    bench.cluster.node(node("n1", labels={LABEL_PARTITIONING: "mig", **BEFORE, **MONITORED}))
    bench.cluster.plan("n1")
    report(bench.cluster, "WaitingForRelease", "HeldOpen")
    run(bench, NodeLabels(bench.environment, manage_operator=False))
    assert shown(bench.cluster) == MONITORED
    apply.get(bench.cluster.api, paths.node("n1"))
