"""The shared state: numbered lists, and Allocates that are counted until they end."""

import threading
from dataclasses import replace

import pytest

from nodeagent.device_plugin.device_lists import ANSWER_SECONDS, DeviceLists, RefusedAllocate
from nodeagent.handover.config import Device, DeviceKind, PluginConfig
from tests.clock import Clock
from tests.nodeagent.device_plugin.devices import GPU_B, GPU_C, SHARED, unit

R, S = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb"


def mig(name: str) -> Device:
    return Device(id=name, resource=R, gpu="A", kind=DeviceKind.MIG)


def mps(name: str, gpu: str = "A") -> Device:
    return Device(id=name, resource=S, gpu=gpu, kind=DeviceKind.MPS, memory_mib=1)


def advertising(*devices: Device, withdrawn: tuple[str, ...] = ()) -> DeviceLists:
    lists = DeviceLists()
    lists.replace(PluginConfig.of(devices, withdrawn))
    return lists


def test_only_what_changed_gets_a_new_number() -> None:
    lists = advertising(mig("m1"), mps("s1"))
    before = {resource: lists.listing(resource) for resource in lists.resources()}
    lists.replace(PluginConfig.of([mig("m1"), mig("m2"), mps("s1")]))
    assert lists.listing(S) == before[S]
    assert lists.listing(R).number > before[R].number
    assert lists.listing(R).devices == (("m1", True), ("m2", True))


def test_slices_are_unhealthy_while_their_daemon_is_away() -> None:
    lists, config = DeviceLists(), PluginConfig.of([mps("s1", "A"), mps("s2", "B"), mig("m1")])
    lists.replace(config, unready={"A"})
    assert lists.listing(S).devices == (("s1", False), ("s2", True))
    assert lists.listing(S).healthy() == {"s2"}
    assert lists.listing(R).healthy() == {"m1"}  # MIG on the same GPU needs no daemon
    lists.replace(config)
    assert lists.listing(S).healthy() == {"s1", "s2"}


def test_unhealthy_ids_stay_listed_and_are_refused() -> None:
    lists = DeviceLists()
    config = PluginConfig.of([mig("m1"), mig("m2"), mps("s1")], unhealthy=["m1", "s1"])
    lists.replace(config, unready={"A"})

    assert lists.listing(R).devices == (("m1", False), ("m2", True))
    assert lists.listing(S).devices == (("s1", False),)
    with lists.allocating(R, ["m1"]) as answer:
        assert isinstance(answer, RefusedAllocate)
        assert "its GPU is lost or broken" in answer.sentence
    lists.replace(config)
    assert lists.listing(S).healthy() == frozenset(), "a daemon that is ready does not heal a GPU"


def test_what_a_process_of_an_earlier_pod_still_has_is_unhealthy_and_its_allocate_is_not_refused() -> None:
    """A pod that the kubelet gave it to a moment before would be lost; its container waits until the process ends."""
    lists = DeviceLists()
    lists.replace(replace(PluginConfig.of([mig("m1"), mig("m2")], unhealthy=["m1", "m2"]), occupied=("m1",)))

    assert lists.listing(R).healthy() == frozenset()
    with lists.allocating(R, ["m1"]) as answer:
        assert answer == (mig("m1"),)
    with lists.allocating(R, ["m1", "m2"]) as answer:
        assert isinstance(answer, RefusedAllocate)


@pytest.mark.parametrize("withdrawn", [("m1",), ()])
def test_an_id_that_leaves_the_list_during_its_allocate_is_unhealthy_until_the_answer_was_taken(
    withdrawn: tuple[str, ...],
) -> None:
    """A kubelet of 1.36 ends with a nil pointer where its list lacks a device whose Allocate was answered."""
    clock = Clock()
    lists = DeviceLists(clock)
    lists.replace(PluginConfig.of([mig("m1"), mig("m2")]))
    without = PluginConfig.of([mig("m2")], withdrawn)
    with lists.allocating(R, ["m1"]):
        lists.replace(without)
        clock.now += 2 * ANSWER_SECONDS
        lists.replace(without)
        assert lists.listing(R).devices == (("m1", False), ("m2", True))
    clock.now += ANSWER_SECONDS - 1
    lists.replace(without)
    assert lists.listing(R).devices == (("m1", False), ("m2", True))
    with lists.allocating(R, ["m1"]) as answer:
        assert isinstance(answer, RefusedAllocate)

    clock.now += 1
    lists.replace(without)
    assert lists.listing(R).devices == (("m2", True),)


@pytest.mark.parametrize(
    ("resource", "ids", "sentence"),
    [
        (R, ["gone"], "gone is not advertised as nvidia.com/mig-1g.10gb on this node any more"),
        (S, ["m1"], "m1 is not advertised as nvidia.com/gpu-10gb"),
        (R, ["m1", "w"], "w (nvidia.com/mig-1g.10gb) is being withdrawn"),
        (S, ["s1", "s2"], "a container can use one MPS slice, this one requests 2 of nvidia.com/gpu-10gb"),
    ],
)
def test_refusals(resource: str, ids: list[str], sentence: str) -> None:
    lists = advertising(mig("m1"), mig("w"), mps("s1"), mps("s2"), withdrawn=("w", "never-seen"))
    with lists.allocating(resource, ids) as answer:
        assert isinstance(answer, RefusedAllocate)
        assert answer.sentence.startswith(sentence)
        assert answer.by_request is (len(set(ids)) == 2 and resource == S)
        assert lists.running() == frozenset()


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([f"{GPU_B}::0", f"{GPU_B}::1"], ""),
        ([f"{GPU_B}::0", f"{GPU_C}::1"], "no single GPU of this node has 2 of nvidia.com/gpu.shared free"),
    ],
)
def test_mergeable_slices_come_from_one_gpu(ids: list[str], sentence: str) -> None:
    lists = advertising(*(unit(number, gpu) for number in range(2) for gpu in (GPU_B, GPU_C)))
    with lists.allocating(SHARED, ids) as answer:
        assert isinstance(answer, RefusedAllocate) is bool(sentence)
        assert not isinstance(answer, RefusedAllocate) or sentence in answer.sentence


def test_running_allocates_are_counted_until_the_last_one_ends() -> None:
    lists = advertising(mig("m1"), mig("m2"))
    with lists.allocating(R, ["m1"]) as devices:
        assert devices == (mig("m1"),)
        with lists.allocating(R, ["m1", "m2"]):
            assert lists.running() == {"m1", "m2"}
        assert lists.running() == {"m1"}
    assert lists.running() == frozenset()


def test_a_failed_allocate_ends_too() -> None:
    lists = advertising(mig("m1"))
    with pytest.raises(RuntimeError), lists.allocating(R, ["m1"]):
        raise RuntimeError
    assert lists.running() == frozenset()


def test_waiting_for_a_list_ends_with_a_change_or_with_the_stream() -> None:
    lists = advertising(mig("m1"))
    number = lists.listing(R).number
    over = threading.Event()
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(lists.next_listing(R, number, over.is_set)))
    thread.start()
    lists.replace(PluginConfig.of([]))
    thread.join(10)
    assert seen == [lists.listing(R)]
    over.set()
    assert lists.next_listing(R, lists.listing(R).number, over.is_set) is None


def test_resources_of_earlier_processes_are_listed_with_nothing() -> None:
    lists = DeviceLists()
    lists.retain(["nvidia.com/old"])
    lists.replace(PluginConfig.of([mig("m1")]))
    assert lists.resources() == (R, "nvidia.com/old")
    assert lists.listing("nvidia.com/old").devices == ()


def test_drained_ids_are_unhealthy_and_not_refused() -> None:
    """A pod that was given one a moment before gets it: nothing is wrong with the device."""
    lists = DeviceLists()
    lists.replace(replace(PluginConfig.of([mig("m1"), mig("m2")]), drained=("m1",)), unready=())

    assert lists.listing(R).devices == (("m1", False), ("m2", True))
    with lists.allocating(R, ["m1"]) as answer:
        assert not isinstance(answer, RefusedAllocate)
