"""Which devices that pods hold no longer exist, and which GPU had them."""

from dataclasses import replace

from nodeagent.handover.config import Device, DeviceKind
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.observed.orphans import OrphanBook, orphans
from tests.builders.observed import instance
from tests.nodeagent.halves import THREE

A, B, C = (f"MIG-{letter * 8}-1111-5222-8333-444444444444" for letter in "abc")


def gpu(index: int, *uuids: str, problem: str = "") -> ObservedGpu:
    instances = tuple(instance(start=n, number=n, uuid=uuid) for n, uuid in enumerate(uuids))
    return ObservedGpu(index=index, uuid=f"GPU-{index}", instances=instances, problem=problem)


def test_only_ids_around_the_uuid_of_something_that_is_not_here_are_orphans() -> None:
    card = replace(gpu(2), uuid="GPU-dddddddd-1111-5222-8333-444444444444")
    gone = "GPU-eeeeeeee-1111-5222-8333-444444444444"
    held = {A: "n/a", f"{B}::0": "n/b", f"{C}::1": "n/c", "MIG-x": "n/x"}
    held |= {f"{card.uuid}::10gb::0": "n/slice", f"MIG-{card.uuid}/1/0": "n/old", gone: "n/whole"}

    assert orphans(held, [gpu(0, A), gpu(1, C), card]) == ((gone, "n/whole"), (f"{B}::0", "n/b"))
    assert orphans(held, [gpu(0, A), gpu(1, problem="unread")]) == (), "it may lie there"
    assert orphans(held, []) == ()


def test_an_orphan_is_named_at_the_gpu_that_it_was_on() -> None:
    book = OrphanBook()
    device = Device(id=A, resource=THREE, gpu="GPU-1", kind=DeviceKind.MIG)
    gpus = [gpu(0), gpu(1)]

    assert book.by_gpu({A: "n/a", B: "n/b"}, gpus, [device]) == {"GPU-1": ((A, "n/a"),), "GPU-0": ((B, "n/b"),)}
    assert book.by_gpu({A: "n/a"}, gpus, []) == {"GPU-1": ((A, "n/a"),)}, "its entry has left the config"
    assert book.by_gpu({}, gpus, []) == {}
