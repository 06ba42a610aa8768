"""nos' own test cases as data: which are run, what they expect in pods, and how a case falls short."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.nos import scenarios as nos_scenarios
from benchmarks.nos.cases import Case, NotRun, read_case
from benchmarks.nos.expected import most_pods
from benchmarks.nos.scenarios import judge, main, verdicts
from controller.model.results import NodeChange, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PlannedGpu
from partitioning.layouts import Instance, Layout

DATA = Path(__file__).parent / "data" / "nos_scenarios.yaml"
CONTENT = yaml.safe_load(DATA.read_text())


def expected(group: str, raw: dict[str, Any]) -> int:
    found = read_case(group, raw)
    assert isinstance(found, Case), found
    return found.expected


def why_not(group: str, raw: dict[str, Any]) -> str:
    found = read_case(group, raw)
    assert isinstance(found, NotRun), found
    return found.reason


def test_our_planner_falls_short_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA)]) == 0

    assert "24 cases: 19 run, 0 fall short, 5 not run" in capsys.readouterr().out


def test_nor_on_more_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA.with_name("nos_scenarios_more.yaml"))]) == 0

    assert "19 cases: 17 run, 0 fall short, 2 not run" in capsys.readouterr().out


def test_pods_and_reasons_of_recorded_cases() -> None:
    found = {one.case: one for one in verdicts(CONTENT)}

    assert {name: one.expected for name, one in found.items() if not one.reason} == {
        "PM4": 0, "PM6": 3, "PM7": 4, "PS3": 0, "PS6": 2, "MA1": 0, "MA3": 1, "MG3": 0, "MG4": 2, "MU3": 0, "MU6": 1,
        "MNU1": 0, "MNU6": 1, "MF1": 0, "MF4": 1, "SU6": 4, "SU9": 1, "SNU3": 1, "SNU6": 1,
    }  # fmt: skip
    assert {name: one.reason for name, one in found.items() if one.reason} == {
        "PM3": "nos expects what cannot be: A30-24GB has no profile 1g.5gb",
        "LS1": "no planner, MIG or MPS case",
        "MU1": "A100-40GB has no profile 2g.20gb",
        "MI3": "it says nothing about pods",
        "SNA1": "there is no GPU model foo",
    }


def nodes(*gpus: dict[str, Any], model: str = "A30", **more: Any) -> list[dict[str, Any]]:
    return [{"name": "n", "model": model, "count": len(gpus), "gpus": list(gpus), **more}]


PODS = [{"name": f"p{n}", "requests": {"2g.12gb": 1, "cpu": "100m"}} for n in range(3)]


def test_geometries_are_given_to_the_gpus_that_can_have_them() -> None:
    """The second is full, so that the first one's geometry, listed last, is not its."""
    raw = {
        "nodes": nodes({"index": 0}, {"index": 1, "used": {"4g.24gb": 1}}),
        "pods": PODS,
        "expect": {"gpus": [{"4g.24gb": 1}, {"2g.12gb": 2}]},
    }
    assert expected("planner_mig", raw) == 2
    assert judge("planner_mig", raw).placed == 2


def test_a_refusing_scheduler_admits_no_pod() -> None:
    raw = {"nodes": nodes({"index": 0}), "pods": PODS, "expect": {"gpus": [{"2g.12gb": 2}]}}

    for step in ("prefilter", "filter"):
        found = judge("planner_mig", {**raw, "scheduler": {step: "error"}})
        assert (found.expected, found.placed, found.problem) == (0, 0, "")


def test_a_pod_s_slices_come_from_one_node() -> None:
    pool = {"x": 2}

    assert most_pods([{"x": 3}, {"x": 2}], [pool, pool]) == 1
    assert most_pods([{"x": 1}] * 20, [{"x": 7}, {"x": 8}]) == 15
    assert most_pods([{}, {"y": 1}], [pool]) == 0
    assert most_pods([{"x": 1, "y": 1}, {"x": 1}, {"y": 1}], [{"x": 1, "y": 1}]) == 2


@pytest.mark.parametrize(
    ("group", "raw", "words"),
    [
        (
            "mig_gpu_add_pod",
            {"model": "A30", "used": {"1g.6gb": 5}, "free": {}, "pod": {"1g.6gb": 1}},
            "cannot hold 5 x",
        ),
        ("mig_gpu_add_pod", {"model": "Z9", "used": {}, "free": {}, "pod": {"1g.6gb": 1}}, "no GPU model Z9"),
        ("mig_gpu_add_pod", {"model": "T4", "used": {}, "free": {}, "pod": {"1g.6gb": 1}}, "no GPU model T4"),
        ("mig_gpu_add_pod", {"used": {}, "free": {}, "pod": {"1g.6gb": 1}}, "it names no GPU model"),
        ("mps_gpu_add_pod", {"memory_gb": 10, "used": {"20gb": 1}, "free": {}, "pod": {"1gb": 1}}, "MiB together"),
        ("mig_gpu_add_pod", {"model": "A30", "used": {}, "free": {}, "pod": {"big": 1}}, "big is no slice"),
        ("mig_gpu_add_pod", {"model": "A30", "used": 7, "free": {}, "pod": {"1g.6gb": 1}}, "not understood"),
        ("planner_mig", {"nodes": nodes({"index": 0}), "pods": [], "expect": {"gpus": [{}, {}]}}, "2 geometries"),
        (
            "planner_mig",
            {"nodes": nodes({"index": 0, "used": {"1g.6gb": 1}}), "pods": [], "expect": {"gpus": [{"4g.24gb": 1}]}},
            "slices in use would be gone",
        ),
        (
            "mig_node_update_geometry",
            {
                "gpus": [{"index": n, "model": "A30", "used": {"2g.12gb": 1}} for n in range(2)],
                "required": {"4g.24gb": 1},
                "expect": {"updated": True, "geometry": {"2g.12gb": 2, "4g.24gb": 1}},
            },
            "nos expects what cannot be",
        ),
        ("mig", {}, "it says nothing about pods"),
        ("agent_plan", {}, "no planner, MIG or MPS case"),
    ],
)
def test_what_is_not_run_and_why(group: str, raw: dict[str, Any], words: str) -> None:
    assert words in why_not(group, {"expect": {"error": False}, **raw})


def test_slices_in_use_move_to_where_what_nos_expects_has_room() -> None:
    """At the highest start the 1g would be in the way of the second 2g."""
    raw = {
        "model": "NVIDIA-A100-SXM4-40GB",
        "used": {"1g.5gb": 1},
        "free": {},
        "required": {"3g.20gb": 2},
        "expect": {"updated": True, "geometry": {"1g.5gb": 1, "3g.20gb": 1, "2g.10gb": 1}},
    }
    assert expected("mig_gpu_update_geometry", raw) == 1
    assert judge("mig_gpu_update_geometry", raw).problem == ""


def test_several_gpus_share_what_is_expected_of_a_node() -> None:
    raw = {
        "gpus": [{"index": 0, "model": "A30"}, {"index": 1, "model": "NVIDIA-A100-40GB-SXM4"}],
        "required": {"2g.12gb": 2, "7g.40gb": 1},
        "expect": {"updated": True, "geometry": {"2g.12gb": 2, "7g.40gb": 1}},
    }
    assert expected("mig_node_update_geometry", raw) == 3
    assert judge("mig_node_update_geometry", raw).placed == 3


def test_names_of_early_drivers() -> None:
    raw = {"model": "NVIDIA-A100-80GB-PCIe", "apply": {"7g.79gb": 1}, "expect": {"free": {"7g.79gb": 1}}}

    assert (expected("mig_gpu_apply_geometry", raw), judge("mig_gpu_apply_geometry", raw).placed) == (1, 1)


def test_fewer_pods_fall_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(nos_scenarios, "plan", lambda _: PlanningResult())

    assert main([str(DATA)]) == 1
    out = capsys.readouterr().out
    assert "SHORT  planner_mig                PM7   0 placed, nos 4: 4 fewer" in out


def test_an_impossible_layout_falls_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(snapshot: Snapshot) -> PlanningResult:
        twice = Layout.of([Instance(start=0, size=4, profile="4g.24gb"), Instance(start=0, size=1, profile="1g.6gb")])
        item = PlannedGpu(index=0, uuid="", desired=MigDesired(layout=twice))
        return PlanningResult(node_changes=(NodeChange(node=snapshot.nodes[0].name, gpus=(item,), changed=(0,)),))

    monkeypatch.setattr(nos_scenarios, "plan", impossible)
    raw = {"nodes": nodes({"index": 0}), "pods": [], "expect": {"gpus": [{}]}}

    assert "impossible: GPU 0: 4g.24gb at 0 and 1g.6gb at 0 overlap" in judge("planner_mig", raw).line.replace(
        "1g.6gb at 0 and 4g.24gb at 0", "4g.24gb at 0 and 1g.6gb at 0"
    )


@pytest.mark.parametrize(
    ("group", "raw", "pods"),
    [
        # Numbers as text, slices as resources, pods that are names alone, parts that are left out.
        (
            "planner_mig",
            {
                "nodes": [{"model": "A30", "count": "1", "gpus": [{"index": "0", "free": {"mig-4g.24gb": "1"}}]}],
                "pods": ["idle", {"requests": {"nvidia.com/mig-1g.6gb": "1"}}, {"name": "none", "requests": None}],
                "expect": {"gpus": [{"mig-1g.6gb": "4"}]},
            },
            1,
        ),
        ("planner_mig", {"nodes": None, "pods": None, "expect": {"gpus": None}}, 0),
        # nos' tests have a scheduler that always agrees, whatever CPU a pod requests.
        (
            "planner_mig",
            {
                "nodes": nodes({"index": 0}),
                "pods": [{"name": "p", "requests": {"1g.6gb": 1, "cpu": 900_000}}],
                "expect": {"gpus": [{"1g.6gb": 4}]},
            },
            1,
        ),
        # More GPUs than every order could be tried of; the last geometry has one place only.
        (
            "planner_mig",
            {
                "nodes": nodes(*({"index": n} for n in range(11)), {"index": 11, "used": {"1g.6gb": 1}}),
                "pods": [{"name": "p", "requests": {"1g.6gb": 3}}],
                "expect": {"gpus": [{"4g.24gb": 1}] * 11 + [{"1g.6gb": 4}]},
            },
            1,
        ),
        (
            "mps_gpu_update_geometry",
            {
                "memory_gb": "40",
                "used": {"10gb": "2"},
                "required": {"20gb": "1"},
                "expect": {"geometry": {"10gb": 2, "20gb": 1}},
            },
            1,
        ),
    ],
)
def test_other_ways_to_write_a_case(group: str, raw: dict[str, Any], pods: int) -> None:
    found = judge(group, raw)

    assert (found.reason, found.problem) == ("", "")
    assert found.expected == pods


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("text", "not understood: 'text' is no case"),
        (None, "not understood: None is no case"),
        (
            {"nodes": [{"model": "A30", "count": "two"}], "pods": [], "expect": {"gpus": []}},
            "count is 'two', a whole number",
        ),
        (
            {"nodes": nodes({}), "pods": [], "expect": {"gpus": []}},
            "not understood: 'index' is missing",
        ),
        (
            {"nodes": nodes({"index": 0}), "pods": [{"name": "p", "priority": "high"}], "expect": {"gpus": [{}]}},
            "priority is 'high'",
        ),
        (
            {"nodes": nodes({"index": 0}) * 2, "pods": [], "expect": {"gpus": [{}]}},
            "two of its nodes have one name: n, n",
        ),
    ],
)
def test_a_malformed_case_is_listed_with_the_field(raw: Any, words: str) -> None:
    assert words in judge("planner_mig", raw).reason


@pytest.mark.parametrize("content", ["", "[]", "a: [", "3"])
def test_a_file_of_another_form_is_refused(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(content)

    assert main([str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main([str(tmp_path / "none.yaml")]) == 2


def test_groups_without_cases_are_no_hindrance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text("source: {repo: x}\nmig: {cases: many}\nother: [1]\n")

    assert main([str(path)]) == 0
    assert "not understood: cases must be a list" in capsys.readouterr().out
