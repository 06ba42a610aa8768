"""`gpuplan sandbox run` on every example, as a person runs it: a process, its exit code, its JSON."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from sandbox.cli.tables import CONTROL_NODES
from tests.cli.sandbox_runs import EXAMPLES, GUIDE, Examples, ready, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def partitions(plan: dict[str, Any]) -> dict[str, tuple[str, int | None, str]]:
    """Holder -> resource, start and state, of every partition that a pod holds."""
    parts = [part for gpu in plan["status"]["gpus"] for part in gpu.get("partitions", [])]
    return {part["pod"]: (part["resource"], part.get("start"), part["state"]) for part in parts if "pod" in part}


@pytest.mark.thorough
def test_the_mps_pod_of_nos_documentation_runs(examples: Examples) -> None:
    pods, plans = examples.outcome("mps")

    assert pods["mps-partitioning-example"]["phase"] == "Running"
    slices = plans["mps-node"]["spec"]["planned"]["gpus"][0]["mps"]["slices"]
    assert [entry["memoryGB"] for entry in slices] == [10]
    assert partitions(plans["mps-node"]) == {
        "default/mps-partitioning-example": ("nvidia.com/gpu-10gb", None, "Used"),
    }


OF_THE_TOOLKIT = ("/usr/", "/var/run/nvidia-container-devices/")
"""The driver's files, and the empty one that nvidia-ctk mounts since 1.20.2."""


def given(result: Mapping[str, Any]) -> dict[str, tuple[list[str], dict[str, str], list[str]]]:
    """By pod, what its container got for its devices: device nodes, environment and mounts, as docs/mps.md shows it.

    Paths begin with the sandbox's folder, and those of GPUs with a part of their UUIDs: both are left out.
    """
    found = {}
    for got in result["containers"]:
        nodes = [node for node in got["deviceNodes"] if node.split(" ")[0] not in CONTROL_NODES]
        environment = {name: value for name, value in got["environment"].items() if name.startswith("CUDA_MPS_")}
        pipe = environment.pop("CUDA_MPS_PIPE_DIRECTORY", "")
        mounts = [path for path in got["mounts"] if not path.startswith(OF_THE_TOOLKIT)]
        assert (pipe in mounts) is bool(pipe)
        assert not pipe or re.fullmatch(r".*/mps/GPU-[0-9a-f]{8}-/pipe", pipe)
        found[got["pod"]] = ([node.split(" ")[0].removeprefix("/dev/") for node in nodes], environment, mounts)
    return found


def limits(memory_mib: int, percent: int = 100) -> dict[str, str]:
    """Of an MPS client."""
    threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
    return {**threads, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_mib}M"}


def documented(folder: str) -> set[tuple[str, str]]:
    """Environment and first device node in the guide's rows of this example."""
    row = rf"^\| `examples/{folder}`: [^|]+ \| ([^|]+) \| [^|]+ \| `([^`]+)`"
    return set(re.findall(row, GUIDE.read_text(encoding="utf-8"), re.MULTILINE))


def in_words(environment: dict[str, str]) -> str:
    """As the guide writes it."""
    words = [f"{name.removeprefix('CUDA_MPS_')}={value}" for name, value in sorted(environment.items(), reverse=True)]
    return ", ".join(f"`{word}`" for word in [*words, "PIPE_DIRECTORY"]) if words else "none"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        pytest.param("mps", {"mps-partitioning-example": ("nvidia0", limits(9536))}, marks=pytest.mark.thorough),
        pytest.param(
            *("mps-replicas", {"first": ("nvidia0", limits(20389, 25)), "second": ("nvidia0", limits(20389, 25))}),
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *("mps-ack", {"small": ("nvidia0", limits(10 * 1024)), "large": ("nvidia0", limits(60 * 1024))}),
            marks=pytest.mark.thorough,
        ),
        (
            "mixed",
            {
                "on-mps-20": ("nvidia1", limits(19073)),
                "on-mps-10": ("nvidia1", limits(9536)),
                "on-mig": ("nvidia0", {}),
                "whole": ("nvidia2", {}),
            },
        ),
    ],
)
def test_what_containers_get_of_each_way_of_sharing(
    examples: Examples, folder: str, expected: dict[str, tuple[str, dict[str, str]]]
) -> None:
    result = examples.result(folder)

    assert {pod["phase"] for pod in result["pods"]} == {"Running"}
    found = given(result)
    assert {pod: (nodes[0], environment) for pod, (nodes, environment, _) in found.items()} == expected
    rows = documented(folder)
    assert rows
    assert rows <= {(in_words(environment), nodes[0]) for nodes, environment, _ in found.values()}
    for nodes, environment, mounts in found.values():
        assert (len(mounts) > 0) is bool(environment)
        assert len(nodes) in (1, 3)  # a MIG instance has its capabilities besides
    ids = [
        part["uuid"] for plan in result["plans"] for gpu in plan["status"]["gpus"] for part in gpu.get("partitions", ())
    ]
    assert len(ids) == len(set(ids))


def test_a_node_with_three_kinds_of_gpu_advertises_nothing_twice(examples: Examples) -> None:
    _, plans = examples.outcome("mixed")
    listed = Counter(
        (gpu["index"], part["resource"])
        for gpu in plans["mixed-node"]["status"]["gpus"]
        for part in gpu.get("partitions", ())
    )
    assert listed == {
        (0, "nvidia.com/mig-3g.40gb"): 1,
        (0, "nvidia.com/mig-1g.10gb"): 2,
        (1, "nvidia.com/gpu-20gb"): 2,
        (1, "nvidia.com/gpu-10gb"): 3,
        (2, "nvidia.com/gpu"): 1,
    }
    assert ready(plans["mixed-node"])["status"] == "True"


@pytest.mark.thorough
def test_mixed_mig_profiles_run_on_three_kinds_of_gpu(examples: Examples) -> None:
    pods, plans = examples.outcome("mig")

    assert {pod["phase"] for pod in pods.values()} == {"Running"}
    assert {name: ready(plan)["status"] for name, plan in plans.items()} == {
        "a100": "True",
        "a30": "True",
        "h100": "True",
    }
    assert all(plan["status"]["observedGeneration"] == plan["metadata"]["generation"] for plan in plans.values())


@pytest.mark.thorough
def test_a_manual_plan_is_made_as_written_and_not_added_to(examples: Examples) -> None:
    pods, plans = examples.outcome("manual")

    assert pods["fits-the-plan"]["phase"] == "Running"
    assert (pods["not-in-the-plan"]["phase"], pods["not-in-the-plan"]["reason"]) == ("Pending", "Blocked")
    assert "Manual" in pods["not-in-the-plan"]["message"]
    plan = plans["gpu-node-1"]
    assert "planned" not in plan["spec"]
    made = [
        sorted((part["resource"].removeprefix("nvidia.com/mig-"), part["start"]) for part in gpu.get("partitions", ()))
        for gpu in plan["status"]["gpus"]
    ]
    assert [profile for profile, _ in made[0]] == ["1g.10gb", "1g.10gb", "1g.10gb", "3g.40gb"]
    assert made[1] == [("2g.20gb", 4), ("4g.40gb", 0)]


@pytest.mark.thorough
def test_instances_in_use_survive_and_idle_ones_make_room(examples: Examples) -> None:
    pods, plans = examples.outcome("survivors")

    running = {name for name, pod in pods.items() if pod["phase"] == "Running"}
    assert running == {"old-training", "old-inference", "new-inference"}
    assert pods["too-big-for-now"]["reason"] == "WaitsForRelease"
    held = partitions(plans["old-node"])
    assert held["default/old-training"] == ("nvidia.com/mig-3g.20gb", 4, "Used")
    assert held["default/old-inference"][0] == "nvidia.com/mig-1g.5gb"
    assert held["default/new-inference"][0] == "nvidia.com/mig-2g.10gb"


def test_what_cannot_settle_in_time_is_reported_and_exits_1(tmp_path: Path) -> None:
    done = run("-f", str(EXAMPLES / "mps"), "--timeout", "0.5")

    assert done.returncode == 1
    assert "not settled after 0.5 s: " in done.stderr
    assert "gpuplan: controller ended by itself 0 times; its log ends:\n" in done.stderr


def test_a_bad_file_exits_2_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: v1\nkind: Nod\nmetadata: {name: n}\n")

    assert main(["sandbox", "run", "-f", str(tmp_path / "bad.yaml")]) == 2

    assert capsys.readouterr().err.startswith(f"gpuplan: {tmp_path}/bad.yaml: document 0: apiVersion, kind: ")


def test_crds_prints_the_yaml_that_lies_in_crds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds"]) == 0

    assert capsys.readouterr().out == (EXAMPLES.parent / "crds" / "gpuplan.dev_gpupartitionplans.yaml").read_text()
