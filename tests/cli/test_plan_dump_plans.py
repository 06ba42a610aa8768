"""`gpuplan plan -f` on dumps with plans in them: what is there, under way or unknown by their pins and statuses."""

from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
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
    slices = {"nvidia.com/mig-1g.10gb": "3"}
    objects = [node(allocatable=slices), pod("holder", node="n1", phase="Running"), node("n2"), pod("one")]
    found = planned(capsys, dump(tmp_path, *objects))

    assert places(found) == {"one": "n2"}
    (only,) = found["leftOut"]
    assert (only["kind"], only["name"]) == ("Node", "n1")
    assert "pods hold 1 x nvidia.com/mig-1g.10gb" in only["reason"]

    found = planned(capsys, dump(tmp_path, *objects[:2], pod("one")))
    assert reasons(found) == {"one": "AwaitingAgent"}
    message = found["unplaced"][0]["message"]
    assert message.startswith("Too little is known of the GPUs that could hold it; node n1 is left out: pods hold 1")
    assert "agent's pod" not in message


WHOLE = {"nvidia.com/gpu": "1"}
FEW_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090",
    "nvidia.com/gpu.memory": "24564",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "9",
    "nvidia.com/mig.capable": "false",
}


def busy(gpus: int, served: dict[str, str], mode: str = "mig") -> dict[str, Any]:
    """A node of NVIDIA's device plugin, with what it advertises."""
    raw = node(mode=mode, allocatable=served)
    raw["metadata"]["labels"]["nvidia.com/gpu.count"] = str(gpus)
    return raw


@pytest.mark.parametrize("mode", ["mig", "mps"])
def test_of_gpus_that_are_held_whole_it_does_not_matter_which(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str
) -> None:
    """A cluster before the installation: NVIDIA's device plugin serves eight GPUs, and pods hold two."""
    holders = [pod(f"h{number}", node="n1", phase="Running", requests=WHOLE) for number in range(2)]
    wanted = "nvidia.com/mig-7g.80gb" if mode == "mig" else "nvidia.com/gpu-70gb"
    waiting = [pod(f"w{number}", requests={wanted: "1"}) for number in range(7)]
    found = planned(capsys, dump(tmp_path, busy(8, {"nvidia.com/gpu": "8"}, mode), *holders, *waiting))
    assert (len(places(found)), list(reasons(found).values())) == (6, ["NoCapacity"])
    assert found["leftOut"] == []


def test_gpus_that_are_full_of_equal_instances_are_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two of four GPUs cut into seven each, eight instances held: six are free, and two GPUs are whole."""
    served = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "14"}
    holders = [
        pod(f"h{number}", node="n1", phase="Running", requests={"nvidia.com/mig-1g.10gb": "1"}) for number in range(8)
    ]
    waiting = [pod(f"w{number}", requests={"nvidia.com/mig-7g.80gb": "1"}) for number in range(3)]
    found = planned(capsys, dump(tmp_path, busy(4, served), *holders, *waiting, pod("small")))
    assert (sorted(places(found)), reasons(found)) == (["small", "w0", "w1"], {"w2": "WaitsForRelease"})


@pytest.mark.parametrize(
    ("served", "held"),
    [
        ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "13"}, "nvidia.com/mig-1g.10gb"),
        ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "4"}, "nvidia.com/mig-1g.10gb"),
        ({"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "4"}, "nvidia.com/mig-1g.10gb"),
    ],
    ids=["uneven", "room is left", "no GPU for them"],
)
def test_where_it_matters_which_instances_are_held_the_node_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, served: dict[str, str], held: str
) -> None:
    holder = pod("h", node="n1", phase="Running", requests={held: "1"})
    found = planned(capsys, dump(tmp_path, busy(2, served), holder, pod("w")))
    assert [one["name"] for one in found["leftOut"]] == ["n1"]
    assert places(found) == {}


def test_a_card_outside_the_catalogue_is_known_by_its_labels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card = node(mode="mps")
    card["metadata"]["labels"] |= {**FEW_LABELS, "nvidia.com/gpu.count": "2"}
    pods = [pod("slice", requests={"nvidia.com/gpu-10gb": "1"}), pod("whole", requests=WHOLE)]
    pods.append(pod("large", requests={"nvidia.com/gpu-30gb": "1"}))
    found = planned(capsys, dump(tmp_path, card, *pods))
    assert (sorted(places(found)), reasons(found)) == (["slice", "whole"], {"large": "NeverFits"})

    for lacking in ("nvidia.com/gpu.memory", "nvidia.com/gpu.compute.major"):
        poor = node(mode="mps")
        poor["metadata"]["labels"] |= {**FEW_LABELS, lacking: ""}
        (left,) = planned(capsys, dump(tmp_path, poor, *pods))["leftOut"]
        assert "is no model of known MIG placements" in left["reason"]


def test_of_a_card_that_has_no_mig_by_its_labels_it_is_not_said_that_its_profiles_are_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card = node()
    card["metadata"]["labels"] |= FEW_LABELS
    found = planned(capsys, dump(tmp_path, card, pod("one")))
    assert (found["leftOut"], reasons(found)) == ([], {"one": "NeverFits"})
    assert "offers no MIG, but MPS slices" in found["unplaced"][0]["message"]


@pytest.mark.parametrize(("mode", "served"), [("mig", False), ("mps", True)])
def test_a_card_of_a_known_name_and_less_memory_is_another_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str, served: bool
) -> None:
    """An H100 of 64 GB has profiles of its own."""
    card = node(mode=mode)
    card["metadata"]["labels"] |= {
        "nvidia.com/gpu.memory": "65247", "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0",
    }  # fmt: skip
    wanted = pod("one", requests={"nvidia.com/mig-1g.8gb" if mode == "mig" else "nvidia.com/gpu-60gb": "1"})
    found = planned(capsys, dump(tmp_path, card, wanted))
    assert (places(found) == {"one": "n1"}) is served
    assert ([one["name"] for one in found["leftOut"]] == []) is served
    assert not any("offers" in one["message"] for one in found["unplaced"])  # the profiles of the 80 GB card


@pytest.mark.parametrize(
    ("suffix", "count"), [("MIG-1g.5gb", "14"), ("MIG-1g.5gb", "56"), ("MIG-INVALID", "0"), ("MIG-1g.5gb-SHARED", "28")]
)
def test_labels_of_strategy_single_count_no_gpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str, count: str
) -> None:
    single = node()
    single["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": f"NVIDIA-A100-SXM4-40GB-{suffix}",
        "nvidia.com/gpu.count": count,
        "nvidia.com/gpu.memory": "4864",
        "nvidia.com/mig.strategy": "single",
    }
    found = planned(capsys, dump(tmp_path, single, pod("one", requests={"nvidia.com/mig-7g.40gb": "1"})))
    (left,) = found["leftOut"]
    assert "its labels count MIG devices" in left["reason"]
    assert places(found) == {}


def test_a_plan_without_its_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = planned(capsys, dump(tmp_path, plan_object("gone")))

    assert found["leftOut"] == [{"kind": "GPUPartitionPlan", "name": "gone", "reason": "its node is not in the files"}]


def test_a_pin_that_cannot_be_made_blocks_its_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pins = {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "7g.80gb", "count": 2}]}}]}
    found = planned(capsys, dump(tmp_path, node(), plan_object(spec=pins), pod("one")), expected=2)

    assert reasons(found) == {"one": "Blocked"}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"index": 0, "mig": {"instances": [{"profile": "9g.80gb"}]}}, "GPU 0: H100-80GB has no profile 9g.80gb"),
        (
            {"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "start": 7}]}},
            "GPU 0: 1g.10gb cannot begin at 7 on",
        ),
        ({"index": 0, "mps": {"slices": [{"memoryGB": 500}]}}, "GPU 0: mps.slices request"),
        ({"index": 5, "whole": {}}, "GPU 5 is none of its node's 1 GPU"),
    ],
)
@pytest.mark.parametrize("reported", [True, False])
def test_a_pin_that_no_agent_can_make_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, item: dict[str, Any], words: str, reported: bool
) -> None:
    before = dump(tmp_path, node(), plan_object(status=status(gpu())) if reported else pod("none", phase="Failed"))
    pin = dump(tmp_path, plan_object(spec={"gpus": [item]}), name="pin.yaml")
    found = planned(capsys, before, pin, expected=2)
    (problem,) = found["impossible"]
    assert problem.startswith("GPUPartitionPlan n1: spec.gpus: ")
    assert words in problem


def test_of_an_object_in_two_files_the_later_one_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    planned_item = {"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}
    live = plan_object(planned=[planned_item], status=status(gpu(item=planned_item)))
    old = dump(tmp_path, node(), live, pod("one", requests={"nvidia.com/mig-7g.80gb": "1"}))
    assert places(planned(capsys, old)) == {"one": "n1"}

    paused = plan_object(spec={"paused": True})
    del paused["metadata"]["uid"]
    found = planned(capsys, old, dump(tmp_path, paused, name="paused.yaml"))
    assert (reasons(found), found["leftOut"]) == ({"one": "Blocked"}, [])

    code = main(["plan", "-f", str(dump(tmp_path, node(), node(), name="twice.yaml"))])
    assert (code, "is already in" in capsys.readouterr().err) == (2, True)


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


FORM = (
    "a profile is as nvidia-smi prints it, such as 1g.10gb or 1g.10gb+me; "
    "nvidia.com/mig-1g.10gb.me is the resource that pods request"
)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        *((name, FORM) for name in ("1g10gb", "mig-1g.10gb", "nvidia.com/mig-1g.10gb", "1g.10gb.me", "1G.10GB")),
        ("9g.80gb", "9g.80gb"),
        ("1g.0gb", "1g.0gb"),
    ],
)
def test_a_pin_that_is_no_profile_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, profile: str, words: str
) -> None:
    pin = plan_object(spec={"gpus": [{"index": 0, "mig": {"instances": [{"profile": profile}]}}]})
    later = dump(tmp_path, pin, name="pin.yaml")
    assert main(["plan", "-f", str(dump(tmp_path, node())), str(later)]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert "pydantic" not in printed


MIG, TWO = {"instances": [{"profile": "3g.40gb"}]}, "one of mig, mps or whole"
BROKEN_RULES = {
    "two kinds": ([{"index": 0, "mig": MIG, "mps": {"replicas": 3}}], f"spec.gpus[0]: a listed GPU has exactly {TWO}"),
    "three kinds": ([{"index": 0, "mig": MIG, "mps": {"replicas": 3}, "whole": {}}], TWO),
    "no kind": ([{"index": 0}], TWO),
    "start and count": (
        [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "start": 0, "count": 2}]}}],
        "spec.gpus[0].mig.instances[0]: give start (one exact placement) or count",
    ),
    "GB and GiB": ([{"index": 0, "mps": {"slices": [{"memoryGB": 1, "memoryGiB": 1}]}}], "give memoryGB (10^9"),
    "no size": ([{"index": 0, "mps": {"slices": [{"count": 1}]}}], "give memoryGB (10^9"),
    "slices and replicas": ([{"index": 0, "mps": {"slices": [], "replicas": 2}}], "give slices (sized shares) or"),
    "no shares": ([{"index": 0, "mps": {}}], "give slices (sized shares) or replicas"),
    "twice": (
        [{"index": 0, "whole": {}}, {"index": 0, "whole": {}}],
        "index 0 is there twice",
    ),
}


@pytest.mark.parametrize(("items", "words"), BROKEN_RULES.values(), ids=BROKEN_RULES)
def test_a_pin_that_the_api_server_would_refuse_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, items: list[dict[str, Any]], words: str
) -> None:
    pin = plan_object(spec={"gpus": items})
    del pin["metadata"]["uid"]
    assert main(["plan", "-f", str(dump(tmp_path, node(), pin))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert "is valid under" not in line
