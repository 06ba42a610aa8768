"""`gpuplan plan -f` on dumps in every form that kubectl or a person writes, and the sentence where one is broken."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.__main__ import main
from tests.builders.objects import container, node, pod
from tests.cli.plan_command import cluster, dump, places, planned


def listed(*objects: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects), "metadata": {"resourceVersion": ""}}


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


def test_json_lists_of_one_kind_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = {key: value for key, value in pod("one").items() if key not in ("apiVersion", "kind")}
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [bare]})
    monkeypatch.setattr("sys.stdin", io.StringIO(text))

    assert places(planned(capsys, dump(tmp_path, node()), "-")) == {"one": "n1"}


def test_the_dump_of_an_empty_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = planned(capsys, dump(tmp_path))

    assert (found["placed"], found["unplaced"], found["plans"], found["bound"]) == ([], [], [], 0)


def test_every_way_to_write_a_quantity(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A dump without uids is checked as a manifest is."""
    raw = node(allocatable={"cpu": "96e0", "memory": "1E12", "ephemeral-storage": ".5Gi"})
    del raw["metadata"]["uid"]
    raw["status"]["capacity"] = {"cpu": "95999999u", "memory": "+1.e3"}

    assert places(planned(capsys, dump(tmp_path, raw, pod("one")))) == {"one": "n1"}


def test_a_key_that_overrides_a_merged_one_is_not_there_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text(yaml.safe_dump_all(cluster()) + "---\nx: &x {kind: A}\n<<: *x\nkind: ConfigMap\n")

    assert len(planned(capsys, path)["placed"]) == 2


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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"spec": None}, "spec: is missing: a Pod without one cannot be planned for"),
        ({"spec": {"containers": None}}, "spec.containers: must be a list of containers"),
        ({"spec": {"containers": ["c"]}}, "spec.containers: must be a list of containers"),
        ({"status": "Pending"}, "status: must be a mapping"),
        ({"metadata": {"uid": "u"}}, "metadata.name: is missing: every object has one"),
        ({"metadata": None}, "(the document): 'metadata' is a required property"),
        ({"metadata": {"uid": "u", "name": "p", "labels": ["a"]}}, "metadata.labels: must be a mapping of texts"),
        ({"metadata": {"uid": "u", "name": "p", "annotations": {"a": 1}}}, "metadata.annotations: must be a mapping"),
        (
            {"metadata": {"uid": "u", "name": "p", "labels": {"nvidia.com/gpu.count": 2}}},
            "metadata.labels: must be a mapping of texts: quote the values",
        ),
        (
            {"metadata": {"uid": "u", "name": "p", "labels": {"nvidia.com/gpu.count": "9" * 5000}}},
            "metadata.labels: a value has more than 63 characters",
        ),
        (
            {"metadata": {"uid": "u", "name": "p", "creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp: 'yesterday' is not a time such as",
        ),
        ({"kind": "PriorityClass", "value": "high"}, "value: 'high' is not a whole number"),
    ],
)
def test_a_broken_object_is_named_with_field_and_remedy(
    change: dict[str, Any], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = refusal(capsys, dump(tmp_path, node(), {**pod("one"), **change}))

    assert lines[0].startswith(f"gpuplan: {tmp_path}/dump.yaml: document 0.items[1]: {problem}")


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": [], "priority": "high"}},
        {"spec": {"containers": [], "priority": [1]}},
    ],
)
def test_a_value_that_no_pod_has_costs_that_pod_alone(
    change: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = planned(capsys, dump(tmp_path, node(), pod("one"), {**pod("odd"), **change}))

    assert places(found) == {"one": "n1"}
    assert [one["name"] for one in found["leftOut"]] == ["default/odd"]


def test_an_amount_of_thousands_of_digits_is_none_that_a_node_offers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw = node(allocatable={"example.com/odd": "9" * 5000})
    holder = pod("held", requests={"nvidia.com/gpu": 1}, node="n1", phase="Running")

    assert planned(capsys, dump(tmp_path, raw, holder, pod("one")))["leftOut"] == []


def test_a_name_that_no_terminal_can_show_is_printed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(listed(node(), pod("\ud800"))))
    command = [sys.executable, "-m", "cli", "plan", "-f", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert "\\ud800" in done.stdout


@pytest.mark.parametrize(
    ("api", "spec"),
    [
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"basic": {}}}),
        ("scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 2}),
    ],
)
def test_a_pod_group_in_the_dump_tells_how_many_of_its_pods_must_start(
    api: str, spec: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pods = [pod(name, requests={"nvidia.com/mig-7g.80gb": 1}) for name in ("one", "two", "three")]
    for one in pods:
        if api.startswith("scheduling.k8s.io"):
            one["spec"]["schedulingGroup"] = {"podGroupName": "train"}
        else:
            one["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    group = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": "train", "namespace": "default"}, "spec": spec}

    nodes = [node("n1"), node("n2")]

    assert len(planned(capsys, dump(tmp_path, *nodes, *pods, group))["placed"]) == 2


@pytest.mark.parametrize(
    ("priority", "amount", "why"),
    [
        ("high", "1", "pods hold 1 x nvidia.com/mig-3g.20gb of its GPUs, and it is not known where"),
        (0, "many", "what pod default/holder holds there cannot be read"),
    ],
    ids=["its requests can be read", "nothing can"],
)
def test_what_a_bound_pod_that_cannot_be_read_holds_is_in_use(
    priority: object, amount: str, why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    limits = {"nvidia.com/mig-3g.20gb": amount}
    holder = pod("holder", node="n1", containers=[container(limits=limits)], priority=priority)
    found = planned(capsys, dump(tmp_path, *cluster(), holder))

    assert found["placed"] == []
    left_out = {(one["kind"], one["name"]): one["reason"] for one in found["leftOut"]}
    assert left_out.keys() == {("Pod", "default/holder"), ("Node", "n1")}
    assert why in left_out["Node", "n1"]


@pytest.mark.parametrize(("version", "kind"), [("management.cattle.io/v3", "Node"), ("serving.knative.dev/v1", "Pod")])
@pytest.mark.parametrize("name", ["n1", "one"])
def test_a_kind_of_another_group_is_passed_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, version: str, kind: str, name: str
) -> None:
    """Rancher has a Node for each Node, and Knative a Service for each Service."""
    foreign = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": "u"}}
    found = planned(capsys, dump(tmp_path, node(), pod("one"), foreign))
    assert places(found) == {"one": "n1"}
    assert f"Ignored 1 {kind} (only Nodes, Pods, plans and what pods refer to are read)." in found["remarks"]


def test_a_namespace_that_is_no_text_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = pod("one")
    raw["metadata"]["namespace"] = None
    assert places(planned(capsys, dump(tmp_path, node(), raw))) == {"one": "n1"}
    raw["metadata"]["namespace"] = 5
    assert main(["plan", "-f", str(dump(tmp_path, node(), raw))]) == 2
    assert "metadata.namespace: must be a text: quote it" in capsys.readouterr().err
