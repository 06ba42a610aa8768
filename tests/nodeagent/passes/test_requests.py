"""How many requests of the agent a pod costs: counted on a clock that the test moves, alone, at once, and steadily.

What is no request of the pod's (heartbeats, watches) is left out. The kubelet's status tick comes every ten seconds,
the scheduler binds a pod half a second after there is room for it, one at a time.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest
from kubernetes.client import ApiClient

from kube.budget import RequestBudget
from nodeagent.desired.plan import ObservedPlan
from nodeagent.report.publish import OF_USE, StatusFailures, StatusWriter
from tests.nodeagent.conftest import MakeWorld, empty
from tests.nodeagent.items import NODE, Raw, mig
from tests.nodeagent.report.agent_and_controller import Silent
from tests.nodeagent.world import World

STEP, TICK, BIND, LIFE = 0.1, 10.0, 0.5, 8.0
SMALL = "nvidia.com/mig-1g.10gb"


class WorldWriter(StatusWriter):
    """Pauses between writes as the product does; they go to a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        super().__init__(
            cast(ApiClient, None),
            NODE,
            world.latest_plan,
            RequestBudget(),
            beats=Silent(),
            failures=StatusFailures(),
            clock=world.clock,
            interval_seconds=1.0,
        )

    def _write(self, plan: ObservedPlan, status: Mapping[str, Any]) -> bool:
        self.world.write(plan, status)
        return True


class Node:
    """One node with its kubelet and a scheduler, in steps of a tenth of a second."""

    def __init__(self, world: World) -> None:
        self.world, self.waiting = world, list[str]()
        self.ends: dict[tuple[str, str], float] = {}
        self.tried_at = 0.0
        world.node_ticks = False
        world.agent.reporter.write = WorldWriter(world).write
        world.apply()
        self.run(5.0)
        world.effect.done.clear()
        world.events.clear()

    def run(self, seconds: float, *, until_bound: bool = False) -> None:
        end = self.world.clock.now + seconds
        while self.world.clock.now < end and not (until_bound and not self.waiting):
            self.step()

    def step(self) -> None:
        world, now = self.world, self.world.clock.now
        world.pass_only()
        world.plugin.step()
        world.kubelet.step()
        world.start_waiting()
        if int(now / TICK) != int((now + STEP) / TICK):
            world.tick()
        for key in [key for key, end in self.ends.items() if now >= end]:
            world.finish(key)
            del self.ends[key]
        if not (self.waiting and self.has_room(self.waiting[0])):
            self.tried_at = now
        elif now >= self.tried_at + BIND:
            self.tried_at = now
            key = world.pod(self.waiting.pop(0))
            assert world.pods[key]["status"]["phase"] != "Failed", "the kubelet refused it"
            self.ends[key] = now + LIFE
        world.clock.now = round(now + STEP, 3)

    def has_room(self, resource: str) -> bool:
        held = sum(resource in each.get("main", {}) for each in self.world.kubelet.held.values())
        return not self.world.tainted() and int(self.world.node["status"]["allocatable"].get(resource, 0)) > held

    def requests(self) -> Counter[str]:
        done = Counter(what.partition(" ")[0] for what in self.world.effect.done)
        return Counter(
            status=done["status"], counts=done["allocatable"], taint=done["taint"], events=len(self.world.events)
        )


@pytest.fixture
def node(make_world: MakeWorld) -> Node:
    return Node(make_world(*empty(2)))


def test_a_pod_that_comes_alone_costs_three(node: Node) -> None:
    for number in range(3):
        node.world.apply(mig(0, *(("1g.10gb", start) for start in range(number + 1))))
        node.waiting.append(SMALL)
        node.run(20.0, until_bound=True)
        node.run(3.5)

    assert node.requests() == {"status": 6, "counts": 3, "taint": 0, "events": 0}, "Ready, Used, and what it counts"


def test_pods_that_come_at_once_share_their_statuses(node: Node) -> None:
    node.world.apply(mig(0, "1g.10gb*7"))
    node.waiting += [SMALL] * 7
    node.run(10.0, until_bound=True)
    assert not node.waiting
    node.run(5.0)

    found = node.requests()
    assert found["status"] <= 1 + 1 + 7 * BIND / OF_USE
    assert (found["counts"], found["taint"], found["events"]) == (1, 0, 0)
    assert node.world.partitions() == ["mig-1g.10gb Used"] * 7
    assert node.world.status()["summary"]["mig"] == "7/7"


@pytest.mark.thorough
def test_pods_that_come_and_go_while_gpus_are_cut_again(node: Node) -> None:
    """A GPU is cut for large pods, then for small ones, then for middle ones; each cut destroys what was there."""
    cuts = (("3g.40gb", 2), ("1g.10gb", 7), ("2g.20gb", 3))
    for profile, count in cuts:
        node.world.apply(mig(0, f"{profile}*{count}"))
        node.waiting += [f"nvidia.com/mig-{profile}"] * count
        node.run(20.0, until_bound=True)
        assert not node.waiting
        node.run(LIFE + 0.5)

    pods, found = sum(count for _, count in cuts), node.requests()
    assert found["events"] == 0
    assert found.total() <= 1.6 * pods


FREE: Raw = {"resource": SMALL, "uuid": "MIG-a", "start": 0, "size": 1, "state": "Free"}
USED: Raw = {**FREE, "state": "Used", "pod": "default/p1"}


def one_gpu(*parts: Raw, mig: str = "0/1", **more: Any) -> Raw:
    gpu = {"index": 0, "state": "Ready", **({"partitions": list(parts)} if parts else {}), **more}
    return {"observedGeneration": 1, "summary": {"mig": mig}, "gpus": [gpu], "conditions": []}


@pytest.mark.parametrize(
    ("before", "after", "pause_seconds"),
    [
        pytest.param(one_gpu(FREE), one_gpu(USED, mig="1/1"), 3.0, id="taken"),
        pytest.param(one_gpu(USED, mig="1/1"), one_gpu(FREE), 3.0, id="released"),
        pytest.param(one_gpu(USED), one_gpu({**USED, "pod": "default/p2"}), 3.0, id="passed on"),
        pytest.param(one_gpu(USED), one_gpu({**USED, "state": "Unknown"}), 1.0, id="not known any more"),
        pytest.param(one_gpu(FREE), one_gpu({**FREE, "state": "Withdrawn"}), 1.0, id="withdrawn"),
        pytest.param(one_gpu({**FREE, "state": "Pending"}), one_gpu(USED), 1.0, id="shown"),
        pytest.param(one_gpu(FREE), one_gpu({**FREE, "uuid": "MIG-b"}), 1.0, id="another one"),
        pytest.param(one_gpu(FREE), one_gpu(), 1.0, id="gone"),
        pytest.param(one_gpu(), one_gpu(FREE), 1.0, id="made"),
        pytest.param(one_gpu(FREE), one_gpu(USED, state="WaitingForRelease"), 1.0, id="waits for its holder"),
        pytest.param(one_gpu(), one_gpu(state="Failed"), 1.0, id="failed, and empty"),
        pytest.param(one_gpu(FREE), {**one_gpu(USED), "observedGeneration": 2}, 1.0, id="of another generation"),
        pytest.param(
            one_gpu(FREE),
            {**one_gpu(USED), "conditions": [{"type": "GPUsHealthy", "status": "False"}]},
            1.0,
            id="with a condition",
        ),
    ],
)
def test_only_who_holds_what_waits_for_longer(
    make_world: MakeWorld, before: Raw, after: Raw, pause_seconds: float
) -> None:
    world = make_world(*empty())
    writer = WorldWriter(world)
    world.apply()
    plan = world.latest_plan.get()
    world.run()
    plan = world.latest_plan.get()
    assert plan is not None
    assert writer.write(plan, before) is None
    plan = world.latest_plan.get()
    assert plan is not None

    assert writer.write(plan, after) == pytest.approx(pause_seconds)
    world.clock.now += pause_seconds
    assert writer.write(plan, after) is None
    assert world.status()["gpus"] == after["gpus"]


def test_a_withdrawal_is_reported_within_a_second_although_a_bind_was_not_yet(node: Node) -> None:
    node.world.apply(mig(0, "1g.10gb*3"))
    node.run(5.0)
    node.waiting.append(SMALL)
    node.run(5.0, until_bound=True)
    node.run(3.5)
    node.waiting.append(SMALL)
    node.run(1.0, until_bound=True)
    node.run(0.3)
    node.waiting.append(SMALL)
    node.run(1.0, until_bound=True)
    node.run(0.2)
    assert sorted(node.world.partitions()) == ["mig-1g.10gb Free", "mig-1g.10gb Used", "mig-1g.10gb Used"]
    node.world.apply(mig(0, "3g.40gb"))
    node.run(1.1)

    assert node.world.status()["observedGeneration"] == 3
    assert node.world.partitions().count("mig-1g.10gb Used") == 3
