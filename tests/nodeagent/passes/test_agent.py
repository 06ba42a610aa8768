"""Whole passes of the agent against a strict world: what is partitioned, advertised, kept, and reported."""

import pytest

from nodeagent.handover.files import identity
from nodeagent.report.reporter import BRIEF_SECONDS
from tests.builders.models import T4
from tests.builders.objects import pod
from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.items import NODE, mig, mps


def test_partitions_an_empty_gpu_at_the_exact_placements_and_advertises_them(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4), ("1g.10gb", 0), ("1g.20gb", 2)))

    world.settle()

    assert world.layout() == "1g.10gb at 0, 1g.20gb at 2, 3g.40gb at 4"
    assert world.advertised() == {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-1g.20gb": 1, "nvidia.com/mig-3g.40gb": 1}
    assert world.found() == ("Ready", "Confirmed")
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Ready")["observedGeneration"] == 1
    assert world.status()["summary"]["mig"] == "0/3"
    assert world.partitions() == ["mig-1g.10gb Free", "mig-1g.20gb Free", "mig-3g.40gb Free"]
    assert not world.tainted()


def test_an_instance_that_the_node_shows_within_moments_costs_one_status(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    world.effect.done.clear()
    world.apply(mig(0, ("3g.40gb", 4), ("1g.10gb", 0)))

    world.run(BRIEF_SECONDS / 2)
    assert "config.json" in world.effect.done
    world.settle()

    assert world.found() == ("Ready", "Confirmed")
    assert world.effect.done.count("status") == 1


def test_a_list_that_the_node_does_not_show_soon_is_reported_as_on_its_way(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply()
    world.settle(3)
    world.write_allocatable = world.node_ticks = False
    world.restart()
    world.apply(mig(0, ("1g.10gb", 0)))

    due = world.run(BRIEF_SECONDS / 2)
    assert world.found() == ("Unmanaged", "Unmanaged")
    assert due <= BRIEF_SECONDS
    world.run(BRIEF_SECONDS / 2)
    world.run()

    assert world.found() == ("Advertising", "Advertising")
    assert world.partitions() == ["mig-1g.10gb Pending"]


def test_what_is_withdrawn_is_reported_at_once(make_world: MakeWorld) -> None:
    world = make_world(cut(("1g.10gb", 4)), cut())
    world.settle(4)
    world.apply(mig(0, ("4g.40gb", 0)), mig(1, ("1g.10gb", 0)))

    world.run(BRIEF_SECONDS / 2)

    assert world.found() == ("Changing", "Withdrawing")
    assert world.partitions() == ["mig-4g.40gb Pending", "mig-1g.10gb Withdrawn"]


def test_does_nothing_when_all_is_as_planned(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    world.effect.done.clear()

    world.settle()

    assert world.effect.done == []


def test_an_idle_instance_is_withdrawn_confirmed_gone_and_only_then_destroyed(make_world: MakeWorld) -> None:
    world = make_world(cut(("1g.10gb", 4)))
    world.settle(4)

    world.apply(mig(0, ("4g.40gb", 0)))
    world.settle(2)
    # What fits next to it is created at once.
    assert world.layout() == "4g.40gb at 0, 1g.10gb at 4"
    assert world.found() == ("Changing", "Withdrawing")
    assert world.partitions() == ["mig-4g.40gb Pending", "mig-1g.10gb Withdrawn"]
    world.settle()

    assert world.layout() == "4g.40gb at 0"
    assert world.found() == ("Ready", "Confirmed")


def test_several_idle_instances_go_in_one_pass(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4), ("1g.10gb", 0), ("2g.20gb", 2)))
    world.settle(3)
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle(3)

    assert world.layout() == "7g.80gb at 0"
    assert world.metrics.registry.get_sample_value("gpuplan_agent_steps_total", {"action": "destroy"}) == 3
    assert world.metrics.registry.get_sample_value("gpuplan_agent_errors_total", {"kind": "driver-refused"}) is None


@pytest.mark.parametrize("stuck", ["plugin", "kubelet"])
def test_nothing_is_destroyed_before_plugin_and_kubelet_withdrew_it(make_world: MakeWorld, stuck: str) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.settle(4)
    world.apply(mig(0, ("7g.80gb", 0)))

    if stuck == "plugin":
        world.plugin.alive = False
        for _ in range(6):
            world.pass_only()
            world.clock.now += 0.5
    else:
        for _ in range(6):
            world.pass_only()
            world.plugin.step()
            world.clock.now += 0.5

    assert world.layout() == "3g.40gb at 4"
    assert world.found() == ("Changing", "Withdrawing")


def test_an_instance_in_use_is_kept_and_its_holder_named(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4), ("1g.10gb", 0)))
    world.settle(4)
    holder = world.pod("nvidia.com/mig-3g.40gb")
    world.apply(mig(0, ("4g.40gb", 0), ("1g.10gb", 4)))

    world.settle()

    assert world.layout() == "4g.40gb at 0, 3g.40gb at 4"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.gpu_status()["message"] == "3g.40gb at 4 is held by pod default/p1"
    assert world.condition("Ready")["reason"] == "WaitingForRelease"
    assert world.condition("Reconciling")["status"] == "True"
    assert world.condition("Stalled")["status"] == "False"
    assert world.advertised()["nvidia.com/mig-3g.40gb"] == 1

    world.finish(holder)
    world.settle()

    assert world.layout() == "4g.40gb at 0, 1g.10gb at 4"
    assert world.found() == ("Ready", "Confirmed")


def test_a_pod_that_takes_the_id_just_before_the_withdrawal_keeps_it(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.settle(4)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.pass_only()

    world.pod("nvidia.com/mig-3g.40gb")  # neither plugin nor kubelet knows of the withdrawal yet
    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.advertised() == {"nvidia.com/mig-3g.40gb": 1}


def test_a_pod_after_the_withdrawal_is_refused_and_loses_no_device(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.settle(4)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.run()
    world.pass_only()
    world.plugin.step()

    refused = world.pod("nvidia.com/mig-3g.40gb")  # the kubelet still has it, the plugin refuses
    world.kubelet.step()
    world.settle()

    assert world.pods[refused]["status"]["phase"] == "Failed"
    assert world.layout() == "7g.80gb at 0"
    assert ("p1", "PartitionGone") in [(name, reason) for name, reason, _ in world.events]


def test_the_taint_is_kept_while_the_node_counts_what_is_withdrawn(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4), ("3g.40gb", 0)))
    world.write_allocatable = False
    world.restart()
    world.settle(4)
    world.node_ticks = False
    world.apply(mig(0, ("3g.40gb", 4)))

    world.settle(6)

    assert world.layout() == "3g.40gb at 4"
    assert world.tainted()
    assert world.effect.done.index("taint True") < world.effect.done.index("destroy CI 0 of 3g.40gb at 0")
    assert world.found() == ("Advertising", "Advertising")

    world.node_ticks = True
    world.settle(4)

    assert not world.tainted()
    assert world.found() == ("Ready", "Confirmed")


def test_a_taint_that_cannot_be_lifted_is_reported(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(cut(("1g.10gb", 0)))
    world.settle(4)
    lift = world.set_taint
    monkeypatch.setattr(world, "set_taint", lambda present: lift(True) if present else "cannot change the taint")
    world.apply(mig(0, ("4g.40gb", 0)))

    world.settle()

    assert world.tainted()
    assert world.condition("Advertised")["message"] == "cannot change the taint"


def test_the_node_is_written_between_the_taint_and_its_end(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4), ("3g.40gb", 0)))
    world.node_ticks = False
    world.settle(4)
    assert world.node["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] == "2"

    world.apply(mig(0, ("3g.40gb", 4)))
    before = len(world.effect.done)
    world.settle(8)

    assert world.node["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] == "1"
    done = world.effect.done[before:]
    order = [done.index(what) for what in ("taint True", "config.json", "allocatable", "taint False")]
    assert order == sorted(order)
    assert not world.tainted()
    assert world.found() == ("Ready", "Confirmed")


def test_counts_are_placed_around_what_is_in_use(make_world: MakeWorld) -> None:
    world = make_world(cut(("1g.10gb", 2), ("2g.20gb", 4)))
    world.settle(4)
    world.pod("nvidia.com/mig-1g.10gb")
    world.apply(mig(0, "1g.10gb*2", "3g.40gb"))

    world.settle()

    layout = world.layout()
    assert "1g.10gb at 2" in layout
    assert "3g.40gb at 4" in layout
    assert layout.count("1g.10gb") == 2
    assert world.found() == ("Ready", "Confirmed")


def test_unmanaged_gpus_are_reported_and_their_partitions_advertised(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)), plain(), (T4, {}))
    world.apply()

    world.settle()

    assert world.layout() == "2g.20gb at 0"
    assert world.advertised() == {"nvidia.com/gpu": 2, "nvidia.com/mig-2g.20gb": 1}
    assert [world.found(n) for n in range(3)] == [("Unmanaged", "Unmanaged")] * 3
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["summary"].items() >= {"mig": "0/1", "whole": "0/2"}.items()


def test_without_a_plan_everything_is_advertised_unchanged(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)), plain())

    world.settle()

    assert world.advertised() == {"nvidia.com/gpu": 1, "nvidia.com/mig-2g.20gb": 1}
    assert "status" not in world.effect.done


def test_an_item_that_leaves_the_list_destroys_nothing(make_world: MakeWorld) -> None:
    world = make_world(*empty(), plain())
    world.apply(mig(0, ("3g.40gb", 4)), mps(1, 10, 10))
    world.settle()

    world.apply()
    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert world.advertised() == {"nvidia.com/gpu-10gb": 2, "nvidia.com/mig-3g.40gb": 1}


def test_gpus_wins_over_planned(make_world: MakeWorld) -> None:
    world = make_world(*empty(2))
    world.apply(mig(0, ("7g.80gb", 0)), planned=[mig(0, ("1g.10gb", 0)), mig(1, ("4g.40gb", 0))])

    world.settle()

    assert world.layout(0) == "7g.80gb at 0"
    assert world.layout(1) == "4g.40gb at 0"


def test_a_refused_pod_is_reported_once_and_not_by_every_later_agent(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.settle(3)
    old, new = ("default", "old"), ("default", "new")
    requests = {"nvidia.com/mig-3g.40gb": 1}
    why = "Allocate failed due to can't allocate unregistered device nvidia.com/mig-3g.40gb, which is unexpected"
    for key, began in ((old, "t0999"), (new, "t1999")):  # before and after the agent's start, as its clock writes it
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": began, "message": why}
        metadata = {"creationTimestamp": "t0001"}
        world.pods[key] = pod(key[1], requests=requests, node=NODE, metadata=metadata, status=status)
    world.settle(3)
    assert [name for name, reason, _ in world.events if reason == "PartitionGone"] == ["new"]

    world.clock.now = 3000.0
    world.restart()
    world.settle(3)

    assert [name for name, reason, _ in world.events if reason == "PartitionGone"] == ["new"]
    assert world.metrics.registry.get_sample_value("gpuplan_agent_refused_pods_total") == 0.0


def test_a_config_that_is_not_loaded_in_its_time_is_written_again_each_time(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply()
    world.settle()
    world.plugin.alive = False
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle()
    file = world.state.plugin.config
    text, written = file.read_text(), [identity(file)]

    for _ in range(2):
        world.clock.now += 61
        for _ in range(3):
            world.run()
        written.append(identity(file))

    assert len(set(written)) == 3
    assert file.read_text() == text
    assert "has not loaded the config for 60 s" in world.gpu_status()["message"]
    world.plugin.alive = True
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
