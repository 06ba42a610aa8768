"""docs/gpu-operator.md, followed literally on a node where the operator's device plugin and mig-manager run."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import partial

import pytest

from crds.v1alpha1 import names
from kube import apply
from tests.e2e.containers import operator
from tests.e2e.containers.lab import SHELL_IMAGE, WAIT, Lab, shell_pod
from tests.e2e.real_cluster import NODES, ROOT
from tests.e2e.rig.containers.node import NODE
from tests.waiting import eventually

PAGE = ROOT / "docs/gpu-operator.md"
PLUGIN, MIG_MANAGER, VALIDATOR = operator.PARTS
CONFLICT = "OwnershipConflict"
HOLDER = shell_pod("holder", "nvidia.com/gpu", WAIT)


def commands(heading: str) -> list[list[str]]:
    """The kubectl commands below a heading of the page, for the node of the lab."""
    section = re.split(r"(?m)^## ", PAGE.read_text())
    text = next(part for part in section if part.startswith(heading))
    lines = [line.strip() for line in text.splitlines() if line.startswith("    kubectl ")]
    return [shlex.split(line.replace("gpu-node-1", NODE), comments=True)[1:] for line in lines]


@pytest.fixture(scope="module", autouse=True)
def with_operator(lab: Lab) -> Iterator[None]:
    """gpuplan is installed and no node enabled; the operator runs its parts on the node."""
    lab.install()
    apply.merge_patch(lab.cluster.admin, f"{NODES}/{NODE}", {"metadata": {"labels": operator.labels()}})
    found = json.dumps({"apiVersion": "v1", "kind": "List", "items": operator.objects(SHELL_IMAGE, WAIT)})
    lab.kubectl("apply", "-f", "-", stdin=found)
    yield
    lab.kubectl("delete", "-f", "-", "--wait=true", stdin=found)
    gone = dict.fromkeys(operator.labels())
    apply.merge_patch(lab.cluster.admin, f"{NODES}/{NODE}", {"metadata": {"labels": gone}})


def running(lab: Lab) -> set[str]:
    """The operator's parts that have a pod."""
    names = lab.kubectl("-n", operator.NAMESPACE, "get", "pods", "-o", "jsonpath={.items[*].metadata.labels.app}")
    return set(names.split())


def test_enabled_too_early_gpuplan_waits_and_says_what_to_do(lab: Lab) -> None:
    eventually(lambda: running(lab) == set(operator.PARTS), "the operator's parts run", seen=lambda: running(lab))
    off, on, *_ = commands("Enable a node")

    lab.kubectl(*on)

    conflict = eventually(lambda: lab.message_of(CONFLICT, "True"), "the conflict is reported", 120.0, seen=lab.report)
    assert "nvidia.com/gpu.deploy.device-plugin=false" in conflict
    assert "nvidia.com/gpu.deploy.device-plugin=false" in off
    assert " ".join(off[-3:]) in lab.message_of("OperatorLabels", "False"), "the page's command, for this node"
    assert lab.allocatable("nvidia.com/gpu") == 0, "nothing is advertised while another plugin runs"


def test_switched_off_they_leave_and_gpuplan_goes_on(lab: Lab) -> None:
    off, on, *waits = commands("Enable a node")

    for command in (off, on):
        lab.kubectl(*command)

    eventually(lambda: running(lab) == {VALIDATOR}, "plugin and mig-manager leave", seen=lambda: running(lab))
    eventually(lambda: not lab.condition(CONFLICT), "the conflict is over", 120.0, seen=lab.report)
    for wait in waits:
        lab.kubectl(*wait)
    eventually(lambda: lab.allocatable("nvidia.com/gpu") == 2, "both whole GPUs are advertised", 120.0, seen=lab.report)


def test_driver_is_let_go_while_the_operator_replaces_it(lab: Lab) -> None:
    state = "nvidia.com/gpu-driver-upgrade-state"
    lab.kubectl("label", "node", NODE, f"{state}=pod-restart-required", "--overwrite")
    eventually(lambda: state in lab.message_of("Ready", "False"), "the agent says so", 120.0, seen=lab.report)
    eventually(lambda: lab.allocatable("nvidia.com/gpu") == 0, "nothing is advertised", 120.0, seen=lab.report)
    capacity = apply.get(lab.cluster.admin, f"{NODES}/{NODE}")["status"]["capacity"]
    assert capacity.get("nvidia.com/gpu") == "0", "the validator waits for the layout"

    lab.kubectl("label", "node", NODE, f"{state}=validation-required", "--overwrite")
    eventually(lambda: lab.allocatable("nvidia.com/gpu") == 2, "both are advertised again", 120.0, seen=lab.report)
    lab.kubectl("label", "node", NODE, f"{state}-")


def test_disabled_the_node_waits_for_the_last_pod_and_is_the_operators_again(lab: Lab) -> None:
    off, wait, on = commands("Disable a node")
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(HOLDER))
    lab.wait_running("holder")

    lab.kubectl(*off)
    eventually(
        lambda: "pod default/holder" in lab.message_of("HandedBack", "False"), "the pod is named", seen=lab.report
    )
    eventually(lambda: lab.allocatable("nvidia.com/gpu") == 0, "no pod can get a device", 120.0, seen=lab.report)
    assert lab.pods_of("ds/gpuplan-agent"), "the agent stays for it"
    assert lab.pods_of("ds/gpuplan-device-plugin")
    assert lab.container_ids("holder"), "it keeps its device"

    lab.kubectl("delete", "pod", "holder", "--wait=true")
    lab.kubectl(*wait)
    for program in ("ds/gpuplan-agent", "ds/gpuplan-device-plugin"):
        eventually(partial(lambda name: not lab.pods_of(name), program), f"{program} leaves", seen=lab.report)
    lab.kubectl(*on)

    eventually(lambda: running(lab) == set(operator.PARTS), "the operator's parts run", seen=lambda: running(lab))


def test_with_manage_one_label_enables_and_one_disables(lab: Lab) -> None:
    lab.upgrade({"operatorLabels": "manage"})
    lab.wait_ready("deploy/gpuplan-controller")

    lab.label(gpu_partitioning="mig")
    eventually(lambda: running(lab) == {VALIDATOR}, "plugin and mig-manager leave", 180.0, seen=lambda: running(lab))
    eventually(lambda: lab.allocatable("nvidia.com/gpu") == 2, "both whole GPUs are advertised", 180.0, seen=lab.report)

    lab.label(gpu_partitioning=None)
    eventually(lambda: running(lab) == set(operator.PARTS), "the operator's parts are back", 180.0, seen=lab.report)
    node = apply.get(lab.cluster.admin, f"{NODES}/{NODE}")["metadata"]
    assert {key: node["labels"].get(key) for key in operator.labels()} == operator.labels()
    assert not [key for key in (*node["labels"], *node.get("annotations", {})) if key.startswith(names.GROUP)]
    lab.upgrade({})
