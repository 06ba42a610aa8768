"""gpuplan in its own containers, installed as deploy/ says: pods of every kind get their device, and keep it.

The tests are one story and run in order: install, use, replace each part below running pods, remove.
"""

import json
import os
import re
import signal
from typing import Any

import pytest

from sandbox.driver.procfs import MAJORS
from tests.e2e.chart_release import NAME
from tests.e2e.containers import simulated
from tests.e2e.containers.lab import VALUES, WAIT, Lab, shell_pod
from tests.e2e.rig.containers.node import NODE
from tests.waiting import eventually

AGENT, CONTROLLER, PLUGIN = "ds/gpuplan-agent", "deploy/gpuplan-controller", "ds/gpuplan-device-plugin"
DAEMONS = "ds/gpuplan-mps"
SLICE, MEMORY, WHOLE = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb", "nvidia.com/gpu"
# Environment, then each device node as `path major:minor` in hexadecimal.
REPORT = (
    "env | grep -E '^(NVIDIA|CUDA)_' | sort; "
    "find /dev -name 'nvidia*' -type c | sort | xargs stat -c '%n %t:%T'; echo that is all; " + WAIT[2]
)
CONTROL_NODES = {
    "/dev/nvidiactl": (MAJORS["nvidiactl"], 255),
    "/dev/nvidia-modeset": (MAJORS["nvidia-modeset"], 254),
    "/dev/nvidia-uvm": (MAJORS["nvidia-uvm"], 0),
    "/dev/nvidia-uvm-tools": (MAJORS["nvidia-uvm"], 1),
}
RUNNING = ("mps", "whole")
"""The pods that are left when the one with a MIG instance has ended."""
KINDS = {"mig": SLICE, "mps": MEMORY, "whole": WHOLE}


def pod(name: str, resource: str) -> dict[str, Any]:
    """A pod that prints what it was given, then waits."""
    return shell_pod(name, resource, ["/bin/sh", "-c", REPORT])


@pytest.fixture(scope="module", autouse=True)
def installed(lab: Lab) -> None:
    """Installed and enabled."""
    lab.install()
    lab.label(gpu_partitioning="auto")


def test_every_program_is_ready(lab: Lab) -> None:
    for program in (CONTROLLER, AGENT, PLUGIN):
        lab.wait_ready(program)
    eventually(lambda: lab.condition("Ready") == "True", "the plan of the node is Ready", seen=lab.plan)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_of_each_kind_gets_its_device(lab: Lab, kind: str) -> None:
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod(kind, KINDS[kind])))

    lab.wait_running(kind)

    environment, nodes = given(lab, kind)
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void", "the image says `all`, which NVIDIA's runtime would follow"
    assert ("CUDA_MPS_PIPE_DIRECTORY" in environment) == (kind == "mps")
    gpu = {name: numbers for name, numbers in nodes.items() if re.fullmatch(r"/dev/nvidia\d+", name)}
    capabilities = {name: numbers for name, numbers in nodes.items() if "nvidia-caps/" in name}
    assert nodes == {**CONTROL_NODES, **gpu, **capabilities}
    ((path, numbers),) = gpu.items()
    assert numbers == (MAJORS["nvidia"], int(path.removeprefix("/dev/nvidia")))
    assert len(capabilities) == (2 if kind == "mig" else 0), "of the GPU instance and of its compute instance"
    for path, (major, minor) in capabilities.items():
        assert (major, path) == (MAJORS["nvidia-caps"], f"/dev/nvidia-caps/nvidia-cap{minor}")


def given(lab: Lab, name: str) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """What a pod printed: its environment, and its device nodes with major and minor."""
    eventually(lambda: "that is all" in lab.kubectl("logs", name), f"pod {name} has printed", seen=lab.report)
    printed = lab.kubectl("logs", name)
    environment = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    nodes = (line.split(" ") for line in printed.splitlines() if line.startswith("/dev/"))
    return environment, {path: (int(ids.split(":")[0], 16), int(ids.split(":")[1], 16)) for path, ids in nodes}


def test_the_hook_of_the_driver_ran() -> None:
    assert "update-ldcache" in simulated.HOOK_CALLS.read_text()


def test_the_plan_counts_them_as_used(lab: Lab) -> None:
    def used() -> dict[str, int]:
        return {kind: lab.used(KINDS[kind]) for kind in KINDS}

    eventually(lambda: used() == dict.fromkeys(KINDS, 1), "one partition of each kind is in use", seen=used)


@pytest.mark.parametrize("program", [AGENT, PLUGIN, CONTROLLER])
def test_pods_run_on_while_a_program_is_replaced(lab: Lab, program: str) -> None:
    before, daemons = {kind: lab.container_ids(kind) for kind in KINDS}, lab.mps_daemons()
    assert daemons

    lab.replace(program)

    lab.wait_ready(program)
    eventually(lambda: lab.condition("Ready") == "True", "the plan is Ready again", seen=lab.plan)
    eventually(
        lambda: all(lab.allocatable(name) == 1 for name in KINDS.values()), "all are allocatable", seen=lab.report
    )
    assert {kind: lab.container_ids(kind) for kind in KINDS} == before
    assert lab.mps_daemons() == daemons, "no client lost its daemon"


def test_a_killed_supervisor_of_mps_daemons_costs_no_client_its_daemon(lab: Lab) -> None:
    daemons, supervisors = lab.mps_daemons(), lab.mps_supervisors()
    assert supervisors
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: lab.mps_supervisors() and not lab.mps_supervisors() & supervisors, "another supervisor", seen=lab.report
    )
    lab.wait_ready(DAEMONS)
    assert lab.mps_daemons() == daemons


def test_a_removed_node_label_costs_no_client_its_daemon(lab: Lab) -> None:
    before, daemons, pods = lab.container_ids("mps"), lab.mps_daemons(), lab.pods_of(DAEMONS)
    plugins = lab.pods_of(PLUGIN)
    for labels in ({"gpu_partitioning": "mspp"}, {"gpu_partitioning": None}):
        lab.label(**labels)
    for program in (PLUGIN, AGENT):
        lab.replace(program)
    lab.label(gpu_partitioning="auto")
    eventually(lambda: lab.pods_of(PLUGIN) not in (set(), plugins), "another plugin", seen=lab.report)
    for program in (PLUGIN, AGENT):
        lab.wait_ready(program)
    eventually(lambda: lab.condition("Ready") == "True", "the plan is Ready again", seen=lab.plan)
    assert (lab.pods_of(DAEMONS), lab.mps_daemons(), lab.container_ids("mps")) == (pods, daemons, before)


def test_a_partition_is_free_when_its_pod_has_ended(lab: Lab) -> None:
    lab.kubectl("delete", "pod", "mig", "--wait=true")

    eventually(lambda: lab.used(SLICE) == 0, "the slice is free", seen=lab.plan)


def test_pods_run_on_while_the_release_changes(lab: Lab) -> None:
    before = {kind: lab.container_ids(kind) for kind in RUNNING}
    agent = lab.pods_of(AGENT)

    lab.upgrade({"agent": {"podLabels": {"changed": "yes"}}, "controller": {"settings": {"logLevel": "debug"}}})
    eventually(lambda: lab.pods_of(AGENT) != agent and lab.are_ready(AGENT, CONTROLLER), "others run", seen=lab.report)
    agent = lab.pods_of(AGENT)
    lab.release.helm("rollback", NAME, "1")
    eventually(lambda: lab.pods_of(AGENT) != agent and lab.are_ready(AGENT, CONTROLLER), "others run", seen=lab.report)

    eventually(lambda: lab.condition("Ready") == "True", "the plan is Ready again", seen=lab.plan)
    assert {kind: lab.container_ids(kind) for kind in RUNNING} == before


def test_removal_leaves_pods_devices_and_plans(lab: Lab) -> None:
    before = {kind: lab.container_ids(kind) for kind in RUNNING}
    instances = lab.instances()

    lab.remove()

    eventually(lambda: all(lab.allocatable(name) == 0 for name in KINDS.values()), "nothing is given any more")
    assert {kind: lab.container_ids(kind) for kind in RUNNING} == before
    assert lab.instances() == instances != []
    assert lab.release.remaining() == []
    assert lab.plan()["spec"]["nodeName"] == NODE
    assert set(lab.left_on_the_node()) <= {"/var/lib/gpuplan", "/run/gpuplan"}


def test_a_new_installation_takes_over_what_is_there(lab: Lab) -> None:
    before = {kind: lab.container_ids(kind) for kind in RUNNING}
    instances = lab.instances()

    lab.release.install(VALUES)

    eventually(lambda: lab.condition("Ready") == "True", "the plan is Ready again", seen=lab.plan)
    eventually(lambda: all(lab.used(KINDS[kind]) == 1 for kind in RUNNING), "both are in use", seen=lab.plan)
    assert {kind: lab.container_ids(kind) for kind in RUNNING} == before
    assert lab.instances() == instances
