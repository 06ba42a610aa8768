"""`gpuplan plan -f` on dumps of `kubectl get nodes,pods,gpp -A -o yaml`: what counts, and what is left out, and why."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.__main__ import main
from cli.whatif import what_if
from controller.views import PlannerOptions
from tests.cli.plan_command import EXAMPLES, dump, layouts, places, planned, reasons
from tests.controller.objects import condition, confirmed, gpu, item, node, partition, pod, status
from tests.controller.objects import plan as plan_object


def test_a_dump_s_status_is_taken_as_settled_where_it_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw = plan_object(planned=[item(0, 0, 1)])
    slices = {"nvidia.com/mig-1g.10gb": "2"}
    objects = [node(**slices), {**raw, "status": confirmed(raw, used=[0])}, pod("holder", node="n1", phase="Running")]
    found = planned(capsys, dump(tmp_path, *objects, pod("one"), pod("two")))

    assert {one["name"]: one["supply"] for one in found["placed"]} == {"one": "existing", "two": "new"}
    (only,) = found["plans"]
    (gpu_item,) = only["spec"]["planned"]["gpus"]
    assert gpu_item["uuid"].startswith("GPU-")
    starts = [one["start"] for one in gpu_item["mig"]["instances"]]
    assert len(starts) == 3
    assert {0, 1} < set(starts)


def test_a_gpu_in_change_is_supply_under_way(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = plan_object(planned=[item(0, 0)])
    changing = status(gpu(0, state="Changing", item=item(0, 1)))
    found = planned(capsys, dump(tmp_path, node(), {**raw, "status": changing}, pod("one"), pod("two")))

    assert [one["supply"] for one in found["placed"]] == ["under-way"]
    assert list(reasons(found).values()) == ["ChangeUnderWay"]
    assert found["plans"] == []


def test_ready_without_proof_is_ready(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A status written by hand has no hash and no uid of the node."""
    raw = plan_object(planned=[item(0, 0)], status={"gpus": [gpu(0, partitions=[partition(0)])]})
    del raw["metadata"]["uid"]
    found = planned(capsys, dump(tmp_path, node(), raw, pod("one"), pod("two")))

    assert sorted(one["supply"] for one in found["placed"]) == ["new", "new"]


def test_a_status_about_an_earlier_node_says_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = plan_object(status=status(gpu(0), node_uid="an-earlier-one"))
    found = planned(capsys, dump(tmp_path, node(), raw, pod("one")))

    assert reasons(found) == {"one": "AwaitingAgent"}


def test_a_silent_agent_is_silent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    silent = condition("AgentAlive", "False", "AgentSilent")
    raw = plan_object(status=status(gpu(0), conditions=[silent]))
    found = planned(capsys, dump(tmp_path, node(), raw, pod("one")))

    assert reasons(found) == {"one": "AwaitingAgent"}


def test_a_node_without_a_plan_is_empty(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What its allocatable still shows of another partitioner is idle, and room like any other."""
    found = planned(capsys, dump(tmp_path, node(**{"nvidia.com/mig-7g.80gb": "1"}), pod("one")))

    assert [one["supply"] for one in found["placed"]] == ["new"]
    assert layouts(found) == {"n1": ["1g.10gb@6"]}


def test_where_pods_hold_slices_at_unknown_places_the_node_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slices = {"nvidia.com/mig-1g.10gb": "7"}
    objects = [node(**slices), pod("holder", node="n1", phase="Running"), node("n2"), pod("one")]
    found = planned(capsys, dump(tmp_path, *objects))

    assert places(found) == {"one": "n2"}
    (only,) = found["leftOut"]
    assert (only["kind"], only["name"]) == ("Node", "n1")
    assert "pods hold 1 x nvidia.com/mig-1g.10gb" in only["reason"]

    found = planned(capsys, dump(tmp_path, *objects[:2], pod("one")))
    assert reasons(found) == {"one": "AwaitingAgent"}
    assert "node n1 is left out: pods hold 1 x" in found["unplaced"][0]["message"]


def test_finished_pods_hold_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [node(), pod("done", node="n1", phase="Succeeded"), pod("ended", phase="Failed"), pod("one")]

    assert places(planned(capsys, dump(tmp_path, *objects))) == {"one": "n1"}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-Z9"}, "NVIDIA-Z9 is an unknown model"),
        ({"nvidia.com/gpu.product": None}, "label nvidia.com/gpu.product is missing"),
        ({"nvidia.com/gpu.count": "many"}, "'many' is not a number of GPUs"),
    ],
)
def test_an_odd_node_leaves_only_itself_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, labels: dict[str, str | None], words: str
) -> None:
    odd = node("odd")
    odd["metadata"]["labels"] = {k: v for k, v in {**odd["metadata"]["labels"], **labels}.items() if v is not None}
    found = planned(capsys, dump(tmp_path, odd, node("n2"), pod("one")))

    assert places(found) == {"one": "n2"}
    assert [(one["name"], words in one["reason"]) for one in found["leftOut"]] == [("odd", True)]


def test_an_object_that_nobody_can_read_leaves_only_itself_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = pod("broken")
    broken["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "lots"
    odd_plan = plan_object("n2")
    odd_plan["spec"]["gpus"] = "none"
    found = planned(capsys, dump(tmp_path, node(), node("n2"), odd_plan, broken, pod("one")))

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


def test_a_plan_without_its_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = planned(capsys, dump(tmp_path, plan_object("gone")))

    assert found["leftOut"] == [{"kind": "GPUPartitionPlan", "name": "gone", "reason": "its node is not in the files"}]


def test_a_pin_that_cannot_be_made_blocks_its_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pins = {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "7g.80gb", "count": 2}]}}]}
    found = planned(capsys, dump(tmp_path, node(), plan_object(spec=pins), pod("one")))

    assert reasons(found) == {"one": "Blocked"}


def test_pins_that_nobody_has_applied_yet_count_as_applied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pins = {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "count": 2}]}}]}
    objects = [node(), plan_object(spec=pins), pod("holder", node="n1"), pod("one"), pod("two")]
    found = planned(capsys, dump(tmp_path, *objects))

    assert [one["supply"] for one in found["placed"]] == ["existing"]
    assert len(found["unplaced"]) == 1


def test_priority_classes_decide_who_goes_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = {"nvidia.com/mig-7g.80gb": "1"}
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    pods = [pod("a", asks=whole), pod("z", asks=whole, priorityClassName="urgent")]
    found = planned(capsys, dump(tmp_path, node(), urgent, *pods))
    assert list(places(found)) == ["z"]

    found = planned(capsys, dump(tmp_path, node(), *pods))
    assert list(places(found)) == ["a"]
    assert found["remarks"] == ["PriorityClass urgent is not in the files: its pods count with priority 0"]


def test_a_manifest_s_pod_comes_after_those_of_the_dump(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = {"nvidia.com/mig-7g.80gb": "1"}
    old, new = pod("z", asks=whole), pod("a", asks=whole)
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    del new["metadata"]["uid"], new["status"]
    found = planned(capsys, dump(tmp_path, node(), old), dump(tmp_path, new, name="new.yaml"))

    assert list(places(found)) == ["z"]


def test_a_nomination_in_a_dump_is_taken_for_ours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """kubectl shows no managedFields, so that ours cannot be told from a scheduler's, which would mean preemption."""
    nominated = pod("one", nominated="n1")
    assert places(planned(capsys, dump(tmp_path, node(), nominated))) == {"one": "n1"}

    nominated["metadata"]["managedFields"] = []
    assert reasons(planned(capsys, dump(tmp_path, node(), nominated))) == {"one": "Preempting"}


@pytest.mark.parametrize(("profile", "mode"), [("mig-1g.10gb", "on"), ("gpu-10gb", "off")])
def test_auto_takes_the_mode_that_pods_ask_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, profile: str, mode: str
) -> None:
    found = planned(capsys, dump(tmp_path, node(mode="auto"), pod("one", asks={f"nvidia.com/{profile}": "1"})))

    assert places(found) == {"one": "n1"}
    assert found["remarks"] == [f"node n1 is labelled auto: MIG mode is taken as {mode}"]


def test_json_lists_of_one_kind_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = {key: value for key, value in pod("one").items() if key not in ("apiVersion", "kind")}
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [bare]})
    monkeypatch.setattr("sys.stdin", io.StringIO(text))

    assert places(planned(capsys, dump(tmp_path, node()), "-")) == {"one": "n1"}


def test_the_same_files_give_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (planned(capsys, EXAMPLES / "mig") for _ in range(2))

    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_what_is_written_can_be_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The planned objects applied: everybody is served by what is there, and nothing more is to be written."""
    first = planned(capsys, EXAMPLES / "mig")
    second = planned(capsys, EXAMPLES / "mig", dump(tmp_path, *first["plans"]))

    assert places(second) == places(first)
    assert {one["supply"] for one in second["placed"]} == {"existing"}
    assert second["plans"] == []


def test_what_filters_read_beside_pods_and_nodes() -> None:
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
    assert context.dra_resources == {"nvidia.com/mig-1g.10gb"}
    assert list(context.workloads or ()) == [("StatefulSet", "default", "db")]
    assert context.services == {}
    assert (context.claims, context.volumes) == (None, None)


def test_odd_labels_are_remarked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = node(mode="migs")
    found = planned(capsys, dump(tmp_path, odd, pod("one")))

    assert reasons(found) == {"one": "Blocked"}
    (remark,) = found["remarks"]
    assert remark.startswith("node n1: label gpuplan.dev/gpu-partitioning=migs is not understood")


# ------------------------------------------------------------------------------------------- forms of dumps


def cluster() -> list[Any]:
    return [node(), pod("one"), pod("two")]


@pytest.mark.parametrize("form", ["nested", "typed", "concatenated", "documents", "mixed"])
def test_the_same_cluster_in_other_forms(form: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, *others = cluster()
    typed = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in others]
    texts = {
        "nested": yaml.safe_dump(listed(listed(first), listed(listed(*others)))),
        "typed": yaml.safe_dump_all([listed(first), {"apiVersion": "v1", "kind": "PodList", "items": typed}]),
        "concatenated": json.dumps(listed(first), indent=1) + "\n" + json.dumps(listed(*others)) + "\n",
        "documents": yaml.safe_dump_all([first, None, *others]),
        "mixed": yaml.safe_dump_all([listed(first), *others]),
    }
    path = tmp_path / "dump.yaml"
    path.write_text(texts[form])

    assert places(planned(capsys, path)) == {"one": "n1", "two": "n1"}


def listed(*objects: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects), "metadata": {"resourceVersion": ""}}


def test_the_dump_of_an_empty_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = planned(capsys, dump(tmp_path))

    assert (found["placed"], found["unplaced"], found["plans"], found["bound"]) == ([], [], [], 0)


def refusal(capsys: pytest.CaptureFixture[str], path: Path) -> list[str]:
    assert main(["plan", "-f", str(path)]) == 2
    return capsys.readouterr().err.splitlines()


def test_files_that_were_put_together_without_a_line_between(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first one's objects would be lost."""
    first, *others = cluster()
    path = tmp_path / "both.yaml"
    texts = [yaml.safe_dump(json.loads(json.dumps(one))) for one in (listed(first), listed(*others))]
    path.write_text("".join(texts))

    (line,) = refusal(capsys, path)
    assert "apiVersion is there twice in one mapping; documents are separated by ---" in line


def test_a_key_that_overrides_a_merged_one_is_not_there_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text(yaml.safe_dump_all(cluster()) + "---\nx: &x {kind: A}\n<<: *x\nkind: ConfigMap\n")

    assert len(planned(capsys, path)["placed"]) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": None}, "spec: is missing: a Pod without one cannot be planned for"),
        ({"spec": {"containers": None}}, "spec.containers: must be a list of containers"),
        ({"spec": {"containers": ["c"]}}, "spec.containers: must be a list of containers"),
        ({"status": "Pending"}, "status: must be a mapping"),
        ({"metadata": {"uid": "u"}}, "metadata.name: is missing: every object has one"),
        ({"metadata": None}, "metadata: None is not of type 'object'"),
        ({"metadata": {"uid": "u", "name": "p", "labels": ["a"]}}, "metadata.labels: must be a mapping of texts"),
        (
            {"metadata": {"uid": "u", "name": "p", "creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp: 'yesterday' is not a time such as",
        ),
        ({"kind": "PriorityClass", "value": "high"}, "value: 'high' is not a whole number"),
    ],
)
def test_a_broken_object_is_named_with_field_and_remedy(
    change: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = refusal(capsys, dump(tmp_path, node(), {**pod("one"), **change}))

    assert lines[0].startswith(f"gpuplan: {tmp_path}/dump.yaml: document 0.items[1]: {said}")


def test_a_node_that_is_being_deleted_is_not_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = node()
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert reasons(planned(capsys, dump(tmp_path, raw, pod("one")))) == {"one": "Blocked"}


def test_every_way_to_write_a_quantity(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A dump that somebody has taken the uids out of is checked as a manifest is."""
    raw = node(cpu="96e0", memory="1E12", **{"ephemeral-storage": ".5Gi"})
    del raw["metadata"]["uid"]
    raw["status"]["capacity"] = {"cpu": "95999999u", "memory": "+1.e3"}

    assert places(planned(capsys, dump(tmp_path, raw, pod("one")))) == {"one": "n1"}


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


def test_what_the_known_geometries_forbid_is_not_said_to_be_offered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known, config = tmp_path / "known.yaml", tmp_path / "config.yaml"
    known.write_text("- {models: [NVIDIA-H100-80GB-HBM3], allowedGeometries: [{3g.40gb: 2}, {7g.80gb: 1}]}")
    config.write_text(f"knownMigGeometriesFile: {known}")
    found = planned(capsys, dump(tmp_path, *cluster()), config=config)

    for one in found["unplaced"]:
        assert "NVIDIA-H100-80GB-HBM3 offers 3g.40gb, 7g.80gb (by knownMigGeometries)" in one["message"]
    assert reasons(found) == {"one": "Blocked", "two": "Blocked"}


def test_what_is_left_to_dra_is_told_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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
        pod("mapped", asks={"nvidia.com/mig-2g.20gb": "1"}),
        pod("whole", asks=whole),
        pod("both", asks=whole, resourceClaims=[{"name": "x", "resourceClaimName": "c"}]),
        pod("ours"),
    ]
    found = planned(capsys, dump(tmp_path, node(), *pods, *classes))

    assert places(found) == {"ours": "n1"}
    assert reasons(found) == dict.fromkeys(("claim", "template", "mapped", "whole", "both"), "NotServed")
    assert all("DRA serves" in one["message"] for one in found["unplaced"])


def test_a_few_of_the_nodes_that_are_left_out_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = [node(f"n{number}") for number in range(5)]
    for raw in nodes:
        raw["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-Z9"
    found = planned(capsys, dump(tmp_path, *nodes, pod("one")))

    (message,) = (one["message"] for one in found["unplaced"])
    assert "node n0 is left out: nvidia.com/gpu.product=NVIDIA-Z9 is an unknown model" in message
    assert message.endswith("; nodes left out in all: 5")
    assert [one["name"] for one in found["leftOut"]] == [f"n{number}" for number in range(5)]
