"""What is seen counts, however little what is not seen would prove: a process that is left, another boot."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from nodeagent.cdi.device_numbers import numbers_of, read_device_numbers
from nodeagent.hardware.nvml import NvmlDriver
from sandbox.driver.procfs import proc_of
from tests import faults
from tests.drawn import cells, points
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import pod_json, started
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

HOURS = 7200.0


def blind(world: World) -> str:
    return world.agent.observer.observe().usage.blind


def no_process_of_the_living(world: World) -> None:
    """All that the API shows as started has none: the pods' cgroups are not seen, or its containers are between two."""
    key = ("kube-system", "proxy")
    world.pods[key] = {**pod_json(key, "cpu", 1, uid=uid_of(77)), "status": started()}
    world.kubelet.known.add(key)


def test_a_process_that_is_seen_keeps_its_pods_device_where_other_pods_have_none(world: World) -> None:
    holder = world.pod(THREE)
    world.pods[holder]["spec"]["terminationGracePeriodSeconds"] = 0
    world.run()
    no_process_of_the_living(world)
    world.force_delete(holder, seen_by_driver=False)
    replace_both(world)
    world.wait(HOURS)
    assert world.layout().count("3g.40gb") == 1

    world.end_container(holder)
    world.wait(31)
    world.wait(31)
    assert world.layout() == "7g.80gb at 0"


def test_a_stranger_that_is_seen_is_one_where_other_pods_have_no_process(world: World) -> None:
    world.state.holdings.unlink(missing_ok=True)
    world.tree.start(4711, uid_of(99))
    no_process_of_the_living(world)
    world.restart()
    world.run(HOURS)
    world.run()
    assert uid_of(99) in blind(world)


@pytest.mark.parametrize("processes", ["seen", "hidden"])
@pytest.mark.parametrize("record", ["holding", "Allocate"])
def test_what_a_pod_had_before_the_node_restarted_is_history(world: World, processes: str, record: str) -> None:
    holder = world.pod(THREE)
    world.pods[holder]["spec"]["terminationGracePeriodSeconds"] = 2**63 - 1
    if record == "holding":
        world.run()
    world.force_delete(holder)
    world.end_container(holder)
    world.plugin.boot = "boot-2"
    world.kubelet.same_processes = processes == "seen"
    world.restart()
    world.run()
    usage = world.agent.observer.observe().usage
    assert not usage.held
    assert not usage.doubtful


@pytest.mark.parametrize("lost", ["capabilities", "access", "majors"])
def test_a_device_whose_number_is_not_known_may_be_open(world: World, lost: str) -> None:
    gpus = NvmlDriver().observe()
    (uuid, *_) = world.kubelet.devices[THREE]
    known = read_device_numbers(proc_of(world.machine))
    assert numbers_of([uuid], gpus, known)[uuid]
    assert gpus[0].minor is not None
    less = {
        "capabilities": replace(known, capabilities={}, problem="cannot be read"),
        "access": replace(known, capabilities={}, problems={gpus[0].minor: "cannot be read"}),
        "majors": replace(known, majors={}),
    }[lost]
    assert numbers_of([uuid, "MIG-of-another-time"], gpus, less) == {uuid: None, "MIG-of-another-time": frozenset()}


@pytest.mark.parametrize("unread", ["all", "one"])
def test_of_a_gpu_that_cannot_be_read_any_device_file_may_be_the_one(world: World, unread: str) -> None:
    """A pod of it, or of a device that is not there any more, would never end otherwise."""
    (gpu,) = NvmlDriver().observe()
    known = read_device_numbers(proc_of(world.machine))
    (instance, *_) = world.kubelet.devices[THREE]
    gpus = [] if unread == "all" else [replace(gpu, uuid="GPU-other", instances=(), problem="it is lost")]
    for device_id, name in ((instance, "nvidia-caps"), (gpu.uuid, "nvidia")):
        exact = numbers_of([device_id], [gpu], known)[device_id]
        any_of_it = numbers_of([device_id], gpus, known)[device_id]
        assert exact
        assert any_of_it is not None
        assert exact < any_of_it
        assert {major for major, _ in any_of_it} == {known.major(name)}
    assert numbers_of([instance], gpus, replace(known, majors={})) == {instance: None}


def test_what_is_observed_after_the_node_restarted_is_kept_while_its_records_are_doubted(world: World) -> None:
    world.settle()
    world.plugin.boot, world.kubelet.age_seconds = "boot-2", 1.0
    world.restart()
    world.settle(3)
    holder = world.pod(THREE)
    world.tree.start(4711, uid_of(99))
    world.kubelet.age_seconds = 3600.0
    world.run()
    world.force_delete(holder)
    world.restart()
    world.run()
    usage = world.agent.observer.observe().usage
    assert uid_of(99) in usage.blind
    assert set(usage.held.values()) == {"default/p1"}


@pytest.mark.parametrize("trouble", ["the Node takes no taint", "the driver does not answer"])
def test_no_container_starts_with_what_is_left_of_a_pod(world: World, trouble: str) -> None:
    holder = world.pod(THREE)
    world.settle()
    device = world.running[holder]
    if trouble == "the Node takes no taint":
        world.taint_refused = "a webhook refuses it"
    else:
        faults.inject(world.machine, "nvmlDeviceGetCount_v2", times=faults.ALWAYS)
    world.force_delete(holder, seen_by_driver=False)
    world.run()
    world.run()
    assert world.plugin.config.occupied == device
    assert device[0] not in world.kubelet.devices[THREE]


@pytest.mark.parametrize("late_passes", [0, 1, 3])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_left_of_a_pod_whose_name_another_one_took_is_its_own_device(
    world: World, late_passes: int, restarted: bool
) -> None:
    key = world.pod(THREE, "web-0")
    world.settle(3)
    (device,) = world.running[key]
    world.pods_late = late_passes > 0
    world.recreate(key)
    for _ in range(late_passes):
        world.run()
    world.pods_late = False
    if restarted:
        world.restart()
    world.run()
    world.run()

    assert world.plugin.config.occupied == (device,)
    assert device not in world.kubelet.devices[THREE]


def test_what_a_pod_that_no_agent_saw_was_given_is_not_on_offer_while_a_process_of_it_is_left(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.force_delete(holder, seen_by_driver=False)
    world.restart()
    world.settle()
    assert device not in world.kubelet.devices[THREE]
    assert world.plugin.config.occupied == (device,)

    world.end_container(holder)
    world.wait(61)
    assert device in world.kubelet.devices[THREE]
    assert not list(world.plugin.config.occupied)


def test_what_a_pod_was_given_that_was_gone_before_the_list_showed_it_is_not_on_offer(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    shown = world.kubelet.held.pop(holder)
    world.kubelet.known.discard(holder)
    world.pods[holder]["status"] = {}
    world.run()
    world.kubelet.held[holder] = shown
    world.force_delete(holder, seen_by_driver=False)
    for _ in range(3):
        world.wait(100)
        assert device not in world.kubelet.devices[THREE]
        assert world.plugin.config.occupied == (device,)

    world.end_container(holder)
    world.wait(61)
    world.wait(61)
    assert device in world.kubelet.devices[THREE]
    assert not list(world.plugin.config.occupied)


def test_an_allocate_of_a_moment_ago_is_no_reason_to_take_a_device_off_the_list(world: World) -> None:
    """Although a stranger's process is there: its pod is about to be observed."""
    world.tree.start(4711, uid_of(99))
    world.settle(3)
    world.pods_late = True
    holder = world.pod(THREE)
    world.run()
    world.pods_late = False
    world.run()
    assert not list(world.plugin.config.occupied)
    assert world.running[holder][0] in world.kubelet.devices[THREE]


def list_fails(world: World) -> None:
    world.kubelet.refuses = "RESOURCE_EXHAUSTED"


def kubelet_starts(world: World) -> None:
    world.kubelet.age_seconds = 1.0


def processes_unread(world: World) -> None:
    (world.tree.root / "1" / "stat").write_text("garbage")


@pytest.mark.parametrize("trouble", [list_fails, kubelet_starts, processes_unread])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_left_of_a_pod_stays_off_the_list_while_a_witness_does_not_answer(
    world: World, trouble: Callable[[World], None], restarted: bool
) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    world.force_delete(holder, seen_by_driver=False)
    world.settle()
    assert world.plugin.config.occupied == (device,)
    trouble(world)
    if restarted:
        world.restart()
    for _ in range(3):
        world.run()
        assert world.plugin.config.occupied == (device,)
        assert device not in world.kubelet.devices[THREE]


def test_a_process_of_a_pod_is_seen_before_the_lists_of_a_young_kubelet_are_believed(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    world.kubelet.age_seconds = 1.0
    world.force_delete(holder, seen_by_driver=False)
    world.run()
    assert world.plugin.config.occupied == (device,)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_pod_may_have_that_no_record_knows_is_not_on_offer(world: World, restarted: bool) -> None:
    """The state directory is wiped, and the holder deleted by force, at the same time."""
    holder, other = world.pod(THREE), world.pod(THREE)
    world.settle()
    shutil.rmtree(world.state.root)
    world.state.plugin.directory.mkdir(parents=True)
    world.plugin.allocations.clear()
    world.force_delete(holder, seen_by_driver=False)
    world.restart()
    for _ in range(3):
        world.settle()
        assert world.running[holder][0] not in world.kubelet.devices[THREE]
        assert world.kubelet.capacity[THREE] == 2
        assert world.plugin.config.occupied == world.running[holder], "the other's container may start again"
        if restarted:
            world.restart()
    assert world.running[other][0] in world.kubelet.devices[THREE]
    world.end_container(holder)
    world.wait(31)
    assert len(world.kubelet.devices[THREE]) == 2


ENDED_BY_OTHERS = {
    "Failed": {"phase": "Failed", "reason": "NodeLost", "startTime": "t"},
    "terminated": {
        "phase": "Failed",
        "startTime": "t",
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
        ],
    },
}


AGENTS = ["stays", "restarts", "is away meanwhile", "is away, records lost", "no checkpoint"]


@pytest.mark.parametrize(
    ("what", "deleted"), points(cells([*product(ENDED_BY_OTHERS, AGENTS)], [False, True]), each=2), ids=str
)
def test_a_pod_that_was_ended_at_the_api_alone_keeps_what_it_has_while_a_process_is_left(
    world: World, what: tuple[str, str], deleted: bool
) -> None:
    status, agent = what
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    if "is away" not in agent:
        world.settle()
    world.pods[holder]["status"] = ENDED_BY_OTHERS[status]
    world.forget(holder)
    if agent == "no checkpoint":
        world.kubelet.entries = ()
    if agent == "is away, records lost":
        world.state.holdings.unlink(missing_ok=True)
    if agent not in ("stays", "no checkpoint"):
        world.restart()
    if deleted:
        world.run()
        world.pods.pop(holder)
    replace_both(world)

    world.run()
    world.wait(11)
    for _ in range(2):
        world.wait(HOURS)
        assert device in {instance.uuid for instance in world.gpu().instances}
        assert device not in world.kubelet.devices[THREE]
    world.apply()
    world.settle()
    assert device not in world.kubelet.devices[THREE]
    assert world.plugin.config.occupied == (device,)

    world.end_container(holder)
    world.run()
    world.wait(61)
    assert device in world.kubelet.devices[THREE]


def test_a_finished_pod_whose_sandbox_takes_a_moment_is_not_off_the_list(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    world.pods[holder]["status"] = {"phase": "Succeeded", "startTime": "t"}
    world.forget(holder)
    for _ in range(15):
        world.run()
        assert device in world.kubelet.devices[THREE]
    world.end_container(holder)
    world.run()
    assert not world.agent.observer.observe().usage.held


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_left_of_a_pod_is_off_the_list_until_the_pod_has_ended(
    world: World, observed: bool, restarted: bool
) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    if observed:
        world.settle()
    world.force_delete(holder, seen_by_driver=False)
    if not observed:
        world.restart()
    world.settle()
    world.end_container(holder)
    for _ in range(4):
        world.run()
        if restarted:
            world.restart()
        assert device not in world.kubelet.devices[THREE]
    world.wait(61)
    world.run()
    assert device in world.kubelet.devices[THREE]
