"""What is left of a pod keeps its device from others, and is named to people with the pod that it is of."""

from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World


def test_no_pod_gets_it_and_no_container_starts_with_it_while_a_process_is_left(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    world.force_delete(holder, seen_by_driver=False)

    world.settle()
    assert device not in world.kubelet.devices[THREE]
    assert world.kubelet.capacity[THREE] == 2, "it is Unhealthy, not withdrawn"
    assert list(world.plugin.config.occupied) == [device]
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    message = world.gpu_status()["message"]
    assert "process 5001 (python, since 1970-01-12T14:03:22Z) is left of pod default/p1, which is gone: no" in message
    late = world.pod(THREE)
    assert world.running[late] != (device,)

    world.end_container(holder)
    world.wait(31)
    assert not list(world.plugin.config.occupied)
    assert device in world.kubelet.devices[THREE]


def test_the_process_is_said_to_be_of_the_pod_that_is_gone_where_another_has_the_device_by_now(world: World) -> None:
    world.pod(THREE)
    gone = world.pod(THREE)
    device = world.running[gone]
    world.settle()
    world.force_delete(gone, seen_by_driver=False)
    late = world.pod(THREE)
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    assert world.running.get(late, device) == device
    message = world.gpu_status()["message"]
    assert "is left of pod default/p2, which is gone: no pod gets 3g.40gb at 0 until it has ended" in message


def test_a_pod_that_the_checkpoint_alone_knows_is_named_by_its_uid(world: World) -> None:
    world.pod(THREE)
    world.settle()
    gone = world.pod(THREE)
    entries = world.kubelet.entries
    world.force_delete(gone, seen_by_driver=False)
    world.restart()
    world.kubelet.entries = entries
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    world.wait(100)
    assert f"is left of pod UID {uid_of(2)}, which is gone: no pod gets 3g.40gb at 0" in world.gpu_status()["message"]


def test_a_process_is_named_though_a_later_pod_of_the_device_is_gone_as_well(world: World) -> None:
    world.pod(THREE)
    gone = world.pod(THREE)
    world.settle()
    world.force_delete(gone, seen_by_driver=False)
    late = world.pod(THREE)
    world.settle()
    world.force_delete(late, seen_by_driver=False)
    world.end_container(late)
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.run(1)
    assert "is left of pod default/p2, which is gone" in world.gpu_status()["message"]
