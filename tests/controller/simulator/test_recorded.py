"""The simulator against kube-scheduler's own verdicts: an extract of what the benchmark compares, and the benchmark."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scheduler_verdicts import compare, main
from benchmarks.verdict_files import read_file

DATA = Path(__file__).parent / "data"
FILES = ["verdicts.json.gz", "verdicts-wider.json.gz"]


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_verdict_is_the_simulator_s_too(name: str) -> None:
    pairs = list(compare(read_file(DATA / name)))

    assert [pair for pair in pairs if not pair.agrees] == []
    assert len(pairs) > 2500
    assert {pair.expected[0] for pair in pairs if pair.expected} >= {
        "InterPodAffinity",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "PodTopologySpread",
        "PreFilterNodes",
        "TaintToleration",
    }


@pytest.mark.parametrize("name", FILES[:1])
def test_the_messages_are_the_same(name: str) -> None:
    assert all(pair.same_words for pair in compare(read_file(DATA / name)))


def test_the_benchmark_prints_how_many_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA / FILES[0]), "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["pairs"] == printed["agreeing"] > 0
    assert printed["disagreements"] == []


def write(path: Path, clusters: Any) -> str:
    path.write_text(json.dumps(clusters))
    return str(path)


def test_the_benchmark_names_each_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster, *_) = json.loads(gzip.decompress((DATA / FILES[0]).read_bytes()))
    row = cluster["Expected"]["p0"]
    fitting = {node: verdict for node, verdict in row.items() if verdict}
    node, (plugin, *_) = next(iter(fitting.items()))
    row[node] = ["NodeName", "made up"]

    assert main([write(tmp_path / "verdicts.json", [cluster])]) == 1
    (printed, *figures) = capsys.readouterr().out.splitlines()
    assert printed.startswith(
        f"cluster 0, pod p0, node {node}: kube-scheduler NodeName: made up, the simulator {plugin}: "
    )
    assert "agreeing  719" in "\n".join(figures)


def test_a_prefilter_agrees_with_any_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster, *_) = json.loads(gzip.decompress((DATA / FILES[0]).read_bytes()))
    for row in cluster["Expected"].values():
        row.update({node: ["PreFilter:Anything", "words"] for node, verdict in row.items() if verdict})

    assert main([write(tmp_path / "verdicts.json", [cluster])]) == 0

    for row in cluster["Expected"].values():
        row.update({node: ["PreFilterNodes"] for node, verdict in row.items() if not verdict})
    assert main([write(tmp_path / "verdicts.json", [cluster])]) == 1


def test_objects_are_taken_as_the_scheduler_saw_them() -> None:
    """Recorded in front of the API server: limits without requests, keys that are not merged, unreadable selectors."""
    pairs = list(compare(read_file(DATA / "verdicts-unstored.json.gz")))

    assert [pair for pair in pairs if not pair.agrees] == []
    assert {pair.expected[0] for pair in pairs if pair.expected} >= {
        "NodeDeclaredFeatures",
        "NodeName",
        "PreFilter:InterPodAffinity",
        "PreFilter:NodeAffinity",
    }


def test_free_volumes_are_matched_as_the_scheduler_does() -> None:
    pairs = list(compare(read_file(DATA / "verdicts-volumes.json.gz")))

    assert [pair for pair in pairs if not pair.agrees] == []
    assert sum(pair.expected[:1] == ("VolumeBinding",) for pair in pairs) > 100


def test_one_framework_judged_all_pods(tmp_path: Path) -> None:
    """The first profile is used even for pods that name another scheduler."""
    node = {"metadata": {"name": "n", "labels": {}}, "spec": {"unschedulable": True}, "status": {"allocatable": {}}}
    pod = {"metadata": {"name": "p"}, "spec": {"schedulerName": "other", "containers": []}}
    profile = {"schedulerName": "mine", "plugins": {"multiPoint": {"disabled": [{"name": "*"}]}}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    cluster = {"Nodes": [node], "Existing": None, "Pods": [pod], "Config": config, "Expected": {"p": {"n": None}}}

    assert main([write(tmp_path / "verdicts.json", [cluster])]) == 0


def test_pods_of_one_name_are_distinguished_by_their_namespace(tmp_path: Path) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}}
    running = [
        {"metadata": {"name": "r", "namespace": space}, "spec": {"nodeName": "n", "containers": containers}}
        for space in ("a", "b")
    ]
    pod = {"metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": containers}}
    printed = ["NodeResourcesFit", "Insufficient cpu"]
    cluster = {"Nodes": [node], "Existing": running, "Pods": [pod], "Expected": {"p": {"n": printed}}}

    assert main([write(tmp_path / "verdicts.json", [cluster])]) == 0


BARE: dict[str, Any] = {"Nodes": [], "Existing": [], "Pods": [], "Expected": {}}


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        ("", "neither JSON nor gzipped JSON"),
        ("{}", "holds an object, a list of clusters is needed"),
        ([3], "clusters[0] is a number, an object with Nodes, Existing, Pods and Expected is needed"),
        ([{}], "clusters[0].Pods is missing"),
        ([{**BARE, "Nodes": 3}], "clusters[0].Nodes is a number, a list is needed"),
        ([BARE, {**BARE, "Nodes": ["n"]}], "clusters[1].Nodes[0] is a text, an object is needed"),
        ([{**BARE, "Nodes": [{"metadata": {}}]}], "clusters[0].Nodes[0] (?): field 'name' is missing"),
        ([{**BARE, "Pods": [{"metadata": {"name": "p"}}]}], "clusters[0].Pods[0] (p): field 'spec' is missing"),
        (
            [
                {
                    **BARE,
                    "Existing": [
                        {
                            "metadata": {"name": "p"},
                            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]},
                        }
                    ],
                }
            ],
            "clusters[0].Existing[0] (p): ",
        ),
        ([{**BARE, "Expected": {"p": {}}}], "clusters[0].Expected.p: there is no such pod in clusters[0].Pods"),
        ([{**BARE, "Expected": []}], "clusters[0].Expected is a list, an object is needed"),
        ([{**BARE, "Config": "kind: Pod"}], "clusters[0].Config is None Pod"),
        (
            [{**BARE, "PersistentVolumeClaims": [{"metadata": {"name": "c"}}]}],
            "clusters[0].PersistentVolumeClaims[0] (c): field 'spec' is missing",
        ),
    ],
)
def test_a_file_of_another_form_is_refused(
    content: Any, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))

    assert main([str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: cannot be compared: {printed}")


def test_half_a_gzipped_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "half.json.gz"
    path.write_bytes((DATA / FILES[0]).read_bytes()[:1000])

    assert main([str(path)]) == 2
    assert "neither JSON nor gzipped JSON" in capsys.readouterr().err
