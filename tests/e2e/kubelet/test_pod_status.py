"""What the status of pods shows: phase, conditions, addresses, container states, as clients of the API read them."""

from typing import Any

import pytest

from tests.e2e.kubelet.bench import KubeletSide, Raw, container, pod

Conditions = dict[str, tuple[str, str, str]]
TRUE = ("True", "", "")
COMPLETED = ("PodCompleted", "")
UNREADY = "containers with unready status: [c]"
NO_SANDBOX = ("False", "", "")
WHY_NO_SANDBOX = ("False", "PodSandboxNotReady", "pod sandbox is not ready")
SAYS_WHY = 37


def conditions(status: Raw) -> Conditions:
    """By type: status, reason, message."""
    found = status.get("conditions") or ()
    return {each["type"]: (each["status"], each.get("reason") or "", each.get("message") or "") for each in found}


def states(status: Raw) -> dict[str, str]:
    """By container: its state, and the reason for it."""
    found: dict[str, str] = {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ((state, details),) = each["state"].items()
        found[each["name"]] = f"{state} {details.get('reason', '')}".strip()
    return found


STATUSES: dict[str, tuple[Raw, str, Conditions, dict[str, str]]] = {
    "running": (
        pod(container()),
        "Running",
        {kind: TRUE for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")},
        {"c": "running"},
    ),
    "starting": (
        pod(container(), script={"start-seconds": "6"}),
        "Pending",
        {
            "Initialized": TRUE,
            "Ready": ("False", "ContainersNotReady", UNREADY),
            "ContainersReady": ("False", "ContainersNotReady", UNREADY),
        },
        {"c": "waiting ContainerCreating"},
    ),
    "initializing": (
        pod(container(), init=(container("i", sleep=6),)),
        "Pending",
        {
            "Initialized": ("False", "ContainersNotInitialized", "containers with incomplete status: [i]"),
            "Ready": ("False", "ContainersNotReady", UNREADY),
        },
        {"i": "running", "c": "waiting PodInitializing"},
    ),
    "one of two has ended": (
        pod(container(), container("d", sleep=0.1)),
        "Running",
        {"Ready": ("False", "ContainersNotReady", "containers with unready status: [d]")},
        {"c": "running", "d": "terminated Completed"},
    ),
    "succeeded": (
        pod(container(sleep=0.1), init=(container("i", sleep=0.1),)),
        "Succeeded",
        {
            "PodReadyToStartContainers": NO_SANDBOX,
            "Initialized": ("True", *COMPLETED),
            "Ready": ("False", *COMPLETED),
            "ContainersReady": ("False", *COMPLETED),
        },
        {"i": "terminated Completed", "c": "terminated Completed"},
    ),
    "failed": (
        pod(container(sleep=0.1), script={"exit-code": "3"}),
        "Failed",
        {"Ready": ("False", "PodFailed", ""), "ContainersReady": ("False", "PodFailed", ""), "Initialized": TRUE},
        {"c": "terminated Error"},
    ),
}


@pytest.mark.parametrize(("raw", "phase", "wanted", "containers"), STATUSES.values(), ids=STATUSES)
def test_status(bench: KubeletSide, raw: Raw, phase: str, wanted: Conditions, containers: dict[str, str]) -> None:
    made = bench.create({**raw, "metadata": {**raw["metadata"], "name": f"{raw['metadata']['name']}-{bench.side}"}})
    if bench.minor >= SAYS_WHY:
        wanted = {kind: WHY_NO_SANDBOX if value == NO_SANDBOX else value for kind, value in wanted.items()}

    def seen() -> Any:
        status = bench.pod(made)["status"]
        found = conditions(status)
        return status["phase"], {kind: found.get(kind) for kind in wanted}, states(status)

    last: list[Any] = []

    def matches() -> bool:
        last[:] = [seen()]
        return bool(last[0] == (phase, wanted, containers))

    try:
        bench.wait(matches, "the status says so")
    except AssertionError as error:
        raise AssertionError(f"{last[0]} instead of {(phase, wanted, containers)}") from error


def test_addresses_come_when_the_pod_has_started(bench: KubeletSide) -> None:
    raw = bench.create(pod(container(), script={"start-seconds": "4"}))
    bench.wait(lambda: bench.pod(raw)["status"].get("startTime"), "admitted")
    assert "podIP" not in bench.pod(raw)["status"]
    status = bench.wait_phase(raw, "Running")["status"]
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIPs"] == [{"ip": status["hostIP"]}]


def test_a_rejected_pod_has_no_conditions_of_the_kubelet_and_is_gone_at_once(bench: KubeletSide) -> None:
    bench.plugin()
    raw = bench.run(pod(container(devices={bench.resource: 1}), grace_seconds=300), "Failed")
    assert not set(conditions(raw["status"])) - {"PodScheduled", "PodReadyToStartContainers"}
    assert "podIP" not in raw["status"]
    bench.delete(raw)
    bench.wait_gone(raw)
