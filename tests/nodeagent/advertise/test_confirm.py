"""Stages of confirmation: loaded, allocatable, schedulable, and what is reported when a deadline is over."""

from dataclasses import replace

import pytest

from nodeagent.advertise.confirm import Confirmer, Stage
from nodeagent.handover.config import Device, DeviceKind, Loaded, PluginConfig, Problem
from nodeagent.observation import Readings
from nodeagent.observed.kubelet import Allocatable, NoAnswer
from nodeagent.observed.node import ObservedNode
from tests.clock import Clock

R = "nvidia.com/mig-1g.10gb"


def device(name: str, gpu: str = "GPU-1", resource: str = R) -> Device:
    return Device(id=name, resource=resource, gpu=gpu, kind=DeviceKind.MIG)


def node(**counts: int) -> ObservedNode:
    return ObservedNode(name="n", uid="u", allocatable={R: counts.get("r", 0)})


def loaded(*errors: Problem) -> Loaded:
    return Loaded(hash="h", boot_token="t", registered={R: True}, mps_root="/run/mps", errors=errors)


GOOD = Readings(
    config=PluginConfig.of([device("a"), device("b", gpu="GPU-2")]),
    loaded=loaded(),
    in_force=True,
    allocatable=Allocatable(ids={R: ("a", "b")}),
    node=node(r=2),
)


class ConfirmerBench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.confirmer = Confirmer(clock=self.clock, loaded_deadline_seconds=60, allocatable_deadline_seconds=30)

    def stage(self, readings: Readings, gpu: str = "GPU-1") -> Stage:
        return self.confirmer.confirm(readings, ["GPU-1", "GPU-2"]).stages[gpu]

    def contested(self, readings: Readings) -> tuple[str, ...]:
        self.confirmer.confirm(readings, [])
        return self.confirmer.contested()


def test_what_every_stage_shows_is_schedulable() -> None:
    found = ConfirmerBench().confirmer.confirm(GOOD, ["GPU-1", "GPU-2"])

    assert found.all_allocatable
    assert found.schedulable == {"a", "b"}
    assert all(stage.schedulable for stage in found.stages.values())


@pytest.mark.parametrize(
    ("readings", "deadline_seconds", "before", "after", "part"),
    [
        pytest.param(
            replace(GOOD, in_force=False), 60, "Advertising", "DevicePluginError", "does not answer", id="not loaded"
        ),
        pytest.param(
            replace(GOOD, allocatable=Allocatable(ids={R: ("b",)})),
            30,
            "Advertising",
            "AdvertiseTimeout",
            "the kubelet does not show any of its devices (nvidia.com/mig-1g.10gb)",
            id="not allocatable",
        ),
        pytest.param(
            replace(GOOD, allocatable=Allocatable(ids={R: ("b", "c")})),
            30,
            "Advertising",
            "AdvertiseTimeout",
            "the kubelet does not show any of its devices (nvidia.com/mig-1g.10gb)",
            id="equal counts hide a wrong id",
        ),
        pytest.param(
            replace(GOOD, node=node(r=1)), 30, "Advertising", "AdvertiseTimeout", "the new count of", id="not shown"
        ),
        pytest.param(
            replace(GOOD, node=node(r=3)),
            30,
            "Advertising",
            "AdvertiseTimeout",
            "the new count of",
            id="shown too high",
        ),
        pytest.param(
            replace(GOOD, node=None), 30, "Advertising", "AdvertiseTimeout", "this Node was not read", id="no Node"
        ),
        pytest.param(
            replace(GOOD, allocatable=NoAnswer(reason="UNAVAILABLE")),
            30,
            "Advertising",
            "AdvertiseTimeout",
            "UNAVAILABLE",
            id="kubelet away",
        ),
        pytest.param(
            replace(GOOD, loaded=loaded(Problem(gpu="GPU-1", message="no daemon"))),
            30,
            "DevicePluginError",
            "DevicePluginError",
            "no daemon",
            id="plugin's problem",
        ),
    ],
)
def test_what_is_not_confirmed_has_a_reason_and_fails_after_its_deadline(
    readings: Readings, deadline_seconds: float, before: str, after: str, part: str
) -> None:
    bench = ConfirmerBench()

    first = bench.stage(readings)
    assert (first.schedulable, first.failed, str(first.reason)) == (False, False, before)
    bench.clock.now += deadline_seconds
    late = bench.stage(readings)
    assert (late.schedulable, late.failed, str(late.reason)) == (False, True, after)
    assert part in late.message
    assert bench.stage(GOOD).schedulable
    bench.clock.now += 1
    assert not bench.stage(replace(readings, config=PluginConfig.of([device("z")]))).failed


@pytest.mark.parametrize(
    "readings",
    [
        pytest.param(replace(GOOD, in_force=False), id="another GPU's config is on its way"),
        pytest.param(replace(GOOD, allocatable=NoAnswer(reason="RESOURCE_EXHAUSTED")), id="a question not put"),
    ],
)
def test_what_was_confirmed_stays_so(readings: Readings) -> None:
    bench = ConfirmerBench()
    bench.stage(GOOD)

    assert bench.stage(readings).schedulable


def test_what_was_confirmed_is_unknown_after_a_deadline_without_an_answer() -> None:
    bench = ConfirmerBench()
    bench.stage(GOOD)
    silent = replace(GOOD, allocatable=NoAnswer(reason="UNAVAILABLE"))

    assert bench.stage(silent).schedulable
    bench.clock.now += 29
    assert bench.stage(silent).schedulable
    bench.clock.now += 1
    late = bench.stage(silent)
    assert (late.schedulable, late.failed, str(late.reason)) == (False, True, "AdvertiseTimeout")
    assert "whether the kubelet still has these devices is unknown: UNAVAILABLE" in late.message

    assert bench.stage(GOOD).schedulable
    assert bench.stage(silent).schedulable


def test_one_gpu_in_trouble_does_not_hold_back_another() -> None:
    bench = ConfirmerBench()
    readings = replace(GOOD, allocatable=Allocatable(ids={R: ("b",)}), node=node(r=1))

    assert not bench.stage(readings, "GPU-1").schedulable
    assert bench.stage(readings, "GPU-2").schedulable


def test_free_ids_stay_schedulable_while_new_ones_are_on_their_way() -> None:
    bench = ConfirmerBench()
    bench.stage(GOOD)
    more = replace(
        GOOD,
        config=PluginConfig.of([*GOOD.config.devices, device("c")]),
        allocatable=Allocatable(ids={R: ("a", "b", "c")}),
    )

    assert bench.confirmer.confirm(more, ["GPU-1"]).schedulable == {"a", "b"}
    assert bench.confirmer.confirm(replace(more, node=node(r=3)), ["GPU-1"]).schedulable == {"a", "b", "c"}


def test_a_blink_of_the_plugin_unsettles_nothing() -> None:
    bench = ConfirmerBench()
    bench.stage(GOOD)
    away = replace(GOOD, allocatable=Allocatable(ids={R: ()}), node=node())

    assert bench.stage(away).schedulable
    bench.clock.now += 2
    found = bench.confirmer.confirm(away, ["GPU-1"])
    assert not found.stages["GPU-1"].schedulable
    assert found.schedulable == set()


def test_an_emptied_gpu_is_confirmed_when_the_node_counts_less() -> None:
    bench = ConfirmerBench()
    bench.stage(GOOD)
    emptied = replace(
        GOOD, config=PluginConfig.of([device("b", gpu="GPU-2")]), allocatable=Allocatable(ids={R: ("b",)})
    )

    assert not bench.stage(emptied).schedulable
    assert bench.stage(emptied, "GPU-2").schedulable
    assert bench.stage(replace(emptied, node=node(r=1))).schedulable


def test_resource_with_foreign_ids_is_contested_after_the_deadline_only() -> None:
    bench = ConfirmerBench()
    readings = replace(
        GOOD, allocatable=Allocatable(ids={R: ("a", "b"), "nvidia.com/gpu": ("GPU-9",), "x.y/z": ("1",)})
    )

    assert bench.contested(readings) == ()
    bench.clock.now += 30
    assert bench.contested(readings) == ("nvidia.com/gpu",)


def test_two_plugins_that_throw_each_other_out_are_a_conflict_all_the_same() -> None:
    bench = ConfirmerBench()

    for n in range(31):
        theirs = Allocatable(ids={R: (f"MIG-{n}::0",)})
        assert bool(bench.contested(replace(GOOD, allocatable=theirs))) is (n * 3 >= 30)
        bench.clock.now += 1
        bench.confirmer.confirm(GOOD, [])
        bench.clock.now += 2
    assert bench.confirmer.contested() == (R,)

    bench.clock.now += 31
    assert bench.contested(GOOD) == ()


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(PluginConfig.of([device("a"), device("b")], withdrawn=["a"]), id="withdrawn"),
        pytest.param(PluginConfig.of([device("a"), device("b")], unhealthy=["a"]), id="unhealthy"),
    ],
)
def test_an_id_of_ours_that_our_plugin_does_not_list_comes_from_another_one(config: PluginConfig) -> None:
    """NVIDIA's plugin, unshared, gives the same ids."""
    bench = ConfirmerBench()
    readings = replace(GOOD, config=config)

    for _ in range(16):
        assert bench.contested(readings) == ()
        bench.clock.now += 2
    assert bench.contested(readings) == (R,)


def test_older_lists_of_our_own_are_no_conflict_however_many_there_are() -> None:
    bench = ConfirmerBench()

    for n in range(40):
        names = [f"id-{number}" for number in range(n + 1)]
        config = PluginConfig.of([device(name) for name in names], withdrawn=names[:n])
        shown = Allocatable(ids={R: tuple(names)})  # the withdrawal is on its way
        assert bench.contested(replace(GOOD, config=config, allocatable=shown)) == ()
        bench.clock.now += 1.9


def test_two_sightings_far_apart_are_no_conflict() -> None:
    bench = ConfirmerBench()
    theirs = replace(GOOD, allocatable=Allocatable(ids={R: ("a", "b", "c")}))

    for _ in range(3):
        assert bench.contested(theirs) == ()
        bench.clock.now += 31
        assert bench.contested(GOOD) == ()


def test_a_deadline_does_not_start_again_because_other_ids_are_late() -> None:
    bench = ConfirmerBench()
    two = replace(GOOD, config=PluginConfig.of([device("a"), device("b")]))

    for shown in (("a",), ("b",), ("a",)):
        assert not bench.stage(replace(two, allocatable=Allocatable(ids={R: shown}))).failed
        bench.clock.now += 12

    assert bench.stage(replace(two, allocatable=Allocatable(ids={R: ("b",)}))).failed
