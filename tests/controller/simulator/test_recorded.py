"""The simulator against kube-scheduler's own verdicts: an extract of what the benchmark compares, and the benchmark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scheduler_verdicts import compare, main, read_file

DATA = Path(__file__).parent / "data"
FILES = ["verdicts.json.gz", "verdicts-wider.json.gz"]


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_verdict_is_ours_too(name: str) -> None:
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
def test_the_words_are_the_same(name: str) -> None:
    assert all(pair.same_words for pair in compare(read_file(DATA / name)))


def test_the_benchmark_says_how_many_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA / FILES[0]), "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["pairs"] == said["agreeing"] > 0
    assert said["disagreements"] == []


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
    (said, *figures) = capsys.readouterr().out.splitlines()
    assert said.startswith(
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


@pytest.mark.parametrize("content", ["", "{}", "[{}]", '[{"Nodes": 3}]'])
def test_a_file_of_another_form_is_refused(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)

    assert main([str(path)]) == 2
    assert "cannot be compared" in capsys.readouterr().err
