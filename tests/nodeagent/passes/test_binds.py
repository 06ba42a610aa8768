"""A pod that the scheduler binds at any moment of a change is not refused by the kubelet: each order has its reason.

The scheduler here binds right after one side effect of the agent, as the Node is then, or as it was before that effect,
since its watch may be late; the kubelet admits the pod after its device list has moved on. No status tick ever helps.
Each scenario is run once for each effect (in the quick profile for each sixth), with and without the agent killed
there, whose successor has only the disk.
"""

from collections.abc import Callable
from copy import deepcopy
from itertools import count

import pytest

from kube.errors import Unavailable
from partitioning.models import GpuModel
from sandbox.driver.machine import GpuOptions
from tests import incidents
from tests.drawn import cells, points
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.items import Raw, mig, mps
from tests.nodeagent.watched import Killed
from tests.nodeagent.world import World

pytestmark = pytest.mark.slow

HALF, QUARTER = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-2g.20gb"
TEN, TWENTY = "nvidia.com/gpu-10gb", "nvidia.com/gpu-20gb"
HALVES = cut(("3g.40gb", 0), ("3g.40gb", 4))
SCENARIOS: dict[str, tuple[tuple[GpuModel, GpuOptions], list[Raw], str]] = {
    "one of two goes": (HALVES, [mig(0, ("3g.40gb", 0))], HALF),
    "the last of its profile goes": (cut(("3g.40gb", 4)), [mig(0, ("7g.80gb", 0))], HALF),
    "one resource falls while another rises": (HALVES, [mig(0, ("3g.40gb", 0), ("2g.20gb", 4))], HALF),
    "raised and lowered at once": (
        cut(("3g.40gb", 4)),
        [mig(0, ("3g.40gb", 4), ("2g.20gb", 0)), mig(0, ("3g.40gb", 4))],
        QUARTER,
    ),
    "slices of a shared GPU": (plain(), [mps(0, 10, 10), mps(0, 20)], TEN),
}


class Scheduler:
    """Binds one pod after the n-th effect, if the Node has room as it sees it."""

    def __init__(self, world: World, resource: str, *, at: int, late: bool, kill: bool) -> None:
        self.world, self.resource, self.at, self.late, self.kill = world, resource, at, late, kill
        self.key: tuple[str, str] | None = None
        self.admitted = False
        self.before = deepcopy(world.node)
        self.effects = 0
        world.effect.check = self.after_effect

    def after_effect(self, _what: str) -> None:
        seen = self.before if self.late else self.world.node
        self.before = deepcopy(self.world.node)
        self.effects += 1
        if self.effects == self.at + 1:
            if has_room(self.world, seen, self.resource):
                self.key = self.world.bind(self.resource)
            if self.kill:
                raise Killed

    def admit(self) -> None:
        """After the kubelet's list has moved on."""
        if self.key is not None and not self.admitted:
            self.world.admit(self.key, self.resource)
            self.admitted = True

    @property
    def refused(self) -> bool:
        return self.key is not None and self.world.pods[self.key]["status"].get("phase") == "Failed"


def has_room(world: World, node: Raw, resource: str) -> bool:
    tainted = any(taint["key"] == "gpuplan.dev/changing" for taint in node["spec"].get("taints") or ())
    used = sum(resource in str(pod["spec"]) for pod in world.pods.values())
    return not tainted and int(node["status"]["allocatable"].get(resource, "0")) > used


def live(world: World, scheduler: Scheduler, passes: int) -> None:
    for _ in range(passes):
        try:
            world.run()
        except Killed:
            world.step()
            world.restart()
        scheduler.admit()


def change(world: World, name: str, *, at: int, late: bool, kill: bool) -> Scheduler:
    _, plans, resource = SCENARIOS[name]
    world.node_ticks = False
    scheduler = Scheduler(world, resource, at=at, late=late, kill=kill)
    for number, plan in enumerate(plans):
        world.apply(plan)
        live(world, scheduler, 5 if number < len(plans) - 1 else 14)
    return scheduler


def settled(make_world: MakeWorld, name: str) -> World:
    world = make_world(SCENARIOS[name][0])
    world.settle(4)
    return world


@pytest.mark.parametrize(
    ("name", "kill", "late"), points(cells([*SCENARIOS], [False, True], [False, True]), each=2), ids=str
)
def test_a_pod_that_is_bound_after_any_effect_is_admitted(
    make_world: MakeWorld, name: str, kill: bool, late: bool
) -> None:
    """By a scheduler that sees the Node as it is, or as it was; the agent lives, or is killed."""
    total = change(settled(make_world, name), name, at=-1, late=False, kill=False).effects
    assert total > 5
    bound, taken = 0, points(range(total))
    for at in taken:
        world = settled(make_world, name)
        found = change(world, name, at=at, late=late, kill=kill)
        assert not found.refused, f"refused, bound after effect {at} of {world.effect.done}"
        bound += found.key is not None
        assert not world.tainted(), f"after effect {at}"
        assert {r: n for r, n in amounts(world).items() if n} == world.advertised(), f"after effect {at}"
    # In the quick profile's sixth of the effects there may be none.
    assert bound or not late or len(taken) < total, "the scheduler had chances"


def lost_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server carries out what it is sent, and the agent never hears of it but by the watch."""
    set_taint, set_counts = world.set_taint, world.set_counts

    def accepting_nothing(write: Callable[[], str]) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(world.latest_node, "accept", lambda _written: None)
            write()
        return "cannot write it: no answer from the API server"

    monkeypatch.setattr(world, "set_taint", lambda present: accepting_nothing(lambda: set_taint(present)))
    monkeypatch.setattr(world, "set_counts", lambda *what: accepting_nothing(lambda: set_counts(*what)))


def conflicts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client writes the Node right before the agent does, every second time."""
    set_counts, times = world.set_counts, count()

    def after_another(version: str, allocatable: Raw, capacity: Raw) -> str:
        if next(times) % 2 == 0:
            world.tick()
        return set_counts(version, allocatable, capacity)

    monkeypatch.setattr(world, "set_counts", after_another)


def stale_watch(world: World, _monkeypatch: pytest.MonkeyPatch) -> None:
    """The Node's watch brings nothing for minutes."""
    world.node_late = True


def ticks_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet's tick comes right after each write of the agent, as of the list that it has then."""

    after_each_write(world, monkeypatch, world.tick)


def after_each_write(world: World, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    def then(answer: str) -> str:
        act()
        return answer

    set_taint, set_counts = world.set_taint, world.set_counts
    monkeypatch.setattr(world, "set_taint", lambda present: then(set_taint(present)))
    monkeypatch.setattr(world, "set_counts", lambda *what: then(set_counts(*what)))


def zeroed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sets the Node's amounts to nothing, again and again."""
    after_each_write(world, monkeypatch, lambda: world.write_counts(dict.fromkeys(amounts(world), 0), {}))


def made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Node is deleted after a write of the agent, and its kubelet makes another one, which has no taint."""
    writes = count()

    def make_again() -> None:
        if next(writes) in (0, 2):
            world.make_node_again()

    after_each_write(world, monkeypatch, make_again)


def amounts(world: World) -> dict[str, int]:
    """What the Node counts of our resources."""
    shown = world.node["status"]["allocatable"]
    return {name: int(amount) for name, amount in shown.items() if name.startswith("nvidia.com/")}


def no_policy(world: World, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing limits the agent, so it writes no amounts: the status tick alone carries them."""
    world.policy = None
    world.restart()


TROUBLES = (lost_answers, conflicts, stale_watch, ticks_between, no_policy, zeroed, made_again)


@pytest.mark.parametrize(
    ("name", "trouble"),
    points(cells([*SCENARIOS][2:], TROUBLES), each=2),
    ids=lambda one: getattr(one, "__name__", one),
)
def test_no_trouble_with_the_api_has_a_pod_refused(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, name: str, trouble: Callable[..., None]
) -> None:
    for at in points((0, 1, 2, 4, 7)):
        world = settled(make_world, name)
        with monkeypatch.context() as patched:
            trouble(world, patched)
            _, plans, resource = SCENARIOS[name]
            world.node_ticks = trouble is no_policy
            scheduler = Scheduler(world, resource, at=at, late=True, kill=False)
            for plan in plans:
                world.apply(plan)
                live(world, scheduler, 5)
            live(world, scheduler, 15)
        assert not scheduler.refused, f"refused, bound after effect {at} of {world.effect.done}"
        world.node_late, world.node_ticks = False, trouble is no_policy
        world.settle()
        assert not world.tainted(), f"after effect {at}"
        assert {r: n for r, n in amounts(world).items() if n} == world.advertised(), f"after effect {at}"
        assert world.found(0)[0] in ("Ready", "WaitingForRelease"), f"after effect {at}"


def test_while_the_api_server_is_down_for_ten_minutes_what_is_broken_leaves_the_list_and_what_is_free_stays(
    make_world: MakeWorld,
) -> None:
    world = make_world(HALVES, plain())
    world.settle(4)
    world.apply(mig(0, ("3g.40gb", 0)))
    down = "cannot write it: no answer from the API server"
    world.taint_refused = world.counts_refused = down
    world.policy = Unavailable(down)
    world.run()
    incidents.lose(world.machine, world.gpu(1).uuid)
    world.run_for(120)
    assert world.advertised() == {HALF: 2}, "the broken GPU alone is off the list"
    assert down in world.gpu_status()["message"]
    world.run_for(480)
    assert world.advertised() == {HALF: 2}
    assert world.found() == ("Failed", "AdvertiseTimeout")

    world.taint_refused = world.counts_refused = ""
    world.settle()
    assert world.advertised() == {HALF: 1}
    assert world.found() == ("Ready", "Confirmed")
    assert not world.tainted()


def test_what_is_broken_leaves_the_list_before_the_api_server_is_asked_for_anything(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not answer for the twelve seconds that a pass has."""
    world = make_world(HALVES, plain())
    world.settle(4)
    listed_when_asked: list[bool] = []
    lost = world.gpu(1).uuid
    set_taint = world.set_taint

    def observed(present: bool) -> str:
        if present:
            world.plugin.step()
            listed_when_asked.append(any(lost in i for ids in world.plugin.advertised().values() for i in ids))
        return set_taint(present)

    monkeypatch.setattr(world, "set_taint", observed)
    incidents.lose(world.machine, lost)
    for _ in range(120):
        world.run(1.0)
    assert listed_when_asked
    assert not any(listed_when_asked)
