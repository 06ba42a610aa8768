"""`gpuplan sandbox run` on every example, as a person runs it: a process, its exit code, its JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SETTLE_SECONDS = 90.0

pytestmark = pytest.mark.slow


def run(*arguments: str, timeout_seconds: float = 110.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "sandbox", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)


def outcome(folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pods and plans by name."""
    done = run("-f", str(EXAMPLES / folder), "--timeout", str(SETTLE_SECONDS), "-o", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # progress is for terminals
    result = json.loads(done.stdout)
    assert set(result) == {"seconds", "pods", "plans"}
    pods = {pod["name"]: pod for pod in result["pods"]}
    return pods, {plan["metadata"]["name"]: plan for plan in result["plans"]}


def partitions(plan: dict[str, Any]) -> dict[str, tuple[str, int | None, str]]:
    """Holder -> resource, start and state, of every partition that a pod holds."""
    parts = [part for gpu in plan["status"]["gpus"] for part in gpu.get("partitions", [])]
    return {part["pod"]: (part["resource"], part.get("start"), part["state"]) for part in parts if "pod" in part}


def ready(plan: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in plan["status"]["conditions"] if c["type"] == "Ready")


def test_the_mps_pod_of_nos_documentation_runs() -> None:
    pods, plans = outcome("mps")

    assert pods["mps-partitioning-example"]["phase"] == "Running"
    slices = plans["mps-node"]["spec"]["planned"]["gpus"][0]["mps"]["slices"]
    assert [entry["memoryGB"] for entry in slices] == [10]
    assert partitions(plans["mps-node"]) == {
        "default/mps-partitioning-example": ("nvidia.com/gpu-10gb", None, "Used"),
    }


def test_mixed_mig_profiles_run_on_three_kinds_of_gpu() -> None:
    pods, plans = outcome("mig")

    assert {pod["phase"] for pod in pods.values()} == {"Running"}
    assert {name: ready(plan)["status"] for name, plan in plans.items()} == {
        "a100": "True",
        "a30": "True",
        "h100": "True",
    }
    assert all(plan["status"]["observedGeneration"] == plan["metadata"]["generation"] for plan in plans.values())


def test_a_manual_plan_is_made_as_written_and_not_added_to() -> None:
    pods, plans = outcome("manual")

    assert pods["fits-the-plan"]["phase"] == "Running"
    assert (pods["not-in-the-plan"]["phase"], pods["not-in-the-plan"]["reason"]) == ("Pending", "Blocked")
    assert "Manual" in pods["not-in-the-plan"]["message"]
    plan = plans["gpu-node-1"]
    assert "planned" not in plan["spec"]
    made = [
        sorted((part["resource"].removeprefix("nvidia.com/mig-"), part["start"]) for part in gpu["partitions"])
        for gpu in plan["status"]["gpus"]
    ]
    assert [profile for profile, _ in made[0]] == ["1g.10gb", "1g.10gb", "1g.10gb", "3g.40gb"]
    assert made[1] == [("2g.20gb", 4), ("4g.40gb", 0)]


def test_instances_in_use_survive_and_idle_ones_make_room() -> None:
    pods, plans = outcome("survivors")

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


def test_a_bad_file_exits_2_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: v1\nkind: Nod\nmetadata: {name: n}\n")

    done = run("-f", str(tmp_path / "bad.yaml"), timeout_seconds=20)

    assert done.returncode == 2
    assert done.stderr.startswith(f"gpuplan: {tmp_path}/bad.yaml: document 0: apiVersion, kind: ")


def test_crds_prints_the_yaml_that_lies_in_crds() -> None:
    done = subprocess.run([sys.executable, "-m", "cli", "crds"], capture_output=True, text=True, check=True, timeout=20)

    assert done.stdout == (EXAMPLES.parent / "crds" / "gpuplan.dev_gpupartitionplans.yaml").read_text()
