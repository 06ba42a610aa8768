"""Labels that the controller writes on Nodes, on an API server: its own, and the GPU Operator's with operatorLabels."""

import json
from typing import Any

import pytest

from controller.actions.node_labels import Changes, NodeLabels, changes, values_before
from crds.v1alpha1 import paths
from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN, MIG_MANAGER, OPERANDS
from crds.v1alpha1.names import ANNOTATION_OPERATOR_LABELS, LABEL_NODE_AGENT, LABEL_PARTITIONING
from kube import apply
from kube.patches import metadata_patch
from tests.builders.objects import condition, node, status
from tests.controller.cluster import ApiCluster, Bench

VALIDATOR = "nvidia.com/gpu.deploy.operator-validator"
OPERATOR = {DEVICE_PLUGIN: "true", MIG_MANAGER: "true", VALIDATOR: "true"}
OFF = {DEVICE_PLUGIN: "false", MIG_MANAGER: "false"}
ENABLED, HERE = {LABEL_PARTITIONING: "mig"}, {LABEL_NODE_AGENT: "true"}
BOTH_WERE_ON = json.dumps({DEVICE_PLUGIN: "true", MIG_MANAGER: "true"})
NOTHING, FORGOTTEN = Changes(), {ANNOTATION_OPERATOR_LABELS: None}


def restored(**labels: str | None) -> Changes:
    keys = {"device_plugin": DEVICE_PLUGIN, "mig_manager": MIG_MANAGER}
    found = {LABEL_NODE_AGENT: None, **{keys[name]: value for name, value in labels.items()}}
    return Changes(labels=found, annotations={ANNOTATION_OPERATOR_LABELS: None})


def switched_off(before: dict[str, str | None], **more: str) -> Changes:
    labels = {**HERE, **more, **dict.fromkeys(before, "false")}
    return Changes(labels=labels, annotations={ANNOTATION_OPERATOR_LABELS: json.dumps(before)})


ENABLING = {
    "a node without the operator": (ENABLED, None, Changes(labels=HERE)),
    "both were on": ({**ENABLED, **OPERATOR}, None, switched_off({DEVICE_PLUGIN: "true", MIG_MANAGER: "true"})),
    "one was absent": (
        {**ENABLED, VALIDATOR: "true"},
        None,
        switched_off({DEVICE_PLUGIN: None, MIG_MANAGER: None}),
    ),
    "one was empty": (
        {**ENABLED, **OPERATOR, MIG_MANAGER: ""},
        None,
        switched_off({DEVICE_PLUGIN: "true", MIG_MANAGER: ""}),
    ),
    "a person had one off": (
        {**ENABLED, **OPERATOR, MIG_MANAGER: "false"},
        None,
        switched_off({DEVICE_PLUGIN: "true"}),
    ),
    "a person had both off": ({**ENABLED, **OPERATOR, **OFF}, None, switched_off({})),
    "the operator has paused one": (
        {**ENABLED, **OPERATOR, DEVICE_PLUGIN: "paused-for-driver-upgrade"},
        None,
        Changes(labels=HERE),
    ),
    "done already": ({**ENABLED, **HERE, **OPERATOR, **OFF}, BOTH_WERE_ON, NOTHING),
    "a person put one back since": ({**ENABLED, **HERE, **OPERATOR, **OFF, MIG_MANAGER: "true"}, BOTH_WERE_ON, NOTHING),
    "a person set a label that was off before": ({**ENABLED, **HERE, **OPERATOR}, "{}", NOTHING),
    "the operator came later": (
        {**ENABLED, **HERE, **OPERATOR},
        None,
        Changes(labels=OFF, annotations={ANNOTATION_OPERATOR_LABELS: BOTH_WERE_ON}),
    ),
    "the operator has left": ({**ENABLED, **HERE, OPERANDS: "false"}, BOTH_WERE_ON, Changes(annotations=FORGOTTEN)),
    "the operator may place nothing": ({**ENABLED, **HERE, OPERANDS: "false"}, None, NOTHING),
}
DISABLED = {
    "both were on": ({**HERE, **OPERATOR, **OFF}, BOTH_WERE_ON, restored(device_plugin="true", mig_manager="true")),
    "one was absent": (
        {**HERE, **OFF},
        json.dumps({DEVICE_PLUGIN: "true", MIG_MANAGER: None}),
        restored(device_plugin="true", mig_manager=None),
    ),
    "a person changed one since": (
        {**HERE, **OFF, MIG_MANAGER: "true"},
        json.dumps({DEVICE_PLUGIN: "true", MIG_MANAGER: None}),
        restored(device_plugin="true"),
    ),
    "a person removed one since": (
        {**HERE, DEVICE_PLUGIN: "false"},
        BOTH_WERE_ON,
        restored(device_plugin="true"),
    ),
    "nothing was changed": ({**HERE, **OFF}, "{}", restored()),
    "there is no operator": (HERE, None, Changes(labels={LABEL_NODE_AGENT: None})),
    "what was there cannot be read": ({**HERE, **OFF}, "[]", Changes(labels={LABEL_NODE_AGENT: None})),
    "a person took our label": (
        {**OPERATOR, **OFF},
        BOTH_WERE_ON,
        Changes(labels=dict.fromkeys(OFF, "true"), annotations=restored().annotations),
    ),
    "a person changed our label": (
        {LABEL_NODE_AGENT: "false", **OPERATOR, **OFF},
        BOTH_WERE_ON,
        restored(device_plugin="true", mig_manager="true"),
    ),
    "a node that never was ours": (OPERATOR, None, NOTHING),
}


@pytest.mark.parametrize(("labels", "record", "expected"), ENABLING.values(), ids=ENABLING)
def test_enabled_node(labels: dict[str, str], record: str | None, expected: Changes) -> None:
    assert changes(labels, record, manage=True, released=False) == expected


@pytest.mark.parametrize(("labels", "record", "expected"), DISABLED.values(), ids=DISABLED)
def test_disabled_node_that_no_pod_uses(labels: dict[str, str], record: str | None, expected: Changes) -> None:
    assert changes(labels, record, manage=True, released=True) == expected


def test_a_label_of_ours_that_keeps_no_agent_there_waits_for_none() -> None:
    """It selects no DaemonSet, so that no agent could ever report that the node may be handed back."""
    labels, record, expected = DISABLED["a person changed our label"]
    assert changes(labels, record, manage=True, released=False) == expected


@pytest.mark.parametrize(("labels", "record", "_"), [*ENABLING.values(), *DISABLED.values()])
def test_by_default_no_label_but_its_own_is_written(labels: dict[str, str], record: str | None, _: Changes) -> None:
    """Where `manage` had set some before, they are put back."""
    for released in (False, True):
        found = changes(labels, record, manage=False, released=released)
        assert found.labels.keys() <= {LABEL_NODE_AGENT} | (values_before(record or "{}") or {}).keys()
        assert "false" not in found.labels.values()
        assert set(found.annotations.values()) <= {None}


@pytest.mark.parametrize(("labels", "record", "_"), [*ENABLING.values(), *DISABLED.values()])
@pytest.mark.parametrize("manage", [False, True])
def test_what_was_written_is_not_written_again(
    labels: dict[str, str], record: str | None, _: Changes, manage: bool
) -> None:
    found = changes(labels, record, manage=manage, released=True)
    after = {key: value for key, value in {**labels, **found.labels}.items() if value is not None}
    note = found.annotations.get(ANNOTATION_OPERATOR_LABELS, record)
    assert not changes(after, note, manage=manage, released=True)


@pytest.mark.parametrize(
    "labels", [HERE, {**HERE, LABEL_PARTITIONING: "mgi"}, {**HERE, "nos.nebuly.com/gpu-partitioning": "mig"}]
)
def test_nothing_is_handed_back_that_is_in_use_or_enabled(labels: dict[str, str]) -> None:
    """Nor where a label is not understood, whatever the agent has reported."""
    released = labels is not HERE
    assert not changes({**labels, **OFF}, BOTH_WERE_ON, manage=True, released=released)


@pytest.mark.parametrize(
    "record",
    [
        "",
        "no JSON",
        "[]",
        '{"kubernetes.io/hostname": "x"}',
        json.dumps({DEVICE_PLUGIN: 1}),
        f'{{"{MIG_MANAGER}": "a b"}}',
    ],
)
def test_record_that_a_person_has_spoilt_is_not_followed(record: str) -> None:
    assert values_before(record) is None


def labels_of(cluster: ApiCluster) -> dict[str, str]:
    found: dict[str, str] = cluster.get_node()["metadata"]["labels"]
    return found


def relabel(cluster: ApiCluster, **labels: str | None) -> None:
    keys = {"mode": LABEL_PARTITIONING, "plugin": DEVICE_PLUGIN, "manager": MIG_MANAGER}
    found = {keys[name]: value for name, value in labels.items()}
    apply.merge_patch(cluster.api, paths.node("n1"), {"metadata": {"labels": found}})


def report(cluster: ApiCluster, handed_back: str, *, uid: str = "") -> None:
    """What the agent reports."""
    found = condition("HandedBack", handed_back, "NodeDisabled")
    own = uid or cluster.get_node()["metadata"]["uid"]
    cluster.agent_status("n1", status(node_uid=own, conditions=[found]))


@pytest.fixture
def with_operator(bench: Bench) -> NodeLabels:
    bench.cluster.node(node("n1", labels={**OPERATOR, **ENABLED}))
    bench.cluster.plan("n1")
    return NodeLabels(bench.environment, manage_operator=True)


def run(bench: Bench, work: NodeLabels) -> None:
    bench.load()
    bench.clock.now += 6
    work.run()


def test_from_enabled_to_handed_back(bench: Bench, with_operator: NodeLabels) -> None:
    run(bench, with_operator)
    assert labels_of(bench.cluster) == {**OPERATOR, **OFF, **ENABLED, **HERE}
    version = bench.cluster.get_node()["metadata"]["resourceVersion"]
    run(bench, with_operator)
    assert bench.cluster.get_node()["metadata"]["resourceVersion"] == version

    relabel(bench.cluster, mode=None)
    report(bench.cluster, "False")
    run(bench, with_operator)
    assert labels_of(bench.cluster) == {**OPERATOR, **OFF, **HERE}, "a pod holds a device"

    report(bench.cluster, "True")
    run(bench, with_operator)
    assert labels_of(bench.cluster) == OPERATOR
    assert ANNOTATION_OPERATOR_LABELS not in bench.cluster.get_node()["metadata"].get("annotations", {})
    assert bench.errors("labels") == 0


def test_another_controller_goes_on_where_one_was_killed(bench: Bench, with_operator: NodeLabels) -> None:
    run(bench, with_operator)
    relabel(bench.cluster, mode=None)
    report(bench.cluster, "True")

    other = Bench(bench.cluster)
    run(other, NodeLabels(other.environment, manage_operator=True))
    run(bench, with_operator)

    assert labels_of(bench.cluster) == OPERATOR
    assert bench.errors("labels") == other.errors("lifecycle") == 0


def test_word_about_an_earlier_node_of_that_name_is_not_believed(bench: Bench, with_operator: NodeLabels) -> None:
    run(bench, with_operator)
    relabel(bench.cluster, mode=None)
    report(bench.cluster, "True", uid="another")
    run(bench, with_operator)
    assert labels_of(bench.cluster) == {**OPERATOR, **OFF, **HERE}


@pytest.mark.parametrize("meanwhile", [{"mode": "mig"}, {"plugin": "x"}])
def test_what_a_person_writes_meanwhile_is_not_lost(
    bench: Bench, with_operator: NodeLabels, meanwhile: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the controller's reading and its patch."""
    run(bench, with_operator)
    relabel(bench.cluster, mode=None)
    report(bench.cluster, "True")
    bench.load()
    bench.clock.now += 6

    def patch(raw: Any, **wanted: Any) -> list[dict[str, Any]]:
        relabel(bench.cluster, **meanwhile)
        return metadata_patch(raw, **wanted)

    with monkeypatch.context() as patched:
        patched.setattr("controller.actions.node_labels.metadata_patch", patch)
        with_operator.run()

    assert labels_of(bench.cluster) == {**OPERATOR, **OFF, **HERE} | {
        {"mode": LABEL_PARTITIONING, "plugin": DEVICE_PLUGIN}[name]: value for name, value in meanwhile.items()
    }
    run(bench, with_operator)
    assert labels_of(bench.cluster).get(DEVICE_PLUGIN) == ("false" if "mode" in meanwhile else "x")
    assert bench.errors("labels") == 0


def test_what_was_reported_and_taken_back_is_not_believed(bench: Bench, with_operator: NodeLabels) -> None:
    """The watch of plans is behind: the plan is read again, after the Node."""
    run(bench, with_operator)
    relabel(bench.cluster, mode=None)
    report(bench.cluster, "True")
    bench.load()
    bench.clock.now += 6
    report(bench.cluster, "False")
    with_operator.run()
    assert labels_of(bench.cluster) == {**OPERATOR, **OFF, **HERE}


def test_refused_write_is_reported_once_and_tried_again(bench: Bench, with_operator: NodeLabels) -> None:
    fault = bench.cluster.refuse("PATCH", paths.node("n1"), 403)
    for _ in range(3):
        run(bench, with_operator)
    assert bench.errors("labels") == 1
    assert labels_of(bench.cluster) == {**OPERATOR, **ENABLED}

    bench.cluster.server.faults.remove(fault)
    bench.clock.now += 60
    run(bench, with_operator)
    assert labels_of(bench.cluster) == {**OPERATOR, **OFF, **ENABLED, **HERE}


def test_controller_that_does_not_lead_writes_nothing(bench: Bench, with_operator: NodeLabels) -> None:
    bench.leads = False
    run(bench, with_operator)
    assert labels_of(bench.cluster) == {**OPERATOR, **ENABLED}
