"""An agent that starts while a person has the driver closed must not open it, however late it reads its Node."""

import time
from types import SimpleNamespace

import pytest

from crds.v1alpha1 import paths
from crds.v1alpha1.names import CLOSED, LABEL_DRIVER
from kube import apply
from nodeagent import process
from nodeagent.hardware.nvml import NvmlDriver
from sandbox.apiserver.api.requests import Request
from tests.apiserver import ApiServer, Refuse
from tests.drawn import thorough
from tests.nodeagent.items import mig
from tests.nodeagent.real_node import NODE, PLAN, AgentNode
from tests.waiting import eventually

NODES = "/api/v1/nodes"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each call that opens the driver."""
    calls: list[str] = []
    count = NvmlDriver.count

    def counted(self: NvmlDriver) -> int:
        calls.append("count")
        return count(self)

    monkeypatch.setattr(NvmlDriver, "count", counted)
    return calls


@pytest.fixture
def refused(server: ApiServer) -> list[str]:
    """While the node is not to be read: the requests for it."""
    found: list[str] = []

    def fault(request: Request) -> Refuse | None:
        if request.path != NODES or request.method != "GET":
            return None
        found.append(request.path)
        return Refuse(code=503)

    server.faults.append(fault)
    return found


def conditions(node: AgentNode) -> dict[str, str]:
    found = apply.get(node.api, PLAN).get("status", {}).get("conditions", [])
    return {each["type"]: each["status"] for each in found}


def test_driver_stays_closed_until_the_node_was_read(
    node: AgentNode, server: ApiServer, opened: list[str], refused: list[str]
) -> None:
    node.plan(mig(0, ("3g.40gb", 4)))
    apply.merge_patch(node.api, f"{NODES}/{NODE}", {"metadata": {"labels": {LABEL_DRIVER: CLOSED}}})
    agent = node.start_agent()
    eventually(lambda: agent.health.unready() == [f"{process.NODE} not read from the API yet"], "plan and pods")
    eventually(lambda: len(refused) > 4, "requests for the node")
    assert not opened
    server.faults.clear()
    eventually(lambda: conditions(node).get("DriverReleased") == "True", "the driver to be released")
    assert not opened


def test_node_that_cannot_be_read_is_not_waited_for_without_end(
    node: AgentNode, server: ApiServer, refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plan says of it has to be reported, and what pods hold is served."""
    monkeypatch.setattr(process, "NODE_SECONDS", 0.3)
    node.plan(mig(0, ("3g.40gb", 4)))
    node.start_agent()
    eventually(lambda: "Ready" in conditions(node), "a status")
    assert refused
    server.faults.clear()
    eventually(node.ready, "the plan to be Ready")


def test_the_wait_for_the_node_begins_once_the_plan_was_read(
    node: AgentNode, server: ApiServer, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server comes back after more than NODE_SECONDS, and the watch of the plan is there first."""
    ahead_seconds = [0.0]
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + ahead_seconds[0])
    monkeypatch.setattr(process, "time", clock)
    asked = {paths.PLANS: 0, NODES: 0}
    away = set(asked)

    def fault(request: Request) -> Refuse | None:
        if request.method != "GET" or request.path not in away:
            return None
        asked[request.path] += 1
        return Refuse(code=503)

    node.plan(mig(0, ("3g.40gb", 4)))
    apply.merge_patch(node.api, f"{NODES}/{NODE}", {"metadata": {"labels": {LABEL_DRIVER: CLOSED}}})
    server.faults.append(fault)
    agent = node.start_agent()
    eventually(lambda: min(asked.values()) > 1, "both watches to be refused")
    ahead_seconds[0] = 2 * process.NODE_SECONDS
    away.discard(paths.PLANS)
    eventually(lambda: agent.health.unready()[:1] == [f"{process.NODE} not read from the API yet"], "the plan")
    before = asked[NODES]
    eventually(lambda: opened or asked[NODES] > before + 1, "the driver, or two more refusals")
    assert not opened
    server.faults.clear()
    eventually(lambda: conditions(node).get("DriverReleased") == "True", "the driver to be released")
    assert not opened


@pytest.mark.parametrize("released", [True, *thorough(False)], ids=["released", "a pod holds a device"])
def test_restarted_agent_that_never_reads_its_node_keeps_closed_what_was_closed(
    node: AgentNode, server: ApiServer, opened: list[str], monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    node.plan(mig(0, ("3g.40gb", 4)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    if not released:
        node.pod("holder", "nvidia.com/mig-3g.40gb")
        eventually(lambda: node.phase("holder") == "Running", "the pod to run")
    apply.merge_patch(node.api, f"{NODES}/{NODE}", {"metadata": {"labels": {LABEL_DRIVER: CLOSED}}})
    eventually(lambda: conditions(node).get("DriverReleased") == str(released), "the hold to be reported")
    node.stop_agent()
    opened.clear()
    monkeypatch.setattr(process, "NODE_SECONDS", 0.0)
    server.faults.append(lambda r: Refuse(code=503) if (r.method, r.path) == ("GET", NODES) else None)
    agent = node.start_agent()
    eventually(lambda: agent._passes.completed > 3, "passes")
    assert not opened
    assert conditions(node)["DriverReleased"] == str(released)
    server.faults.clear()
    apply.merge_patch(node.api, f"{NODES}/{NODE}", {"metadata": {"labels": {LABEL_DRIVER: None}}})
    eventually(node.ready, "the plan to be Ready")
