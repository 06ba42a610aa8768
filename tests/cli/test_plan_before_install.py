"""`gpuplan plan -f` before the installation: nodes as NVIDIA's programs left them, with gpuplan's label or without."""

from pathlib import Path
from typing import Any

import pytest

from tests.builders.objects import node, pod
from tests.builders.objects import plan as plan_object
from tests.cli.plan_command import dump, places, planned, reasons

WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def labelled(raw: dict[str, Any], **labels: str) -> dict[str, Any]:
    raw["metadata"]["labels"] |= {f"nvidia.com/gpu.{name}": value for name, value in labels.items()}
    return raw


def without(raw: dict[str, Any], *labels: str) -> dict[str, Any]:
    for name in labels:
        raw["metadata"]["labels"].pop(name, None)
    return raw


@pytest.mark.parametrize("replicas", [2, 4, 48])
@pytest.mark.parametrize("mode", ["mig", "mps"])
def test_equal_shares_that_people_pin_can_be_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str, replicas: int
) -> None:
    pin = plan_object(spec={"gpus": [{"index": 0, "mps": {"replicas": replicas}}]})
    assert planned(capsys, dump(tmp_path, node(mode=mode), pin))["impossible"] == []


def test_more_equal_shares_than_mps_serves_are_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    card = labelled(node(mode="mps"), product="Tesla-P4", memory="7680", **{"compute.major": "6", "compute.minor": "1"})
    pin = plan_object(spec={"gpus": [{"index": 0, "mps": {"replicas": 20}}]})
    (problem,) = planned(capsys, dump(tmp_path, card, pin), expected=2)["impossible"]
    assert "mps.replicas is 20, and MPS serves 16 clients" in problem


@pytest.mark.parametrize(("by", "version", "said"), [("pin", "6", 1), ("label", "6", 1), ("pin", "7", 0), ("", "6", 0)])
def test_equal_shares_before_volta_need_a_setting_of_the_agent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, by: str, version: str, said: int
) -> None:
    card = labelled(node(mode="mps"), product="NVIDIA-Z9", memory="7680", **{"compute.major": version})
    labelled(card, **{"compute.minor": "1"})
    card["metadata"]["labels"] |= {"gpuplan.dev/mps-replicas": "4"} if by == "label" else {}
    pin = plan_object(spec={"gpus": [{"index": 0, "mps": {"replicas": 4}}]}) if by == "pin" else plan_object()
    found = planned(capsys, dump(tmp_path, card, pin))
    assert (found["impossible"], sum("mpsReplicasBeforeVolta" in one for one in found["remarks"])) == ([], said)


def test_a_gpu_is_not_given_whole_and_cut_as_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The label says MIG, so that MIG mode is taken as on, and NVIDIA's device plugin still advertises it whole."""
    pods = [pod("whole", requests={WHOLE: "1"}), pod("mig")]
    found = planned(capsys, dump(tmp_path, node(allocatable={WHOLE: "1"}), *pods))
    assert (places(found), reasons(found)) == ({"mig": "n1"}, {"whole": "Blocked"})
    assert "1 is in MIG mode" in found["unplaced"][0]["message"]


def test_where_placements_are_unknown_mig_mode_is_not_taken_as_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card = labelled(node(mode="auto", allocatable={WHOLE: "2"}), product="NVIDIA-H20", count="2")
    pods = [pod("mig", requests={"nvidia.com/mig-1g.12gb": "1"}), pod("slice", requests={"nvidia.com/gpu-10gb": "1"})]
    found = planned(capsys, dump(tmp_path, card, *pods))
    assert (places(found), reasons(found)) == ({"slice": "n1"}, {"mig": "MIGModeDisabled"})


@pytest.mark.parametrize("mode", ["mig", None])
def test_a_node_without_gpu_feature_discovery_is_named_with_what_to_write(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str | None
) -> None:
    bare = without(node(mode=mode, allocatable={WHOLE: "8"}), "nvidia.com/gpu.product", "nvidia.com/gpu.count")
    found = planned(capsys, dump(tmp_path, bare, pod("one")))
    (left,) = found["leftOut"]
    (missed,) = found["unplaced"]
    assert f"node n1 is left out: {left['reason']}" in missed["message"]
    assert "What is in use" not in missed["message"]
    if mode:
        assert "write it and nvidia.com/gpu.count into the file" in left["reason"]


def test_a_pod_with_a_share_is_left_to_its_scheduler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shared = labelled(node(mode="mps", allocatable={SHARED: "4"}), replicas="4")
    found = planned(capsys, dump(tmp_path, shared, pod("one", requests={SHARED: "1"})))
    (missed,) = found["unplaced"]
    assert missed["message"] == (
        "default-scheduler binds this pod where nvidia.com/gpu.shared is free, so gpuplan plans nothing for it."
    )


def test_shares_of_a_plan_that_is_not_applied_yet_are_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pin = plan_object(spec={"gpus": [{"index": 0, "mps": {"replicas": 4}}]})
    found = planned(capsys, dump(tmp_path, node(mode="mps"), pin, pod("one", requests={SHARED: "1"})))
    (missed,) = found["unplaced"]
    assert missed["message"].startswith("default-scheduler binds this pod where nvidia.com/gpu.shared is free")


def storage(kind: str, name: str, **more: Any) -> dict[str, Any]:
    version = "storage.k8s.io/v1" if kind == "StorageClass" else "v1"
    metadata = {"name": name, "uid": name, **more.pop("metadata", {})}
    if kind == "PersistentVolumeClaim":
        metadata |= {"namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


HERE = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}
CLAIM = storage("PersistentVolumeClaim", "data", spec={"volumeName": "v", "storageClassName": "s"})
LOCAL = storage(
    "PersistentVolume", "v",
    spec={
        "claimRef": {"name": "data", "namespace": "default", "uid": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [HERE]}]}},
    },
)  # fmt: skip
CLASS = storage("StorageClass", "s", provisioner="p")


@pytest.mark.parametrize(
    ("files", "unknown"),
    [
        ([], "no PersistentVolumeClaim, PersistentVolume or StorageClass is"),
        ([CLAIM, CLASS], "no PersistentVolume is"),
        ([CLAIM, LOCAL], ""),  # a claim that is bound needs no class
        ([CLAIM, LOCAL, CLASS], ""),
    ],
)
def test_volumes_of_a_dump_decide_or_are_said_to_be_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: list[dict[str, Any]], unknown: str
) -> None:
    nodes = [node(name=name) for name in ("n1", "n2")]
    for each in nodes:
        each["metadata"]["labels"]["kubernetes.io/hostname"] = each["metadata"]["name"]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = planned(capsys, dump(tmp_path, *nodes, *files, pod("one", volumes=volumes)))
    remark = f"the volumes of 1 pod count as within reach of every node: {unknown} in the files"
    assert found["remarks"] == ([remark] if unknown else [])
    assert unknown or places(found) == {"one": "n2"}


RTX_PRO = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"


@pytest.mark.parametrize("mode", ["mig", "auto", "mps"])
@pytest.mark.parametrize("capable", ["true", "false"])
def test_a_workstation_card_has_no_mig_while_its_driver_offers_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str, capable: str
) -> None:
    card = labelled(node(mode=mode), product=RTX_PRO, memory="97887", **{"compute.major": "12", "compute.minor": "0"})
    card["metadata"]["labels"]["nvidia.com/mig.capable"] = capable
    pods = [pod("mig", requests={"nvidia.com/mig-1g.24gb": "1"}), pod("slice", requests={"nvidia.com/gpu-10gb": "1"})]
    found = planned(capsys, dump(tmp_path, card, *pods))
    makes_mig = capable == "true" and mode != "mps"
    assert ("mig" in places(found)) is makes_mig
    assert ("slice" in places(found)) is (not makes_mig and mode != "mig")
    assert any("displaymodeselector" in one for one in found["remarks"]) is (capable == "false" and mode != "mps")


@pytest.mark.parametrize(
    ("product", "memory", "profile"),
    [("NVIDIA-H20", "97871", "1g.12gb"), ("NVIDIA-B300-SXM6-AC", "275040", "1g.34gb")],
)
def test_it_is_not_said_that_a_driver_names_no_placements_where_none_was_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, product: str, memory: str, profile: str
) -> None:
    one = pod("one", requests={f"nvidia.com/mig-{profile}": "1"})
    found = planned(capsys, dump(tmp_path, labelled(node(), product=product, memory=memory), one))
    (message,) = (one["message"] for one in found["unplaced"])
    assert f"{product} is no model of known MIG placements, and no agent has reported them" in message
    assert "the driver names none" not in message
