"""When List cannot be believed, and what the plugin's ledger and the kubelet's checkpoint add to it."""

import pytest

from nodeagent.device_plugin.ledger import Ledger
from nodeagent.handover.config import Allocation, write_ledger
from nodeagent.observed.kubelet import CheckpointEntry
from tests.builders.objects import pod
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import NODE, mig
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World


@pytest.mark.parametrize("age_seconds", [None, 5.0, 59.0])
def test_a_young_kubelet_is_not_believed(world: World, age_seconds: float | None) -> None:
    world.kubelet.age_seconds = age_seconds
    replace_both(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert world.partitions() == ["mig-3g.40gb Unknown", "mig-3g.40gb Unknown"]

    world.kubelet.age_seconds = 60.0
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_kubelet_that_does_not_list_a_pod_it_has_handled_is_not_believed(world: World) -> None:
    key = ("kube-system", "proxy")
    world.pods[key] = pod(
        "proxy", namespace="kube-system", requests={}, node=NODE, status={"phase": "Running", "startTime": "t"}
    )
    replace_both(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "does not list pod kube-system/proxy" in world.gpu_status()["message"]

    world.kubelet.known.add(key)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_listed_pod_that_the_api_does_not_show_yet_makes_everything_unknown(world: World) -> None:
    world.kubelet.known.add(("default", "new"))
    replace_both(world)

    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "lists pod default/new, which the API does not show" in world.gpu_status()["message"]


def test_a_rate_limited_answer_is_no_answer(world: World) -> None:
    world.kubelet.refuses = "pod-resources List: RESOURCE_EXHAUSTED: rejected by rate limit"
    replace_both(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"

    world.kubelet.refuses = ""
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_an_answered_allocate_counts_until_its_pod_is_observed_or_time_is_over(world: World) -> None:
    uuid = next(device.id for device in world.plugin.config.devices)
    write_ledger(world.state.plugin, [Allocation(id=uuid, resource=THREE, at=5.0)])
    replace_both(world)

    world.settle(20)
    assert world.layout().count("3g.40gb") == 1
    assert "the device plugin handed it out" in world.gpu_status()["message"]

    world.clock.now += 60
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_ledger_that_the_plugin_lost_is_doubted_while_an_unknown_pod_runs(world: World) -> None:
    world.state.plugin.ledger.write_text("{")
    assert "kept aside" in Ledger(world.state.plugin).problem
    replace_both(world)

    world.tree.start(4711, uid_of(99))
    world.wait(3600)
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "lost its record of Allocates" in world.gpu_status()["message"]

    world.tree.end(4711)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_settled_allocate_stays_settled_over_a_restart(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.finish(holder)
    world.run()
    world.restart()
    replace_both(world)

    world.settle(5)

    assert world.layout() == "7g.80gb at 0"


def test_the_checkpoint_is_a_witness_for_a_pod_that_was_not_observed_to_end(world: World) -> None:
    uuid = next(device.id for device in world.plugin.config.devices)
    world.kubelet.entries = (CheckpointEntry(pod_uid="unknown", ids=(uuid,)),)
    replace_both(world)

    world.settle(20)
    assert world.layout().count("3g.40gb") == 1
    assert "is held by pod UID unknown" in world.gpu_status()["message"]

    world.clock.now += 60
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_the_checkpoint_of_an_ended_pod_is_ignored_over_a_restart_too(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.finish(holder)
    world.run()
    del world.pods[holder]
    world.run()
    world.restart()
    assert world.kubelet.entries
    replace_both(world)

    world.settle(5)

    assert world.layout() == "7g.80gb at 0"


def test_a_kubelet_that_does_not_answer_for_long_leaves_nothing_ready(world: World) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    assert world.condition("Ready")["status"] == "True"

    world.kubelet.refuses = "UNAVAILABLE: connection refused"
    world.run()
    assert world.condition("Ready")["status"] == "True"
    for _ in range(62):
        world.run()

    assert world.found() == ("Failed", "AdvertiseTimeout")
    for kind in ("Ready", "Advertised"):
        assert world.condition(kind)["status"] == "False"
        assert "UNAVAILABLE: connection refused" in world.condition(kind)["message"]
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"

    world.kubelet.refuses = ""
    world.settle()
    assert world.condition("Ready")["status"] == "True"
