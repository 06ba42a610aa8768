"""Pods replaced while the watch of pods stands still: what each has stays its own, and costs no other pod its start."""

import pytest

from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.kubelet import CheckpointEntry, NoAnswer
from nodeagent.observed.pods import NodePod
from sandbox.driver.procfs import MAJORS, capability_minor
from tests.drawn import cells, examples
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import THREE, replace_both, replace_with_its_device
from tests.nodeagent.items import mig, started
from tests.nodeagent.observed.gone import open_files
from tests.nodeagent.world import World

TWO = "nvidia.com/mig-2g.20gb"
KEY = ("default", "web-0")


@pytest.fixture
def halves(world: World) -> World:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    return world


@pytest.fixture
def thirds(make_world: MakeWorld) -> World:
    world = make_world(cut(("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4)))
    world.settle(4)
    world.apply(mig(0, ("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4)))
    world.settle()
    return world


def exists(world: World, device: str) -> bool:
    return device in {instance.uuid for instance in world.gpu().instances}


def replaced(
    world: World, resource: str = THREE, *, checkpoint: bool, forgotten: bool = False
) -> tuple[str, tuple[str, str]]:
    """The device and the container of a pod that is replaced in a watch that stands still, before an agent that has
    just started saw it listed. `forgotten`: one had seen it, and its memory is lost."""
    world.pod(resource, KEY[1])
    if forgotten:
        world.settle(3)
        world.state.holdings.unlink()
    (device,) = world.running[KEY]
    world.restart()
    world.pods_late = True
    first = world.recreate(KEY)
    if not checkpoint:
        world.kubelet.entries = ()
    return device, first


def orphaned(world: World, key: tuple[str, str]) -> tuple[str, str]:
    """Its container, which runs on although the pod was deleted by force."""
    container = ("gone", key[1])
    world.running[container] = world.running.pop(key)
    world.force_delete(key, seen_by_driver=False)
    return container


def replaced_by_one_that_waits(world: World) -> str:
    """The device of a pod that was seen with it and is gone, whose container runs on, and for which the next waits."""
    world.pod(THREE, KEY[1])
    world.settle(3)
    (device,) = world.running[KEY]
    orphaned(world, KEY)
    world.pod(THREE, KEY[1], device=device)
    world.wait(30)
    assert world.waiting[KEY] == (device,)
    return device


def is_held_until_it_ends(world: World, device: str, container: tuple[str, str]) -> None:
    for _ in range(4):
        world.wait(61)
        assert exists(world, device)
    world.end_container(container)
    world.wait(61)
    world.wait(61)


@pytest.mark.parametrize(
    ("story", "late_seconds", "checkpoint"),
    cells(["the agent starts", "it has lost its memory", "it starts twice"], [3, 20, 35, 100], [True, False]),
)
def test_a_pod_that_is_replaced_before_this_agent_saw_it_listed_keeps_its_device(
    world: World, story: str, checkpoint: bool, late_seconds: int
) -> None:
    """The last that the watch brought was this pod, and the List shows its name with the next one's device at once."""
    device, first = replaced(world, checkpoint=checkpoint, forgotten=story == "it has lost its memory")
    replace_both(world)
    for _ in range(late_seconds // 5 + 1):
        world.run(5)
        assert exists(world, device)
    if story == "it starts twice":
        world.restart()
    world.pods_late = False
    is_held_until_it_ends(world, device, first)
    assert not exists(world, device)


@pytest.mark.parametrize(("checkpoint", "ends_late", "forgotten"), cells([True, False], [True, False], [True, False]))
def test_it_keeps_it_where_the_next_one_is_gone_as_well(
    world: World, checkpoint: bool, ends_late: bool, forgotten: bool
) -> None:
    device, first = replaced(world, checkpoint=checkpoint, forgotten=forgotten)
    world.settle(3)
    if not ends_late:
        world.pods_late = False
        world.settle(3)
    world.end_container(KEY)
    world.force_delete(KEY)
    world.pods_late = False
    replace_both(world)
    is_held_until_it_ends(world, device, first)
    assert not exists(world, device)


@pytest.mark.parametrize(("checkpoint", "restarted"), cells([True, False], [True, False]))
def test_the_third_one_waits_for_it(thirds: World, checkpoint: bool, restarted: bool) -> None:
    """To the kubelet it was free, and no pod was ever seen with it."""
    device, first = replaced(thirds, TWO, checkpoint=checkpoint)
    thirds.settle(3)
    thirds.end_container(thirds.recreate(KEY))
    if not checkpoint:
        thirds.kubelet.entries = ()
    if restarted:
        thirds.restart()
    thirds.pods_late = False
    replace_both(thirds)
    is_held_until_it_ends(thirds, device, first)
    assert thirds.running[KEY] == (device,)


@pytest.mark.parametrize("unused", [True, False])
def test_the_next_one_waits_for_the_same_device(halves: World, unused: bool) -> None:
    """That another device was handed out for nothing takes none from the first one."""
    halves.pod(THREE, KEY[1])
    halves.settle(3)
    (device,) = halves.running[KEY]
    if unused:
        halves.plugin.allocate(next(i for i in halves.kubelet.devices[THREE] if i != device), THREE, halves.clock.now)
    halves.wait(36)
    halves.pods_late = True
    first = orphaned(halves, KEY)
    halves.pod(THREE, KEY[1], device=device)
    halves.run(5)
    halves.run(5)
    halves.pods_late = False
    for _ in range(3):
        halves.wait(61)  # each step fails where two containers have one device
        assert halves.waiting[KEY] == (device,)
    halves.end_container(first)
    halves.wait(61)
    halves.wait(61)
    assert halves.running[KEY] == (device,)


@pytest.mark.parametrize("late", [True, False])
def test_a_pod_starts_that_comes_while_another_is_deleted_by_force(thirds: World, late: bool) -> None:
    first = thirds.pod(TWO, KEY[1])
    thirds.settle(3)
    unused, wanted = (i for i in thirds.kubelet.devices[TWO] if i not in thirds.running[first])
    thirds.plugin.allocate(unused, TWO, thirds.clock.now)  # its pod never comes
    thirds.wait(36)
    thirds.pods_late = late  # for a moment
    orphaned(thirds, first)
    key = thirds.bind(TWO, "other")
    thirds.plugin.allocate(wanted, TWO, thirds.clock.now)
    thirds.run()
    thirds.pods_late = False
    thirds.kubelet.known.add(key)
    thirds.kubelet.held[key] = {"main": {TWO: (wanted,)}}
    thirds.kubelet.entries += (CheckpointEntry(pod_uid=thirds.pods[key]["metadata"]["uid"], ids=(wanted,)),)
    thirds.pods[key]["status"] = {**started("Pending"), "containerStatuses": [{"state": {"waiting": {}}}]}
    thirds.waiting[key] = (wanted,)
    thirds.wait(61)
    assert thirds.running[key] == (wanted,)


@pytest.mark.parametrize("listed_late", [True, False])
def test_a_pod_starts_with_what_a_finished_one_had_a_moment_ago(halves: World, listed_late: bool) -> None:
    """The first web-0 runs on, and the next one waits for it: neither had this device."""
    replaced_by_one_that_waits(halves)
    job = halves.pod(THREE, "job-0")
    halves.settle(3)
    replace_with_its_device(halves, job, listed_late=listed_late)


def test_a_pod_starts_after_the_ledger_was_lost(halves: World) -> None:
    """It was handed out once more, as far as the new ledger knows, and the first web-0 runs on."""
    replaced_by_one_that_waits(halves)
    halves.state.plugin.ledger.unlink()
    halves.plugin.restart()
    halves.wait(61)
    job = halves.pod(THREE, "job-0")
    halves.wait(61)
    halves.wait(61)
    assert job in halves.running


def test_an_allocate_whose_pod_never_came_is_over(halves: World) -> None:
    device = replaced_by_one_that_waits(halves)
    (other,) = (i for i in halves.kubelet.devices[THREE] if i != device)
    halves.plugin.allocate(other, THREE, halves.clock.now)
    halves.wait(61)
    halves.wait(61)
    assert other in halves.plugin.advertised()[THREE]
    assert "Unknown" not in str(halves.partitions())


def test_a_device_of_another_pod_comes_back_at_its_end(thirds: World) -> None:
    thirds.pod(TWO, KEY[1])
    thirds.settle(3)
    thirds.pods_late = True
    thirds.recreate(KEY)
    thirds.wait(10)
    used = {i for ids in thirds.running.values() for i in ids}
    key = thirds.pod(TWO, "other", device=next(i for i in thirds.kubelet.devices[TWO] if i not in used))
    (device,) = thirds.running[key]
    thirds.wait(40)
    thirds.pods_late = False
    thirds.wait(61)
    assert device not in thirds.plugin.config.occupied
    thirds.finish(key)
    del thirds.pods[key]
    thirds.wait(61)
    thirds.wait(61)
    assert device in thirds.plugin.advertised()[TWO]


def test_a_finished_pod_that_is_deleted_in_a_late_watch_hides_nothing(halves: World) -> None:
    job = halves.pod(THREE, "job")
    halves.settle(3)
    halves.finish(job)
    halves.wait(90)
    halves.plugin.allocate(halves.kubelet.devices[THREE][0], THREE, halves.clock.now)
    halves.run()
    halves.pods_late = True
    del halves.pods[job]
    halves.wait(61)
    halves.wait(61)
    assert "Unknown" not in str(halves.partitions())


def test_the_status_names_no_pod_that_never_had_the_device(thirds: World) -> None:
    first = thirds.pod(TWO, KEY[1])
    thirds.settle(3)
    unused = next(i for i in thirds.kubelet.devices[TWO] if i not in thirds.running[first])
    thirds.plugin.allocate(unused, TWO, thirds.clock.now)
    thirds.wait(36)
    thirds.pods_late = True
    thirds.end_container(first)
    thirds.forget(first)
    del thirds.pods[first]
    thirds.run()
    thirds.run()
    assert "web-0 held it" not in thirds.gpu_status()["message"]


def questions(world: World) -> list[float]:
    """When the API server is asked for the node's pods, from now on."""
    asked, answer = list[float](), world.fresh_pods

    def fresh() -> tuple[NodePod, ...] | NoAnswer:
        asked.append(world.clock.now)
        return answer()

    world.fresh_pods = fresh  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize(("silent", "most"), [(False, 1), (True, 0)])
def test_the_api_server_is_asked_once_for_an_allocate_whose_pod_never_came(
    halves: World, silent: bool, most: int
) -> None:
    """A kubelet that does not answer lets nothing be over."""
    asked = questions(halves)
    halves.restart()
    halves.settle()
    device = halves.kubelet.devices[THREE][0]
    halves.plugin.allocate(device, THREE, halves.clock.now)
    halves.kubelet.refuses = "no answer" if silent else ""
    for _ in range(60):
        halves.run(10)
    assert len(asked) == most
    assert ("Free" not in str(halves.partitions())) is silent


def test_the_api_server_is_seldom_asked_while_a_stranger_has_what_no_pod_came_for(halves: World) -> None:
    """It matters at once when that process has ended, and until then every pass would ask."""
    asked = questions(halves)
    halves.restart()
    halves.settle()
    device = halves.kubelet.devices[THREE][0]
    gpu = NvmlDriver().observe()[0]
    assert gpu.minor is not None
    instance = next(each.id for each in gpu.instances if each.uuid == device)
    halves.plugin.allocate(device, THREE, halves.clock.now)
    open_files(halves, (MAJORS["nvidia-caps"], capability_minor(gpu.minor, instance)), up_seconds=halves.clock.now)
    passes = max(examples(360), 120)
    for _ in range(passes):
        halves.run(10)
    assert "Unknown" in str(halves.partitions())
    assert 0 < len(asked) <= passes / 3

    open_files(halves)
    for _ in range(6):
        halves.run(10)
    assert "Unknown" not in str(halves.partitions())


def test_an_agent_that_cannot_see_the_nodes_processes_destroys_nothing_of_it(halves: World) -> None:
    """docs/reliability.md says what a pod may lose of which no process shows: there an absence of processes counts."""
    device, _ = replaced(halves, checkpoint=False)
    halves.kubelet.same_processes = False
    halves.hide_processes()
    replace_both(halves)
    for _ in range(20):
        halves.run(10)
    halves.pods_late = False
    for _ in range(6):
        halves.wait(61)
        assert exists(halves, device)
