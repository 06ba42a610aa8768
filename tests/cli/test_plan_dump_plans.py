"""`gpuplan plan -f` on dumps with plans in them: what is there, under way or unknown by their pins and statuses."""

from pathlib import Path

import pytest

from tests.builders.objects import condition, confirmed, gpu, item, node, partition, pod, status
from tests.builders.objects import plan as plan_object
from tests.cli.plan_command import EXAMPLES, dump, layouts, places, planned, reasons


def test_a_status_in_a_dump_counts_as_settled_where_it_is_confirmed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw = plan_object(planned=[item(0, 0, 1)])
    slices = {"nvidia.com/mig-1g.10gb": "2"}
    objects = [
        node(allocatable=slices),
        {**raw, "status": confirmed(raw, used=[0])},
        pod("holder", node="n1", phase="Running"),
    ]
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


def test_a_status_about_an_earlier_node_is_ignored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = plan_object(status=status(gpu(0), node_uid="an-earlier-one"))
    found = planned(capsys, dump(tmp_path, node(), raw, pod("one")))

    assert reasons(found) == {"one": "AwaitingAgent"}


def test_a_silent_agent_is_silent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    silent = condition("AgentAlive", "False", "AgentSilent")
    raw = plan_object(status=status(gpu(0), conditions=[silent]))
    found = planned(capsys, dump(tmp_path, node(), raw, pod("one")))

    assert reasons(found) == {"one": "AwaitingAgent"}


def test_a_node_without_a_plan_is_empty(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What another partitioner left in its allocatable is idle, and can be used like the rest."""
    found = planned(capsys, dump(tmp_path, node(allocatable={"nvidia.com/mig-7g.80gb": "1"}), pod("one")))

    assert [one["supply"] for one in found["placed"]] == ["new"]
    assert layouts(found) == {"n1": ["1g.10gb@6"]}


def test_where_pods_hold_slices_at_unknown_places_the_node_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slices = {"nvidia.com/mig-1g.10gb": "7"}
    objects = [node(allocatable=slices), pod("holder", node="n1", phase="Running"), node("n2"), pod("one")]
    found = planned(capsys, dump(tmp_path, *objects))

    assert places(found) == {"one": "n2"}
    (only,) = found["leftOut"]
    assert (only["kind"], only["name"]) == ("Node", "n1")
    assert "pods hold 1 x nvidia.com/mig-1g.10gb" in only["reason"]

    found = planned(capsys, dump(tmp_path, *objects[:2], pod("one")))
    assert reasons(found) == {"one": "AwaitingAgent"}
    assert "node n1 is left out: pods hold 1 x" in found["unplaced"][0]["message"]


def test_a_plan_without_its_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = planned(capsys, dump(tmp_path, plan_object("gone")))

    assert found["leftOut"] == [{"kind": "GPUPartitionPlan", "name": "gone", "reason": "its node is not in the files"}]


def test_a_pin_that_cannot_be_made_blocks_its_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pins = {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "7g.80gb", "count": 2}]}}]}
    found = planned(capsys, dump(tmp_path, node(), plan_object(spec=pins), pod("one")))

    assert reasons(found) == {"one": "Blocked"}


def test_pins_that_are_not_applied_yet_count_as_applied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pins = {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "count": 2}]}}]}
    objects = [node(), plan_object(spec=pins), pod("holder", node="n1"), pod("one"), pod("two")]
    found = planned(capsys, dump(tmp_path, *objects))

    assert [one["supply"] for one in found["placed"]] == ["existing"]
    assert len(found["unplaced"]) == 1


def test_what_is_written_can_be_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The planned objects applied: every pod is placed on what is there, and nothing is left to write."""
    first = planned(capsys, EXAMPLES / "mig")
    second = planned(capsys, EXAMPLES / "mig", dump(tmp_path, *first["plans"]))

    assert places(second) == places(first)
    assert {one["supply"] for one in second["placed"]} == {"existing"}
    assert second["plans"] == []
