"""Pods with a nodeName: created once their node advertises what they request, explained when it does not."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient

from kube import apply, clients
from sandbox import held_pods
from sandbox.held_pods import HeldPods
from tests.apiserver import ApiServer
from tests.builders import objects
from tests.waiting import eventually

MIG = "nvidia.com/mig-1g.10gb"


def pod(name: str, node: str = "n1") -> dict[str, Any]:
    return objects.manifest(objects.pod(name, node=node))


@pytest.fixture
def api() -> Iterator[ApiClient]:
    with ApiServer() as server:
        yield clients.for_url(server.url)


def test_they_wait_for_their_node_and_say_what_it_lacks(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pods, "EXPLAIN_SECONDS", 0.0)
    created: list[str] = []

    def post(body: dict[str, Any]) -> None:
        created.append(body["metadata"]["name"])
        if body["metadata"]["name"] == "refused":
            raise RuntimeError("no")

    said: list[str] = []
    held = HeldPods(api, post, report=said.append)
    for body in (pod("waits"), pod("refused"), pod("lost", node="nowhere")):
        held.add(body)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {MIG: "0"}}}
    apply.create(api, "/api/v1/nodes", node)
    held.start()
    try:
        eventually(lambda: all("message" in body["status"] for body in held.bodies()), "a message for each")
        words = {body["metadata"]["name"]: body["status"]["message"] for body in held.bodies()}
        assert "there is no node nowhere: correct spec.nodeName" in words["lost"]
        assert f"node n1 does not offer 1 x {MIG}: pin it" in words["waits"]
        assert created == []
        apply.merge_patch(api, "/api/v1/nodes/n1/status", {"status": {"allocatable": {MIG: "1"}}})
        eventually(lambda: [body["metadata"]["name"] for body in held.bodies()] == ["lost"], "only the lost one left")
    finally:
        held.stop()
    assert created == ["waits", "refused"]
    assert said == ["pod refused: no"]
