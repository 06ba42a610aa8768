"""`gpuplan plan -f`: what would be planned for manifests, the smallest telling clusters first, and what is refused."""

from pathlib import Path

import pytest

from cli.__main__ import main
from controller.model.results import NodeFailure, PlanningResult
from tests.builders.objects import node, pod
from tests.cli.plan_command import EXAMPLES, case, dump, layouts, places, planned, reasons


def test_a_used_instance_in_the_middle_leaves_no_place_for_4g(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, case("a"))

    assert (found["placed"], found["plans"], found["bound"]) == ([], [], 0)
    (only,) = found["unplaced"]
    assert (only["pod"], only["reason"]) == ("default/a-wants-4g", "Fragmented")
    assert "1g.5gb at 2" in only["message"]
    assert "default/a-holder" in only["message"]


def test_b_4g_and_3g_share_an_empty_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, case("b"))

    assert places(found) == {"b-large": "b-node", "b-middle": "b-node"}
    assert layouts(found) == {"b-node": ["4g.20gb@0 3g.20gb@4"]}
    assert found["bound"] == 2


def test_c_3g_and_four_1g_share_an_empty_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, case("c"))

    assert len(found["placed"]) == found["bound"] == 5
    assert layouts(found) == {"c-node": ["1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4"]}


def test_d_two_gpus_hold_two_3g_and_eight_1g(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, case("d"))

    assert len(found["placed"]) == 10
    assert layouts(found) == {"d-node": ["1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4"] * 2}


def test_e_two_instances_of_one_pod_come_from_two_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, case("e"))

    assert places(found) == {"e-wants-two": "e-node"}
    assert layouts(found) == {"e-node": ["4g.20gb@0 3g.20gb@4"] * 2}


def test_f_a_free_instance_on_a_tainted_node_serves_no_pod(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, case("f"))

    assert set(places(found).values()) == {"f-open"}
    assert len(found["placed"]) == 5
    assert list(layouts(found)) == ["f-open"]


@pytest.mark.parametrize(
    ("folder", "placed", "unplaced"),
    [
        ("mig", 9, {}),
        ("mps", 1, {}),
        ("manual", 1, {"not-in-the-plan": "Blocked"}),
        ("survivors", 0, {"new-inference": "WaitsForRelease", "too-big-for-now": "WaitsForRelease"}),
    ],
)
def test_examples(capsys: pytest.CaptureFixture[str], folder: str, placed: int, unplaced: dict[str, str]) -> None:
    found = planned(capsys, EXAMPLES / folder)

    assert len(found["placed"]) == placed
    assert reasons(found) == unplaced
    assert (found["leftOut"], found["remarks"]) == ([], [])


def test_tables_are_printed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", str(case("b"))]) == 0

    out = capsys.readouterr().out
    assert "b-node  0    4g.20gb@0, 3g.20gb@4" in out
    assert "b-large b-node Placed It starts on partitions that the plans below add." in " ".join(out.split())
    assert "2 of 2 pods placed (at most 2 could be), 1 plan to write" in out


def test_the_page_shows_what_a_wide_terminal_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")

    assert main(["plan", "-f", str(case("e"))]) == 0

    printed = capsys.readouterr().out.rsplit(", in ", 1)[0]  # the seconds differ
    assert f"\n```\n{printed}, in " in (EXAMPLES.parent / "docs/sandbox.md").read_text()


def test_mps_slices_and_notes_in_the_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = dump(tmp_path, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})

    assert main(["plan", "-f", str(EXAMPLES / "mps"), str(files)]) == 0

    captured = capsys.readouterr()
    assert "mps-node  0    1 x 10gb" in captured.out
    assert "Ignored 1 Secret (only Nodes, Pods, plans and what pods refer to are read)." in captured.err


def test_pods_that_request_nothing_are_counted_and_mistyped_names_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pods = [
        pod("web", requests={"cpu": "1"}),
        pod("typo", requests={"nvidia.com/mig-1g5gb": "1"}),
        pod("gib", requests={"nvidia.com/gpu-10Gi": "1"}),
    ]

    assert main(["plan", "-f", str(EXAMPLES / "mig"), str(dump(tmp_path, *pods))]) == 0

    out = capsys.readouterr().out
    assert "of 11 pods placed" in out
    assert out.endswith("1 pod requests nothing that gpuplan serves\n")
    assert "nvidia.com/mig-1g5gb names no partition. Did you mean nvidia.com/mig-1g.5gb?" in " ".join(out.split())
    assert "Did you mean nvidia.com/gpu-10gb?" in " ".join(out.split())


def test_settings_of_the_controller(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text("schedulerNames: [other]\n")

    assert reasons(planned(capsys, EXAMPLES / "mps", config=config)) == {"mps-partitioning-example": "NotServed"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: p}\n", "spec.*required"),
        ("kind: PriorityClass\napiVersion: scheduling.k8s.io/v1\n", "metadata.name: is missing"),
        ("just: text\n", "kind: is missing"),
    ],
)
def test_a_bad_file_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.yaml").write_text(text)

    assert main(["plan", "-f", str(tmp_path / "f.yaml")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("gpuplan: ")
    assert all(word in err for word in words.split(".*"))


def test_bad_settings_are_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("improveStep: 1\n")

    assert main(["plan", "-f", str(case("b")), "--config", str(tmp_path / "c.yaml")]) == 2
    assert "did you mean improveSteps?" in capsys.readouterr().err


def test_known_geometries_restrict_what_is_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = tmp_path / "known.yaml"
    known.write_text("- models: [A100-SXM4-40GB]\n  allowedGeometries: [{3g.20gb: 2}, {4g.20gb: 3}]\n")
    config = tmp_path / "controller.yaml"
    config.write_text(f"knownMigGeometriesFile: {known}\n")
    found = planned(capsys, case("b"), config=config)

    assert list(places(found)) == ["b-middle"]
    assert reasons(found) == {"b-large": "Blocked"}
    (remark,) = found["remarks"]
    assert "{4g.20gb: 3} of A100-SXM4-40GB is ignored: " in remark


def test_pods_that_want_whole_gpus_of_another_scheduler_are_left_to_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = pod("whole", requests={"nvidia.com/gpu": "1"}, schedulerName="volcano")
    found = planned(capsys, dump(tmp_path, whole, pod("plain", requests={})))

    assert found["placed"] == []
    assert reasons(found) == {"whole": "NotServed"}
    assert [one["message"] for one in found["unplaced"]] == [
        "Scheduler volcano serves this pod, so gpuplan plans nothing for it."
    ]


def test_a_node_whose_planning_failed_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = NodeFailure(node="n1", message="KeyError: 'x'")
    monkeypatch.setattr("cli.plan.plan", lambda *_: PlanningResult(failures=(failed,)))
    found = planned(capsys, dump(tmp_path, node()))

    reason = "planning it failed: KeyError: 'x': report this together with the files"
    assert found["leftOut"] == [{"kind": "Node", "name": "n1", "reason": reason}]


def test_a_pass_that_was_cut_short_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remark = "The pass used up its work before every pod was examined everywhere."
    monkeypatch.setattr("cli.plan.plan", lambda *_: PlanningResult(remarks=(remark,)))

    assert planned(capsys, dump(tmp_path, node()))["remarks"] == [remark]


def test_a_node_whose_plan_cannot_be_written_is_named_and_its_pods_are_not_placed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("too many instances")

    monkeypatch.setattr("cli.plan.planned_items", refuse)
    found = planned(capsys, dump(tmp_path, node(), pod("one")))

    assert (found["placed"], found["plans"]) == ([], [])
    assert reasons(found) == {"one": "Blocked"}
    assert found["leftOut"][0]["reason"].startswith("planning it failed: ValueError: too many instances")


def test_nodes_that_are_left_out_follow_the_message_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plain = node(name="plain", mode=None)
    found = planned(capsys, dump(tmp_path, plain, node(), pod("a", requests={"nvidia.com/mig-9g.10gb": "1"})))
    (only,) = found["unplaced"]
    assert "; node plain is left out: " in only["message"]
    assert ".;" not in only["message"]
