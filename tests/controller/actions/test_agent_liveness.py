"""AgentAlive against the API server, on a clock that only the test moves."""

from typing import Any

import pytest

from controller.actions.agent_liveness import AgentLiveness
from controller.api.nodes import read_node
from controller.cache.informers import FixedInformers
from controller.model.scheduling import SchedulingContext
from crds.v1alpha1 import names, paths
from kube import apply
from tests.builders.objects import condition, gpu, item, node, status
from tests.controller.cluster import Bench


def agents(bench: Bench) -> AgentLiveness:
    return AgentLiveness(bench.environment, agent_silent_seconds=60, taint_removal_seconds=180)


def run(bench: Bench, work: AgentLiveness) -> None:
    """As the watches and the loop would."""
    bench.load()
    bench.state.tick()
    work.run()


def ready(bench: Bench) -> AgentLiveness:
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1")
    return agents(bench)


def condition_of(bench: Bench, kind: str) -> tuple[str, str, int]:
    """Status, reason and generation; 0 where it names none, as AgentAlive."""
    found = bench.cluster.conditions().get(kind, {})
    return (found.get("status", ""), found.get("reason", ""), found.get("observedGeneration", 0))


def test_from_first_sight_to_silence_and_back(bench: Bench) -> None:
    work = ready(bench)
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("Unknown", "Starting", 0)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    own = condition("Ready", "True", "Confirmed")
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged"), conditions=[own]))
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)
    assert bench.cluster.conditions()["AgentAlive"]["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    bench.clock.now += 59
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)
    bench.clock.now += 1
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("False", "AgentSilent", 0)
    assert condition_of(bench, "Ready") == ("Unknown", "AgentSilent", 1)
    bench.cluster.beat("n1", "2026-01-01T12:01:00.000000Z")
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)
    assert condition_of(bench, "Ready") == ("Unknown", "AgentSilent", 1)  # until the agent reports more
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged"), conditions=[own]))
    run(bench, work)
    assert condition_of(bench, "Ready") == ("True", "Confirmed", 1)
    bench.cluster.pin("n1", {"index": 0, "whole": {}})
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)
    assert condition_of(bench, "Ready") == ("True", "Confirmed", 1)
    assert bench.errors("status") == 0


def test_what_the_plan_reports_already_is_not_written_again(bench: Bench) -> None:
    work = ready(bench)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    for _ in range(2):
        run(bench, work)
    before = bench.cluster.get_plan()["metadata"]["resourceVersion"]
    bench.clock.now += 10
    bench.cluster.beat("n1", "2026-01-01T12:01:00.000000Z")
    run(bench, work)
    assert bench.cluster.get_plan()["metadata"]["resourceVersion"] == before


def test_a_restarted_controller_does_not_take_an_old_lease_for_life(bench: Bench) -> None:
    work = ready(bench)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    bench.load()
    bench.clock.now += 60
    run(bench, work)
    assert condition_of(bench, "AgentAlive")[1] == "AgentSilent"
    again = Bench(bench.cluster)
    run(again, agents(again))
    assert condition_of(bench, "AgentAlive")[1] == "AgentSilent"
    assert not again.state.cluster.plan_views()["n1"].agent_alive
    bench.cluster.beat("n1", "2026-01-01T12:01:00.000000Z")
    run(again, agents(again))
    assert condition_of(bench, "AgentAlive")[1] == "Heartbeat"


def test_a_plan_without_a_node(bench: Bench) -> None:
    bench.cluster.plan("n1", gpus=[{"index": 0, "whole": {}}])
    run(bench, agents(bench))
    assert condition_of(bench, "AgentAlive") == ("Unknown", "NodeNotFound", 0)
    bench.cluster.node(node("n1"))
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    run(bench, agents(bench))
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)


def test_a_node_that_cannot_be_read_is_there(bench: Bench) -> None:
    work = ready(bench)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    bench.load()
    bench.state.observe_node("n1", read_node(node("n1") | {"spec": {"taints": [{"effect": "NoSchedule"}]}}))
    bench.state.tick()
    work.run()
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)
    bench.clock.now += 60
    bench.state.tick()
    work.run()
    assert condition_of(bench, "AgentAlive") == ("False", "AgentSilent", 0)


def status_writes(bench: Bench) -> list[str]:
    """The paths of the status writes from now on."""
    seen: list[str] = []

    def watch(request: Any) -> None:
        if request.method == "PATCH" and request.path.endswith("/status"):
            seen.append(request.path)

    bench.cluster.server.faults.append(watch)
    return seen


def test_ready_does_not_outlive_the_node(bench: Bench) -> None:
    work = ready(bench)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    own = status(gpu(), conditions=[condition("Ready", "True", "Confirmed")])
    bench.cluster.agent_status("n1", own)
    run(bench, work)
    apply.delete(bench.cluster.api, paths.node("n1"))
    bench.state.observe_node("n1", None)
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("Unknown", "NodeNotFound", 0)
    assert condition_of(bench, "Ready") == ("Unknown", "NodeNotFound", 1)
    bench.cluster.agent_status("n1", own)  # its agent still runs, and Ready is its own
    sent = status_writes(bench)
    run(bench, work)
    assert (condition_of(bench, "Ready"), sent) == (("True", "Confirmed", 1), [])
    bench.clock.now += 60
    run(bench, work)
    assert condition_of(bench, "Ready") == ("Unknown", "NodeNotFound", 1)
    before = bench.cluster.get_plan()["metadata"]["resourceVersion"]
    run(bench, work)
    assert bench.cluster.get_plan()["metadata"]["resourceVersion"] == before
    bench.cluster.node(node("n1"))
    bench.cluster.beat("n1", "2026-01-01T12:01:00.000000Z")
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)
    assert condition_of(bench, "Ready")[0] == "Unknown"  # until the agent reports more


@pytest.mark.parametrize(
    ("node_there", "alive", "unknown"), [(False, "NodeNotFound", "NodeNotFound"), (True, "Starting", "AwaitingAgent")]
)
def test_a_plan_that_no_agent_has_answered_is_unknown_at_once(
    bench: Bench, node_there: bool, alive: str, unknown: str
) -> None:
    if node_there:
        bench.cluster.node(node("n1"))
    bench.cluster.plan("n1", gpus=[{"index": 0, "whole": {}}])
    sent = status_writes(bench)
    work = agents(bench)
    for _ in range(5):
        run(bench, work)
        bench.clock.now += 10
    assert condition_of(bench, "AgentAlive") == ("Unknown", alive, 0)
    assert condition_of(bench, "Ready") == ("Unknown", unknown, 1)
    assert len(sent) == 1
    bench.clock.now += 10
    run(bench, work)
    assert condition_of(bench, "Ready") == ("Unknown", "AgentSilent" if node_there else "NodeNotFound", 1)


def test_an_agent_takes_ready_over_with_its_first_status(bench: Bench) -> None:
    work = ready(bench)
    run(bench, work)
    assert condition_of(bench, "Ready") == ("Unknown", "AwaitingAgent", 1)
    own = status(gpu(state="Unmanaged"), conditions=[condition("Ready", "True", "Confirmed")])
    bench.cluster.agent_status("n1", own)
    for moment in (1, 2):
        bench.cluster.beat("n1", f"2026-01-01T12:00:0{moment}.000000Z")
        run(bench, work)
        assert condition_of(bench, "Ready") == ("True", "Confirmed", 1)
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)


def test_a_node_that_joins_late_has_its_plan_wait_for_its_agent(bench: Bench) -> None:
    bench.cluster.plan("n1", gpus=[{"index": 0, "whole": {}}])
    work = agents(bench)
    run(bench, work)
    bench.cluster.node(node("n1"))
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("Unknown", "Starting", 0)
    assert condition_of(bench, "Ready") == ("Unknown", "AwaitingAgent", 1)


def test_a_new_generation_is_no_reason_to_write(bench: Bench) -> None:
    work = ready(bench)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    bench.cluster.agent_status(
        "n1", status(gpu(state="Unmanaged"), conditions=[condition("Ready", "True", "Confirmed")])
    )
    run(bench, work)
    sent = status_writes(bench)
    bench.cluster.pin("n1", {"index": 0, "whole": {}})
    run(bench, work)
    assert sent == []


def taint(bench: Bench, *taints: str) -> None:
    body = {"spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}}
    apply.merge_patch(bench.cluster.api, paths.node("n1"), body)


def taints(bench: Bench) -> list[str]:
    return [entry["key"] for entry in bench.cluster.get_node()["spec"].get("taints", [])]


def test_the_taint_of_a_silent_agent_comes_off_and_no_other(bench: Bench) -> None:
    work = ready(bench)
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    taint(bench, "a.example/other", "gpuplan.dev/changing", "b.example/other")
    run(bench, work)
    bench.clock.now += 179
    run(bench, work)
    assert "gpuplan.dev/changing" in taints(bench)
    bench.clock.now += 1
    run(bench, work)
    assert taints(bench) == ["a.example/other", "b.example/other"]


def test_one_failure_stops_no_other(bench: Bench) -> None:
    for name in ("n1", "n2"):
        bench.cluster.node(node(name))
        bench.cluster.plan(name, planned={"gpus": [item(0, 3)]})
        bench.cluster.beat(name, "2026-01-01T12:00:00.000000Z")
    bench.cluster.refuse("PATCH", "/n1/status")
    work = agents(bench)
    run(bench, work)
    assert "AgentAlive" not in bench.cluster.conditions("n1")
    assert "AgentAlive" in bench.cluster.conditions("n2")
    assert bench.errors("status") == 1
    bench.cluster.server.faults.clear()
    run(bench, work)
    assert "AgentAlive" not in bench.cluster.conditions("n1")  # it waits before it tries again
    bench.clock.now += 5
    run(bench, work)
    assert "AgentAlive" in bench.cluster.conditions("n1")


def test_agent_of_a_node_that_was_handed_back_is_not_missed(bench: Bench) -> None:
    bench.cluster.node(node("n1", mode=None))
    bench.cluster.plan("n1")
    own = condition("Ready", "False", "NodeDisabled")
    uid = bench.cluster.get_node()["metadata"]["uid"]
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged"), conditions=[own], node_uid=uid))
    work = agents(bench)
    for _ in range(2):
        run(bench, work)
        assert condition_of(bench, "AgentAlive") == ("Unknown", "NodeDisabled", 0)
        assert condition_of(bench, "Ready") == ("False", "NodeDisabled", 1), "the agent's last word"
        bench.clock.now += 60


@pytest.mark.parametrize("labels", [{names.LABEL_NODE_AGENT: "true"}, {names.LABEL_PARTITIONING: "mig"}])
def test_agent_that_belongs_on_its_node_is_missed(bench: Bench, labels: dict[str, str]) -> None:
    """While the node waits for its pods, or is enabled again."""
    bench.cluster.node(node("n1", labels=labels))
    bench.cluster.plan("n1")
    own = condition("Ready", "False", "NodeDisabled")
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged"), conditions=[own]))
    work = agents(bench)
    run(bench, work)
    bench.clock.now += 60
    run(bench, work)
    assert condition_of(bench, "AgentAlive") == ("False", "AgentSilent", 0)
    assert condition_of(bench, "Ready") == ("Unknown", "AgentSilent", 1)


class Dra(FixedInformers):
    """What is known of DRA, set by hand."""

    def __init__(self, nodes: frozenset[str] | None = None) -> None:
        super().__init__()
        self.nodes = nodes

    def dra_lists(self, node: str) -> bool | None:
        return node in self.nodes if self.nodes is not None else None

    def map(self, *resources: str) -> None:
        self._context = SchedulingContext(dra_resources=frozenset(resources))


@pytest.fixture
def dra(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Dra:
    found = Dra()
    monkeypatch.setattr(bench.state.cluster, "informers", found)
    bench.cluster.node(node("n1", allocatable={"nvidia.com/mig-1g.10gb": "0"}))
    bench.cluster.plan("n1")
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    return found


def resync(bench: Bench, work: AgentLiveness) -> dict[str, Any]:
    """A minute later, by when every plan is judged again; returns the condition."""
    bench.clock.now += 60
    bench.cluster.beat("n1", f"2026-01-01T12:{int(bench.clock.now) // 60 % 60:02}:00.000000Z")
    run(bench, work)
    return bench.cluster.conditions().get("ServedByDRA", {})


def test_what_dra_lists_or_maps_of_a_node_is_a_condition_while_it_lasts(bench: Bench, dra: Dra) -> None:
    work = agents(bench)
    assert resync(bench, work) == {}, "nothing is known yet"
    dra.nodes = frozenset({"n2"})
    dra.map("deviceclass.resource.kubernetes.io/mig", "nvidia.com/mig-2g.20gb", "example.com/nic")
    assert resync(bench, work) == {}, "of other nodes and resources"
    dra.map("nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb")
    found = resync(bench, work)
    assert (found["status"], found["reason"]) == ("True", "MappedToDRA")
    assert "maps nvidia.com/mig-1g.10gb (kubectl get deviceclasses -o yaml)" in found["message"]
    written = status_writes(bench)
    resync(bench, work)
    assert written == []
    dra.nodes = frozenset({"n1"})
    listed = resync(bench, work)
    assert (listed["status"], listed["reason"]) == ("True", "ForeignOwner")
    assert listed["lastTransitionTime"] == found["lastTransitionTime"]
    assert "spec.nodeName=n1)" in listed["message"]
    dra.nodes = None
    assert resync(bench, work) == listed, "a controller that has just begun takes nothing back"
    dra.nodes = frozenset()
    dra.map()
    assert resync(bench, work) == {}
    assert condition_of(bench, "AgentAlive") == ("True", "Heartbeat", 0)


def test_a_node_that_is_not_enabled_may_be_mapped(bench: Bench, dra: Dra) -> None:
    dra.nodes = frozenset()
    dra.map("nvidia.com/mig-1g.10gb")
    label = "gpuplan.dev/gpu-partitioning"
    apply.merge_patch(bench.cluster.api, paths.node("n1"), {"metadata": {"labels": {label: None}}})
    assert resync(bench, agents(bench)) == {}
