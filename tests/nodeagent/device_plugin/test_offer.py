"""The shared state: numbered lists, and Allocates that are counted until they end."""

import threading

import pytest

from nodeagent.device_plugin.offer import Offer, Refused
from nodeagent.handover.config import Device, DeviceKind, PluginConfig

R, S = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb"


def mig(name: str) -> Device:
    return Device(id=name, resource=R, gpu="A", kind=DeviceKind.MIG)


def mps(name: str, gpu: str = "A") -> Device:
    return Device(id=name, resource=S, gpu=gpu, kind=DeviceKind.MPS, memory_mib=1)


def offering(*devices: Device, withdrawn: tuple[str, ...] = ()) -> Offer:
    offer = Offer()
    offer.replace(PluginConfig.of(devices, withdrawn), unready=())
    return offer


def test_only_what_changed_gets_a_new_number() -> None:
    offer = offering(mig("m1"), mps("s1"))
    before = {resource: offer.listing(resource) for resource in offer.resources()}
    offer.replace(PluginConfig.of([mig("m1"), mig("m2"), mps("s1")]), unready=())
    assert offer.listing(S) == before[S]
    assert offer.listing(R).number > before[R].number
    assert offer.listing(R).devices == (("m1", True), ("m2", True))


def test_slices_are_unhealthy_while_their_daemon_is_away() -> None:
    offer = offering(mps("s1", "A"), mps("s2", "B"), mig("m1"))
    offer.set_unready({"A"})
    assert offer.listing(S).devices == (("s1", False), ("s2", True))
    assert offer.listing(S).healthy() == {"s2"}
    assert offer.listing(R).healthy() == {"m1"}  # MIG on the same GPU needs no daemon
    offer.set_unready(())
    assert offer.listing(S).healthy() == {"s1", "s2"}


def test_unhealthy_ids_stay_listed_and_are_refused() -> None:
    offer = Offer()
    offer.replace(PluginConfig.of([mig("m1"), mig("m2"), mps("s1")], unhealthy=["m1", "s1"]), unready=())

    assert offer.listing(R).devices == (("m1", False), ("m2", True))
    assert offer.listing(S).devices == (("s1", False),)
    with offer.allocating(R, ["m1"]) as answer:
        assert isinstance(answer, Refused)
        assert "its GPU is lost or broken" in answer.sentence
    offer.set_unready(())
    assert offer.listing(S).healthy() == frozenset(), "a daemon that is ready does not heal a GPU"


@pytest.mark.parametrize(
    ("resource", "ids", "sentence"),
    [
        (R, ["gone"], "gone is not offered as nvidia.com/mig-1g.10gb on this node any more"),
        (S, ["m1"], "m1 is not offered as nvidia.com/gpu-10gb"),
        (R, ["m1", "w"], "w (nvidia.com/mig-1g.10gb) is being withdrawn"),
        (S, ["s1", "s2"], "a container can use one MPS slice, this one asks for 2 of nvidia.com/gpu-10gb"),
    ],
)
def test_refusals(resource: str, ids: list[str], sentence: str) -> None:
    offer = offering(mig("m1"), mig("w"), mps("s1"), mps("s2"), withdrawn=("w", "never-seen"))
    with offer.allocating(resource, ids) as answer:
        assert isinstance(answer, Refused)
        assert answer.sentence.startswith(sentence)
        assert offer.running() == frozenset()


def test_running_allocates_are_counted_until_the_last_one_ends() -> None:
    offer = offering(mig("m1"), mig("m2"))
    with offer.allocating(R, ["m1"]) as devices:
        assert devices == (mig("m1"),)
        with offer.allocating(R, ["m1", "m2"]):
            assert offer.running() == {"m1", "m2"}
        assert offer.running() == {"m1"}
    assert offer.running() == frozenset()


def test_a_failed_allocate_ends_too() -> None:
    offer = offering(mig("m1"))
    with pytest.raises(RuntimeError), offer.allocating(R, ["m1"]):
        raise RuntimeError
    assert offer.running() == frozenset()


def test_waiting_for_a_list_ends_with_a_change_or_with_the_stream() -> None:
    offer = offering(mig("m1"))
    number = offer.listing(R).number
    over = threading.Event()
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(offer.next_listing(R, number, over.is_set)))
    thread.start()
    offer.replace(PluginConfig.of([]), unready=())
    thread.join(10)
    assert seen == [offer.listing(R)]
    over.set()
    assert offer.next_listing(R, offer.listing(R).number, over.is_set) is None


def test_resources_of_earlier_processes_are_listed_with_nothing() -> None:
    offer = Offer()
    offer.keep(["nvidia.com/old"])
    offer.replace(PluginConfig.of([mig("m1")]), unready=())
    assert offer.resources() == (R, "nvidia.com/old")
    assert offer.listing("nvidia.com/old").devices == ()
