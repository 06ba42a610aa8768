"""The whole controller with its watches and the real planner, against the API server; the test plays the agent."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from controller import wiring
from controller.cache import watches
from controller.cache.watches import Watches
from controller.config.scheduler_source import SourceWatch
from controller.loop import Loop
from controller.wiring import Controller
from crds.v1alpha1 import paths
from crds.v1alpha1.names import NAMESPACE
from crds.v1alpha1.plan import GPUPartitionPlan
from kube import apply
from kube.access import ACCESS_REVIEWS, TOKEN_REVIEWS
from kube.concurrency import REQUESTS
from kube.leases import lease_path
from tests.apiserver import Refuse
from tests.builders.objects import gpu, node, pod
from tests.controller.cluster import Bench
from tests.controller.world import QUICK_ELECTION, ControllerWorld, decisions, instances
from tests.waiting import eventually


def test_a_pending_pod_becomes_partitions(world: ControllerWorld) -> None:
    cluster = world.cluster
    cluster.node(node("n1"))
    cluster.pod(pod("a"))
    cluster.pod(pod("b", requests={"nvidia.com/mig-3g.40gb": "1"}))
    controller = world.start()
    world.wait_for_empty_plan()
    world.report_empty()
    items = world.wait_for_plan()
    assert instances(items) == ["1g.10gb", "3g.40gb"]
    assert all("start" in i for found in items for i in found["mig"]["instances"])
    assert items[0]["uuid"] == gpu()["uuid"]
    eventually(lambda: decisions(controller)["underWay"] == ["n1"], "the node under way")
    world.obey()
    eventually(lambda: [world.nominated(name) for name in ("a", "b")] == ["n1", "n1"], "both nominations")
    eventually(lambda: decisions(controller)["idle"] and not decisions(controller)["underWay"], "rest")
    assert [(entry["name"], entry["outcome"], entry["node"]) for entry in decisions(controller)["pods"]] == [
        ("a", "placed", "n1"),
        ("b", "placed", "n1"),
    ]
    for name in ("a", "b"):
        cluster.bind(name, "n1")
    eventually(lambda: cluster.conditions()["AgentAlive"]["status"] == "True", "a living agent")
    assert cluster.get_plan()["metadata"]["generation"] == 2  # one plan, written once
    reasons = {(e["involvedObject"]["name"], e["reason"]) for e in eventually(cluster.events, "events")}
    assert ("n1", "PlanWritten") in reasons


def test_each_version_of_a_plan_is_parsed_once(world: ControllerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: Counter[str] = Counter()
    read = GPUPartitionPlan.read

    def counting(raw: Any) -> Any:
        parsed[raw["metadata"]["resourceVersion"]] += 1
        return read(raw)

    monkeypatch.setattr(GPUPartitionPlan, "read", counting)
    cluster = world.cluster
    cluster.node(node("n1"))
    cluster.pod(pod("a"))
    controller = world.start()
    world.wait_for_empty_plan()
    world.report_empty()
    world.wait_for_plan()
    world.obey()
    eventually(lambda: decisions(controller)["idle"] and not decisions(controller)["underWay"], "rest")
    assert len(parsed) >= 4
    assert set(parsed.values()) == {1}


def test_a_pod_that_gets_nothing_has_a_reason_everywhere(world: ControllerWorld) -> None:
    cluster = world.cluster
    cluster.node(node("n1"))
    controller = world.start()
    world.wait_for_empty_plan()
    world.report_empty()
    cluster.pod(pod("huge", requests={"nvidia.com/mig-9g.999gb": "1"}))
    eventually(lambda: decisions(controller)["pods"] and decisions(controller)["idle"], "a decision")
    entry = decisions(controller)["pods"][0]
    assert (entry["name"], entry["outcome"]) == ("huge", "unplaced")
    assert entry["reason"]
    assert entry["message"]
    event = eventually(lambda: [e for e in cluster.events() if e["involvedObject"]["name"] == "huge"], "its event")[0]
    assert (event["type"], event["reason"], event["message"]) == ("Warning", entry["reason"], entry["message"])
    passes = decisions(controller)["pass"]
    world.beat()
    eventually(lambda: decisions(controller)["idle"], "rest")
    assert decisions(controller)["pass"] == passes


def test_capacity_that_appears_is_planned_without_a_new_pod(world: ControllerWorld) -> None:
    cluster = world.cluster
    controller = world.start()
    cluster.pod(pod("a"))
    eventually(lambda: [e["outcome"] for e in decisions(controller)["pods"]] == ["unplaced"], "a first no")
    cluster.node(node("n1"))
    world.wait_for_empty_plan()
    world.report_empty()
    assert instances(world.wait_for_plan()) == ["1g.10gb"]


def test_pages_report_health_and_decisions(world: ControllerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = world.start()
    base = f"http://127.0.0.1:{controller.port}"
    eventually(lambda: controller.port and controller.state, "the controller")
    for path in ("/healthz", "/metrics"):
        with urlopen(base + path, timeout=60) as answer:
            assert answer.status == 200
    eventually(lambda: decisions(controller)["pass"] == 1, "the first pass")
    with urlopen(f"{base}/readyz", timeout=60) as answer:
        assert answer.read() == b"ok\n"
    monkeypatch.setattr(Loop, "failing", lambda _: ["passes fail"])
    with pytest.raises(HTTPError, match="500"):
        urlopen(f"{base}/readyz", timeout=60)


def readiness(controller: Controller) -> str:
    try:
        with urlopen(f"http://127.0.0.1:{controller.port}/readyz", timeout=60) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        return error.read().decode()


def test_nothing_is_done_from_a_watch_that_fails_and_readyz_names_it(
    world: ControllerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "STALE_SECONDS", 0.5)
    faults = world.cluster.server.faults
    faults.append(lambda request: Refuse(code=403) if request.path == paths.PODS and request.flag("watch") else None)
    controller = world.start()
    eventually(lambda: controller.port, "the controller")
    eventually(lambda: "/api/v1/pods has not been watched for" in readiness(controller), "the failed watch")
    assert "injected fault" in readiness(controller)
    world.cluster.node(node("n1"))
    eventually(controller.state.cluster.nodes, "the node")
    turned = controller._loop._turned_at
    eventually(lambda: controller._loop._turned_at > turned, "another turn")
    assert world.cluster.plans() == []
    faults.clear()
    world.wait_for_empty_plan()
    assert readiness(controller) == "ok\n"


@pytest.mark.parametrize(("silent", "leases"), [(40, 20.0), (60, 30.0), (180, 60.0)])
def test_leases_may_fail_for_less_long_than_agents_may_be_silent(
    world: ControllerWorld, silent: int, leases: float
) -> None:
    found = Watches(world.cluster.api, Bench(world.cluster).state, namespace=NAMESPACE, agent_silent_seconds=silent)
    allowed = [found.most_stale_seconds(path) for path in (paths.PODS, paths.NODES, paths.PLANS, lease_path(NAMESPACE))]
    assert allowed == [60.0, 60.0, 60.0, leases]


def test_agents_are_excused_for_what_the_watch_of_their_leases_missed(
    world: ControllerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Bench(world.cluster).state
    gaps: list[float] = []
    monkeypatch.setattr(state, "excuse_agents", gaps.append)
    found = Watches(world.cluster.api, state, namespace=NAMESPACE, agent_silent_seconds=60)
    found.start()
    try:
        eventually(found.current, "all watches")
        assert gaps
    finally:
        found.stop()


def test_the_second_controller_takes_over_at_once_from_one_that_ends(world: ControllerWorld) -> None:
    world.cluster.node(node("n1"))
    quick = {"retryPeriodSeconds": 0.2}  # and else as it ships: it is not the Lease that expires
    first = world.start("one", leaderElection=quick)
    world.wait_for_empty_plan()
    second = world.start("two", leaderElection=quick)
    first.stop()
    eventually(lambda: second.metrics.registry.get_sample_value("gpuplan_leader") == 1, "the second to lead")
    world.cluster.node(node("n2"))
    world.wait_for_empty_plan("n2")
    assert not first.lost


@pytest.mark.parametrize(
    ("method", "part"),
    [("POST", "/gpupartitionplans"), ("PATCH", "/status"), ("PATCH", "/gpupartitionplans/n")],
)
def test_nothing_more_is_sent_once_it_is_stopped(world: ControllerWorld, method: str, part: str) -> None:
    names = [f"n{number:02}" for number in range(5 * REQUESTS)]
    for name in names:
        world.cluster.node(node(name))
        if method == "PATCH":
            world.cluster.plan(name)
        if part == "/gpupartitionplans/n":
            world.report_empty(name)
            world.cluster.pod(pod(name, requests={"nvidia.com/mig-7g.80gb": "1"}))
    sent = []

    def fault(request: Any) -> None:
        if request.method == method and part in request.path and (part == "/status") == ("status" in request.path):
            sent.append(request.path)
            controller.stop()

    world.cluster.server.faults.append(fault)
    controller = world.start()
    if part == "/gpupartitionplans/n":
        for name in names:
            world.beat(name)
    eventually(lambda: sent, "the first request")
    world.stop()
    assert len(sent) <= REQUESTS


def test_a_lost_lease_ends_the_process(world: ControllerWorld) -> None:
    controller = world.start("one", leaderElection=QUICK_ELECTION)
    eventually(lambda: decisions(controller)["pass"], "the first pass")
    for method in ("GET", "PUT"):
        world.cluster.refuse(method, "/leases/gpuplan-controller")
    eventually(lambda: controller.lost, "the end")


def test_another_configuration_of_the_scheduler_ends_the_process(
    world: ControllerWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "SourceWatch", partial(SourceWatch, poll_seconds=0.05))
    path = tmp_path / "scheduler.yaml"
    configuration = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path.write_text(yaml.safe_dump(configuration))
    controller = world.start(schedulerConfigFile=str(path))
    assert not controller.lost

    path.write_text(yaml.safe_dump({**configuration, "profiles": [{"schedulerName": "another"}]}))

    assert eventually(lambda: controller.lost, "the controller to notice")


def may(token: str, document: dict[str, Any]) -> dict[str, Any]:
    """What the API server says where Ada alone may list the pods of all namespaces."""
    if document["kind"] == "TokenReview":
        known = document["spec"]["token"] == token
        return {"status": {"authenticated": known, "user": {"username": "ada"} if known else {}}}
    return {"status": {"allowed": document["spec"]["resourceAttributes"] == {"verb": "list", "resource": "pods"}}}


@pytest.mark.parametrize(("address", "codes"), [("127.0.0.1", [200, 200, 200]), ("0.0.0.0", [401, 401, 200])])
def test_decisions_are_for_all_on_loopback_and_else_for_who_may_list_pods_everywhere(
    world: ControllerWorld, monkeypatch: pytest.MonkeyPatch, address: str, codes: list[int]
) -> None:
    """The other pages take no token, and who may not read this one learns nothing of it."""
    create = apply.create

    def reviewing(api: Any, path: str, body: dict[str, Any], **more: Any) -> Any:
        return may("t-ada", body) if path in (TOKEN_REVIEWS, ACCESS_REVIEWS) else create(api, path, body, **more)

    monkeypatch.setattr(apply, "create", reviewing)
    url = f"http://127.0.0.1:{world.start(metricsAddress=address).port}"
    answers = [answer(f"{url}/decisions", token) for token in ("", "t-bob", "t-ada")]

    assert [code for code, _ in answers] == codes
    assert ['"pods"' in body for _, body in answers] == [code == 200 for code in codes]
    assert answer(f"{url}/metrics", "")[0] == 200


def answer(url: str, token: str) -> tuple[int, str]:
    request = Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=60) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
