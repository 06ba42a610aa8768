"""`gpuplan plan -f` on dumps of a cluster: which nodes and pods count, in which order, what is left out, and why."""

from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.whatif import what_if
from controller.model.views import PlannerOptions
from tests.builders.objects import node, pod
from tests.builders.objects import plan as plan_object
from tests.cli.plan_command import EXAMPLES, cluster, dump, places, planned, reasons


def test_finished_pods_hold_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [node(), pod("done", node="n1", phase="Succeeded"), pod("ended", phase="Failed"), pod("one")]

    assert places(planned(capsys, dump(tmp_path, *objects))) == {"one": "n1"}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-Z9"}, "NVIDIA-Z9 is no model of known MIG placements"),
        ({"nvidia.com/gpu.product": None}, "label nvidia.com/gpu.product is missing"),
        ({"nvidia.com/gpu.count": "many"}, "'many' is not a number of GPUs"),
    ],
)
def test_an_unusable_node_leaves_only_itself_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, labels: dict[str, str | None], words: str
) -> None:
    odd = node("odd")
    odd["metadata"]["labels"] = {k: v for k, v in {**odd["metadata"]["labels"], **labels}.items() if v is not None}
    found = planned(capsys, dump(tmp_path, odd, node("n2"), pod("one")))

    assert places(found) == {"one": "n2"}
    assert [(one["name"], words in one["reason"]) for one in found["leftOut"]] == [("odd", True)]


def test_a_few_of_the_nodes_that_are_left_out_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = [node(f"n{number}") for number in range(5)]
    for raw in nodes:
        raw["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-Z9"
    found = planned(capsys, dump(tmp_path, *nodes, pod("one")))

    (message,) = (one["message"] for one in found["unplaced"])
    assert "node n0 is left out: nvidia.com/gpu.product=NVIDIA-Z9 is no model of known MIG placements" in message
    assert message.endswith("; nodes left out in all: 5")
    assert [one["name"] for one in found["leftOut"]] == [f"n{number}" for number in range(5)]


def test_an_unreadable_object_leaves_only_itself_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = pod("broken")
    broken["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "lots"
    odd_plan = plan_object("n2")
    odd_plan["spec"]["gpus"] = "none"
    found = planned(capsys, dump(tmp_path, node(), node("n2"), odd_plan, broken, pod("one")), expected=2)

    assert places(found) == {"one": "n1"}
    assert {(one["kind"], one["name"]) for one in found["leftOut"]} == {
        ("Pod", "default/broken"),
        ("GPUPartitionPlan", "n2"),
    }


def test_a_node_that_is_not_enabled_is_named_with_the_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = planned(capsys, dump(tmp_path, node(mode=None), pod("one")))

    assert reasons(found) == {"one": "Blocked"}
    assert "gpuplan.dev/gpu-partitioning" in found["unplaced"][0]["message"]


def test_unknown_labels_are_remarked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = node(mode="migs")
    found = planned(capsys, dump(tmp_path, odd, pod("one")))

    assert reasons(found) == {"one": "Blocked"}
    (remark,) = found["remarks"]
    assert remark.startswith("node n1: label gpuplan.dev/gpu-partitioning=migs is not understood")


@pytest.mark.parametrize(("profile", "mode"), [("mig-1g.10gb", "on"), ("gpu-10gb", "off")])
def test_auto_takes_the_mode_that_pods_request(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, profile: str, mode: str
) -> None:
    found = planned(capsys, dump(tmp_path, node(mode="auto"), pod("one", requests={f"nvidia.com/{profile}": "1"})))

    assert places(found) == {"one": "n1"}
    assert found["remarks"][0] == f"node n1 is labelled auto: MIG mode is taken as {mode}"


def test_a_node_that_is_being_deleted_is_not_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = node()
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert reasons(planned(capsys, dump(tmp_path, raw, pod("one")))) == {"one": "Blocked"}


def test_priority_classes_decide_which_pod_comes_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = {"nvidia.com/mig-7g.80gb": "1"}
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    pods = [pod("a", requests=whole), pod("z", requests=whole, priorityClassName="urgent")]
    found = planned(capsys, dump(tmp_path, node(), urgent, *pods))
    assert list(places(found)) == ["z"]

    found = planned(capsys, dump(tmp_path, node(), *pods))
    assert list(places(found)) == ["a"]
    assert found["remarks"] == ["PriorityClass urgent is not in the files: its pods count with priority 0"]


def test_a_manifest_s_pod_comes_after_those_of_the_dump(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = {"nvidia.com/mig-7g.80gb": "1"}
    old, new = pod("z", requests=whole), pod("a", requests=whole)
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    del new["metadata"]["uid"], new["status"]
    found = planned(capsys, dump(tmp_path, node(), old), dump(tmp_path, new, name="new.yaml"))

    assert list(places(found)) == ["z"]


def test_a_nomination_in_a_dump_counts_as_gpuplan_s(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """kubectl shows no managedFields, so that ours looks like a scheduler's, which means preemption."""
    nominated = pod("one", nominated="n1")
    assert places(planned(capsys, dump(tmp_path, node(), nominated))) == {"one": "n1"}

    nominated["metadata"]["managedFields"] = []
    assert reasons(planned(capsys, dump(tmp_path, node(), nominated))) == {"one": "Preempting"}


def test_what_filters_read_in_addition_to_pods_and_nodes() -> None:
    def thing(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **more.pop("metadata", {})}, **more}

    labelled = {"labels": {"team": "blue"}}
    context = what_if(
        [
            thing("Namespace", "blue", metadata=labelled),
            thing("StorageClass", "fast", volumeBindingMode="WaitForFirstConsumer"),
            thing("DeviceClass", "gpus", spec={"extendedResourceName": "nvidia.com/mig-1g.10gb"}),
            thing("StatefulSet", "db", spec={"selector": {"matchLabels": {"app": "db"}}}),
            thing("Service", "broken"),
        ],
        PlannerOptions(),
    ).snapshot.context

    assert context.namespaces == {"blue": {"team": "blue"}}
    assert context.storage_classes is not None
    assert context.storage_classes["fast"].delayed
    assert context.dra_resources == {"nvidia.com/mig-1g.10gb", "deviceclass.resource.kubernetes.io/gpus"}
    assert list(context.workloads or ()) == [("StatefulSet", "default", "db")]
    assert context.services == {}
    assert (context.claims, context.volumes) == (None, None)


def test_what_is_left_to_dra_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = {"nvidia.com/gpu": "1"}
    classes = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": resource.rpartition("/")[2]},
            "spec": {"extendedResourceName": resource},
        }
        for resource in ("nvidia.com/gpu", "nvidia.com/mig-2g.20gb")
    ]
    pods = [
        pod("claim", resourceClaims=[{"name": "x", "resourceClaimName": "c"}]),
        pod("template", resourceClaims=[{"name": "x", "resourceClaimTemplateName": "c"}]),
        pod("mapped", requests={"nvidia.com/mig-2g.20gb": "1"}),
        pod("whole", requests=whole),
        pod("both", requests=whole, resourceClaims=[{"name": "x", "resourceClaimName": "c"}]),
        pod("ours"),
    ]
    found = planned(capsys, dump(tmp_path, node(), *pods, *classes))

    assert places(found) == {"mapped": "n1", "ours": "n1"}
    assert reasons(found) == dict.fromkeys(("claim", "template", "whole", "both"), "NotServed")
    assert all("DRA serves" in one["message"] for one in found["unplaced"])


def test_what_the_known_geometries_forbid_is_not_reported_as_available(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known, config = tmp_path / "known.yaml", tmp_path / "config.yaml"
    known.write_text("- {models: [NVIDIA-H100-80GB-HBM3], allowedGeometries: [{3g.40gb: 2}, {7g.80gb: 1}]}")
    config.write_text(f"knownMigGeometriesFile: {known}")
    found = planned(capsys, dump(tmp_path, *cluster()), config=config)

    for one in found["unplaced"]:
        assert "NVIDIA-H100-80GB-HBM3 offers mig-3g.40gb, mig-7g.80gb (by knownMigGeometriesFile)" in one["message"]
    assert reasons(found) == {"one": "Blocked", "two": "Blocked"}


def test_the_same_files_give_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (planned(capsys, EXAMPLES / "mig") for _ in range(2))

    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_lines_fit_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = node()
    raw["spec"] = {"unschedulable": True}
    path = dump(tmp_path, raw, *(pod(f"p{number}") for number in range(3)))
    for columns, most in (("80", 80), ("100", 100), ("300", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["plan", "-f", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert most - 25 < max(map(len, lines)) <= most


@pytest.mark.parametrize("count", ["17", "0", "four"])
@pytest.mark.parametrize("product", ["NVIDIA-A16", "NVIDIA-L40S"])
def test_a_wrong_number_of_gpus_is_named_for_any_card(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, count: str, product: str
) -> None:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": count, "nvidia.com/gpu.memory": "15356"}
    version = {"nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "6"}
    odd = node(labels={"gpuplan.dev/gpu-partitioning": "mps", **labels, **version})
    (left,) = planned(capsys, dump(tmp_path, odd))["leftOut"]
    assert "nvidia.com/gpu.count" in left["reason"]
    assert "number of GPUs from 1 to 16" in left["reason"]
