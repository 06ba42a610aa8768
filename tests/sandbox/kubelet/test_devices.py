"""The device table alone: counts by number, whole lists, the grace period, who holds what, and what is chosen."""

import threading
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.kubelet_api import deviceplugin_pb2 as api
from sandbox.kubelet.devices import Device, DeviceTable, Holder, Holding
from sandbox.kubelet.selection import Refusal, Wanted, choose

R = "nvidia.com/mig-1g.10gb"
ANSWER = api.ContainerAllocateResponse()


def listed(*ids: str, unhealthy: tuple[str, ...] = ()) -> list[Device]:
    healthy = [Device(device_id=device_id) for device_id in ids]
    return healthy + [Device(device_id=device_id, healthy=False) for device_id in unhealthy]


def table(*ids: str, unhealthy: tuple[str, ...] = ()) -> DeviceTable:
    made = DeviceTable(grace_seconds=300)
    made.connected(R)
    made.set_devices(R, listed(*ids, unhealthy=unhealthy))
    return made


def held(made: DeviceTable, pod: str, *ids: str, container: str = "c") -> Holder:
    holder = Holder(pod, container, R)
    made.hold(holder, Holding(frozenset(ids), ANSWER))
    made.give_back()
    return holder


def numbers(made: DeviceTable, now: float = 0.0) -> tuple[int | None, int | None]:
    counts = made.counts(now)
    return counts.capacity.get(R), counts.allocatable.get(R)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (listed("a", "b", "c", unhealthy=("d",)), (4, 3)),
        (listed(), (0, 0)),
        (listed("a", "b", "c", "d", "e", unhealthy=("a", "f", "g")), (8, 5)),
        (listed("a", "a"), (1, 1)),
        (listed("", "x" * 100, "GPU-1::10gb::1", "a/b"), (4, 4)),
    ],
    ids=["one unhealthy", "empty", "one id twice with both healths", "one id twice", "strange ids"],
)
def test_capacity_is_counted_by_number(devices: list[Device], expected: tuple[int, int]) -> None:
    made = table()
    made.set_devices(R, devices)

    assert numbers(made) == expected


def test_a_stopped_endpoint_counts_until_its_grace_period_is_over() -> None:
    made = table("a", "b")
    made.stopped(R, now=1000)

    assert numbers(made, 1300) == (2, 0)
    counts = made.counts(1300.1)
    assert (dict(counts.capacity), counts.removed) == ({}, (R,))
    assert made.counts(1301).removed == (), "reported once"
    assert not made.knows(R)


def test_a_registration_ends_the_grace_period_and_the_next_list_replaces() -> None:
    made = table("a", "b")
    made.stopped(R, now=1000)
    made.connected(R)
    assert numbers(made, 5000) == (2, 0), "as before, until a list comes"

    made.set_devices(R, listed("n"))
    assert numbers(made, 5000) == (1, 1)


def test_a_restored_table_counts_zero_until_the_plugin_is_back() -> None:
    made = DeviceTable(grace_seconds=300)
    holder = Holder("p", "c", R)
    made.restore({holder: Holding(frozenset({"a"}), ANSWER)}, [R], now=0)

    assert numbers(made) == (0, 0)
    assert made.taken_counts() == {R: 1}
    assert made.holdings_of("p", "c")[R].device_ids == {"a"}


def test_a_withdrawn_device_is_still_held() -> None:
    made = table("a", "b")
    held(made, "p", "a")
    made.set_devices(R, listed("b"))

    assert numbers(made) == (1, 1)
    assert made.holdings_of("p", "c")[R].device_ids == {"a"}
    assert isinstance(made.needed(Holder("q", "c", R), 1, frozenset(), already_running=False), Wanted)


@pytest.mark.parametrize(
    ("prepare", "required", "text"),
    [
        (
            lambda made: held(made, "p", "a", "b"),
            1,
            "requested number of devices unavailable for {R}. Requested: 1, Available: 0",
        ),
        (lambda made: made.set_devices(R, []), 1, "no healthy devices present; cannot allocate unhealthy devices {R}"),
        (lambda made: made.stopped(R, 0), 1, "no healthy devices present; cannot allocate unhealthy devices {R}"),
        (lambda made: (made.stopped(R, 0), made.counts(301)), 1, "cannot allocate unregistered device {R}"),
        (lambda made: held(made, "q", "a"), 2, 'pod "q" container "c" changed request for resource "{R}" from 1 to 2'),
        (
            lambda made: (held(made, "q", "x"), made.set_devices(R, listed("a"))),
            1,
            "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {R}",
        ),
    ],
    ids=["all held", "empty list", "stopped", "expired", "changed request", "own device gone"],
)
def test_refusals(prepare: Callable[[DeviceTable], object], required: int, text: str) -> None:
    made = table("a", "b")
    prepare(made)

    answer = made.needed(Holder("q", "c", R), required, frozenset(), already_running=False)
    assert answer == Refusal(text.format(R=R))


def test_a_running_container_needs_nothing_whatever_the_plugin_says() -> None:
    made = table()

    assert made.needed(Holder("q", "c", R), 1, frozenset(), already_running=True) is None


def test_what_an_ended_pod_held_is_free_only_after_a_look() -> None:
    made = table("a")
    held(made, "p", "a")
    wanted = Holder("q", "c", R)
    assert isinstance(made.needed(wanted, 1, frozenset(), already_running=False), Refusal)

    made.free_inactive(lambda: frozenset({"q"}))
    assert isinstance(made.needed(wanted, 1, frozenset(), already_running=False), Wanted)


def test_a_pod_that_is_admitted_during_a_look_keeps_what_it_got() -> None:
    made = table("a")
    admission = threading.Thread(target=held, args=(made, "q", "a"))

    def active_before_it() -> frozenset[str]:
        admission.start()
        admission.join(0.05)  # it has to wait for the end of the look
        return frozenset()

    made.free_inactive(active_before_it)
    admission.join()

    assert made.holdings().keys() == {Holder("q", "c", R)}


def test_taken_ids_are_taken_until_given_back() -> None:
    made = table("a", "b")
    wanted = made.needed(Holder("p", "c", R), 1, frozenset(), already_running=False)
    assert isinstance(wanted, Wanted)
    made.take(wanted, ["b"])
    assert made.taken_counts() == {R: 1}

    made.give_back()
    assert made.taken_counts() == {}


IDS = st.sets(st.sampled_from([f"MIG-{number}" for number in range(10)]))


@given(free=IDS, reusable=IDS, size=st.integers(1, 8), hint=st.lists(st.sampled_from("abcdefgh")), seed=st.integers())
def test_a_choice_has_the_right_size_and_knows_its_ids(
    free: set[str], reusable: set[str], size: int, hint: list[str], seed: int
) -> None:
    free -= reusable
    random = Random(seed)
    answer = choose(R, size, frozenset(reusable), frozenset(free), random)
    if isinstance(answer, Refusal):
        assert len(free) + min(size, len(reusable)) < size
        return

    ids = answer.settle([*hint, *sorted(free)[:2]], random)
    assert len(ids) == size
    assert ids <= free | reusable
    assert answer.must_include <= ids
    if len(reusable) <= size:
        assert reusable <= ids, "devices of init containers are used first"


@given(free=IDS.filter(bool), seed=st.integers())
def test_a_preference_for_free_ids_is_followed(free: set[str], seed: int) -> None:
    wish = sorted(free)[-1]
    answer = choose(R, 1, frozenset(), frozenset(free), Random(seed))
    assert isinstance(answer, Wanted)

    assert answer.settle(["unknown", wish], Random(seed)) == {wish}
