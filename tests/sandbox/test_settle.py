"""When a run is over: every pod bound, finished or explained, every plan at rest, nothing in flight."""

from typing import Any

import pytest

from sandbox.settle import settlement
from tests.builders import objects
from tests.builders.objects import SLICE, Json, condition

IDLE: Json = {"idle": True, "underWay": [], "pods": []}


def pod(phase: str = "Pending", node: str = "", *, refused: bool = False, resource: str = SLICE) -> Json:
    return objects.pod(requests={resource: 1}, node=node, phase=phase, uid="u", unschedulable=refused)


def plan(
    status: str = "True", reason: str = "Confirmed", seen: int = 1, stalled: str = "False", use: str = "Free"
) -> Json:
    conditions = [condition("Ready", status, reason, seen), condition("Stalled", stalled, "x", seen)]
    gpu = objects.gpu(partitions=[objects.partition(state=use)])
    return objects.plan("n", status=objects.status(gpu, conditions=conditions))


def decided(outcome: str, reason: str = "NoCapacity") -> Json:
    entry = {"uid": "u", "outcome": outcome, "node": "n", "reason": reason, "message": "add a node"}
    return {**IDLE, "pods": [entry]}


@pytest.mark.parametrize(
    ("pods", "plans", "decisions", "settled"),
    [
        pytest.param([pod("Running", "n")], [plan(use="Used")], IDLE, True, id="running"),
        pytest.param([pod("Succeeded", "n")], [], IDLE, True, id="finished"),
        pytest.param([pod("Pending", "n")], [], IDLE, False, id="bound-not-running"),
        pytest.param([pod(refused=True)], [], decided("unplaced"), True, id="explained"),
        pytest.param([pod(refused=True)], [], decided("underWay"), False, id="supply-under-way"),
        pytest.param([pod()], [], decided("unplaced", "AwaitingAgent"), False, id="may-still-be-served"),
        pytest.param([pod(refused=True)], [], IDLE, False, id="not-decided-yet"),
        pytest.param([pod(refused=True, resource="cpu")], [], IDLE, True, id="explained-by-the-scheduler"),
        pytest.param([pod()], [], IDLE, False, id="not-looked-at"),
        pytest.param([pod(refused=True, resource="nvidia.com/gpu")], [], IDLE, True, id="whole-gpu"),
        pytest.param([pod("Running", "n")], [], {**IDLE, "idle": False}, False, id="window-open"),
        pytest.param([pod("Running", "n")], [], {**IDLE, "underWay": ["n"]}, False, id="in-flight"),
        pytest.param([], [], None, False, id="no-pass-yet"),
        pytest.param([pod("Running", "n")], [plan(use="Free")], IDLE, False, id="holder-not-shown-yet"),
        pytest.param([], [plan(use="Used")], IDLE, True, id="plan-in-use"),
        pytest.param([], [plan(use="Unknown")], IDLE, False, id="use-not-known-yet"),
        pytest.param([], [plan(seen=0)], IDLE, False, id="plan-not-answered"),
        pytest.param([], [plan("False", "Changing")], IDLE, False, id="plan-changing"),
        pytest.param([], [plan("False", "WaitingForRelease")], IDLE, True, id="plan-waits-for-a-pod"),
        pytest.param([], [plan("False", "GPUMismatch", stalled="True")], IDLE, True, id="plan-stalled"),
        pytest.param([], [plan("False", "AdvertiseTimeout", stalled="True")], IDLE, False, id="plan-late"),
    ],
)
def test_settled(pods: list[Any], plans: list[Any], decisions: Any, settled: bool) -> None:
    found = settlement(pods, plans, decisions)

    assert found.settled is settled, found.waiting


def test_an_explained_pod_carries_the_controllers_words() -> None:
    found = settlement([pod(refused=True)], [], decided("unplaced"))

    assert found.pods[0].as_json() == {
        "namespace": "default",
        "name": "p",
        "phase": "Pending",
        "node": "",
        "reason": "NoCapacity",
        "message": "add a node",
    }


def test_no_agent_answers_a_plan_without_a_node_or_without_an_agent() -> None:
    lonely = plan(seen=0)
    assert not settlement([], [lonely], IDLE).settled
    assert settlement([], [lonely], IDLE, without_agent={"n"}).settled
    lonely["status"]["conditions"].append(condition("AgentAlive", "Unknown", "NodeNotFound"))
    assert settlement([], [lonely], IDLE).settled


def test_a_held_pod_is_explained_by_what_its_node_does_not_offer() -> None:
    held = pod(node="n")
    held["status"] |= {"reason": "NotOffered", "message": "node n does not offer it"}
    found = settlement([held], [], IDLE)
    assert found.settled
    assert (found.pods[0].node, found.pods[0].reason) == ("n", "NotOffered")


def test_amounts_are_quantities() -> None:
    big = pod("Running", "n")
    big["spec"]["containers"][0]["resources"]["limits"] = {SLICE: "1k"}
    assert not settlement([big], [plan(use="Used")], IDLE).settled


def sleeper(seconds: str, phase: str = "Running") -> Json:
    found = pod(phase, "n")
    found["metadata"] |= {"name": "s", "uid": "s"}
    found["spec"]["containers"][0]["command"] = ["sleep", seconds]
    found["status"]["startTime"] = "1970-01-01T00:01:40Z"
    return found


@pytest.mark.parametrize(
    ("seconds", "reason", "settled"),
    [
        pytest.param("3", "WaitsForRelease", False, id="ends-in-time"),
        pytest.param("1h", "WaitsForRelease", True, id="ends-too-late"),
        pytest.param("infinity", "WaitsForRelease", True, id="never-ends"),
        pytest.param("3", "NeverFits", True, id="would-not-help"),
    ],
)
def test_pods_that_end_soon_are_waited_for(seconds: str, reason: str, settled: bool) -> None:
    pods = [pod(refused=True), sleeper(seconds)]
    decisions = decided("unplaced", reason)

    assert settlement(pods, [plan(use="Used")], decisions, patience_until=200.0).settled is settled
    assert settlement(pods, [plan(use="Used")], decisions).settled  # without a time-out to spend


def test_what_a_finished_pod_held_must_be_seen_free() -> None:
    used = plan(use="Used")
    used["status"]["gpus"][0]["partitions"][0]["pod"] = "default/s"

    assert not settlement([sleeper("3", "Succeeded")], [used], IDLE).settled
    assert settlement([sleeper("3", "Succeeded")], [plan(use="Free")], IDLE).settled
