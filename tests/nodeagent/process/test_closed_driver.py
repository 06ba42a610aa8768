"""An agent that starts while a person has the driver closed must not open it, however late it reads its Node."""

import pytest

from crds.v1alpha1.names import CLOSED, LABEL_DRIVER
from kube import apply
from nodeagent import process
from nodeagent.hardware.nvml import NvmlDriver
from sandbox.apiserver.api.requests import Request
from tests.apiserver import ApiServer, Refuse
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
