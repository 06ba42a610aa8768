"""A node that is disabled: no pod gets a device any more, its holders keep theirs, then the node is handed back."""

import pytest

from crds.v1alpha1 import names
from nodeagent.handover.mps_state import MpsState, hold_mps_lock, write_mps
from tests import incidents
from tests.builders.models import T4
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.items import mig, mps, whole
from tests.nodeagent.world import World

SLICE = "nvidia.com/mig-3g.40gb"


def label(world: World, **labels: str | None) -> None:
    """`gpu_partitioning` is gpuplan.dev/gpu-partitioning; None removes it."""
    found = dict(world.node["metadata"].get("labels") or {})
    for name, value in labels.items():
        key = f"{names.GROUP}/{name.replace('_', '-')}"
        found = {k: v for k, v in found.items() if k != key} | ({key: value} if value is not None else {})
    world.node = {**world.node, "metadata": {**world.node["metadata"], "labels": found}}


def enabled(world: World) -> World:
    label(world, gpu_partitioning="mig", node_agent="true")
    world.settle()
    return world


def disable(world: World) -> None:
    label(world, gpu_partitioning=None)


def handed_back(world: World) -> tuple[str, str, str]:
    found = world.condition("HandedBack")
    return found["status"], found["reason"], found["message"]


@pytest.fixture
def halves(make_world: MakeWorld) -> World:
    """An H100 in two halves, as planned."""
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    return enabled(world)


def test_enabled_node_is_not_handed_back(halves: World) -> None:
    assert handed_back(halves)[:2] == ("False", "")


def test_disabled_node_names_the_pod_and_is_handed_back_after_it(halves: World) -> None:
    pod = halves.pod(SLICE)
    halves.settle()

    disable(halves)
    halves.settle()

    assert halves.advertised() == {}, "neither what is free nor what the next pod of a queue could get"
    status, reason, message = handed_back(halves)
    assert (status, reason) == ("False", "WaitingForRelease")
    assert f"is held by pod {'/'.join(pod)}" in message
    assert halves.found() == ("WaitingForRelease", "WaitingForRelease")
    assert (halves.condition("Ready")["status"], halves.condition("Ready")["reason"]) == ("False", "NodeDisabled")
    assert halves.condition("Reconciling")["status"] == "True"
    assert halves.condition("Stalled")["status"] == "False"
    assert halves.condition("Drifted")["status"] == "False"

    halves.finish(pod)
    halves.settle()

    assert handed_back(halves)[:2] == ("True", "NodeDisabled")
    assert halves.found() == ("Unmanaged", "NodeDisabled")
    assert halves.condition("Reconciling")["status"] == "False"
    assert halves.layout() == "3g.40gb at 0, 3g.40gb at 4", "the hardware stays as it is"
    assert not halves.tainted()


def test_pod_that_was_bound_before_is_refused_on_a_disabled_node(halves: World) -> None:
    disable(halves)
    halves.settle()

    late = halves.pod(SLICE)

    assert late not in halves.running
    halves.settle()
    assert handed_back(halves)[:2] == ("True", "NodeDisabled")


def test_mps_slices_and_whole_gpus_drain_too_and_daemons_end_last(make_world: MakeWorld) -> None:
    world = make_world((T4, {}), plain())
    world.apply(mps(0, 4, 4), whole(1))
    label(world, gpu_partitioning="mps", node_agent="true")
    world.settle()
    pods = [world.pod("nvidia.com/gpu-4gb"), world.pod("nvidia.com/gpu")]
    world.settle()

    disable(world)
    world.settle()

    message = handed_back(world)[2]
    assert all(f"is held by pod {'/'.join(pod)}" in message for pod in pods)
    kinds = [device.kind for device in world.plugin.config.devices]
    assert kinds == ["whole", "mps"], "the slice in use keeps its daemon"
    for pod in pods:
        world.finish(pod)
    world.settle()
    status, reason, message = handed_back(world)
    assert (status, reason) == ("False", "Withdrawing"), "no supervisor has reported that the daemons have ended"
    assert "gpuplan.dev/mps-daemons" in message

    lock = hold_mps_lock(world.state.plugin)
    write_mps(world.state.plugin, MpsState())
    world.settle()
    assert handed_back(world)[:2] == ("True", "NodeDisabled")
    assert lock is not None
    lock.close()

    label(world, gpu_partitioning="mps")
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1, "nvidia.com/gpu-4gb": 2}


def test_use_that_is_not_known_keeps_the_node(halves: World) -> None:
    halves.kubelet.refuses = "no answer"
    disable(halves)
    halves.settle()

    status, reason, message = handed_back(halves)
    assert (status, reason) == ("False", "UseUnknown")
    assert "no answer" in message

    halves.kubelet.refuses = ""
    halves.settle()
    assert handed_back(halves)[0] == "True"


def test_driver_that_does_not_answer_keeps_the_node(halves: World) -> None:
    incidents.replace_driver(halves.machine, "999.1")
    disable(halves)
    halves.settle()

    assert handed_back(halves)[:2] == ("False", "UseUnknown")


def test_pod_with_a_device_that_is_gone_keeps_the_node(halves: World) -> None:
    pod = halves.pod_of_other_plugin(SLICE, "MIG-00000000-0000-0000-0000-000000000000", "")
    disable(halves)
    halves.settle()

    status, reason, message = handed_back(halves)
    assert (status, reason) == ("False", "WaitingForRelease")
    assert f"pod {'/'.join(pod)} holds MIG-00000000" in message


def test_vanished_pod_keeps_the_node_for_as_long_as_it_runs(halves: World) -> None:
    pod = halves.pod(SLICE)
    halves.settle()
    disable(halves)
    halves.settle()

    halves.force_delete(pod, seen_by_driver=False)
    halves.settle(10)
    assert handed_back(halves)[0] == "False"

    halves.end_container(pod)
    halves.wait(31)
    assert handed_back(halves)[0] == "True"


def test_node_that_is_enabled_again_advertises_only_after_it_took_its_word_back(halves: World) -> None:
    disable(halves)
    halves.settle()
    assert handed_back(halves)[0] == "True"
    halves.effect.done.clear()

    label(halves, gpu_partitioning="mig")
    halves.run()

    assert handed_back(halves)[:2] == ("False", "")
    assert halves.plugin.advertised().get(SLICE, ()) == (), "the controller may have read the word until now"
    halves.settle()
    assert halves.advertised() == {SLICE: 2}
    assert halves.found() == ("Ready", "Confirmed")


def test_agent_that_starts_on_a_drained_node_knows_so(halves: World) -> None:
    disable(halves)
    halves.settle()

    halves.restart()
    halves.settle()

    assert handed_back(halves)[0] == "True"
    assert halves.advertised() == {}


def test_nothing_is_drained_where_a_label_is_not_understood(halves: World) -> None:
    label(halves, gpu_partitioning="mgi")
    halves.settle()

    assert handed_back(halves)[:2] == ("False", "")
    assert halves.advertised() == {SLICE: 2}


def test_nothing_is_drained_where_another_label_than_ours_brings_the_agent(make_world: MakeWorld) -> None:
    """A value of the chart's nodes.labels that the controller does not know."""
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()

    assert handed_back(world)[:2] == ("False", "")
    assert world.advertised() == {SLICE: 2}


def test_agent_keeps_its_word_until_its_pod_ends(halves: World) -> None:
    """The controller has removed its label, and the DaemonSet ends the pod some seconds later."""
    disable(halves)
    halves.settle()
    label(halves, node_agent=None)
    for restarted in (False, True):
        if restarted:
            halves.restart()
        halves.settle()
        assert handed_back(halves)[:2] == ("True", "NodeDisabled")
        assert halves.condition("Ready")["reason"] == "NodeDisabled"
        assert halves.advertised() == {}


def test_agent_whose_label_a_person_takes_gives_nothing_out_any_more(halves: World) -> None:
    halves.pod(SLICE)
    halves.settle()
    disable(halves)
    halves.settle()
    label(halves, node_agent=None)
    halves.settle()
    assert handed_back(halves)[:2] == ("False", "WaitingForRelease")
    assert halves.advertised() == {}


def test_nothing_is_changed_before_it_is_known_whether_the_node_is_enabled(halves: World) -> None:
    disable(halves)
    halves.settle()
    halves.apply(mig(0, ("7g.80gb", 0)))
    halves.restart()
    halves.latest_node.on_event(None, None, None)
    halves.agent.reconcile()

    assert halves.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "nothing is changed until this Node was read" in halves.gpu_status()["message"]
    halves.settle()
    assert halves.layout() == "3g.40gb at 0, 3g.40gb at 4"
    label(halves, gpu_partitioning="mig")
    halves.settle()
    assert halves.layout() == "7g.80gb at 0"


def test_a_gpu_that_does_not_report_its_uuid_is_withdrawn_and_keeps_the_node_from_being_handed_back(
    make_world: MakeWorld,
) -> None:
    world = make_world(plain(), plain())
    world.apply(whole(0), whole(1))
    enabled(world)
    incidents.lose(world.machine, world.gpu(1).uuid)
    world.restart()
    world.settle()

    disable(world)
    for _ in range(6):
        world.run()
        assert handed_back(world)[0] == "False"

    assert world.plugin.config.advertised() == ()
    assert "whether pods use a GPU that cannot be read is not known: GPU 1: " in handed_back(world)[2]
