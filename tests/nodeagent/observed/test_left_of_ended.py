"""A pod that has ended by the API, whose process lives on, and of which the kubelet's checkpoint alone has the device.

The kubelet drops that line when it writes its checkpoint after the pod is gone: by then the agent has remembered it.
"""

import shutil

import pytest

from tests.drawn import cells
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig
from tests.nodeagent.observed.test_ends_proof import ENDED_BY_OTHERS
from tests.nodeagent.passes.test_hold_off import hold_off, released
from tests.nodeagent.world import World

HOURS_SECONDS = 7200.0


@pytest.mark.parametrize(
    ("lost", "settled_seconds", "restarted", "status"),
    cells(["memory", "state directory", "nothing"], [11, HOURS_SECONDS], [False, True], [*ENDED_BY_OTHERS]),
)
def test_what_only_the_checkpoint_knew_is_held_after_its_line_is_gone(
    world: World, lost: str, settled_seconds: float, restarted: bool, status: str
) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    if lost != "nothing":
        world.settle()
    world.pods[holder]["status"] = ENDED_BY_OTHERS[status]
    world.forget(holder)
    if lost == "memory":
        world.state.holdings.unlink()
    if lost == "state directory":
        shutil.rmtree(world.state.root)
        world.state.plugin.directory.mkdir(parents=True)
        world.plugin.restart()
    world.restart()
    world.settle()
    if settled_seconds:
        world.wait(settled_seconds)
        world.wait(settled_seconds)
    assert device not in world.kubelet.devices[THREE]

    world.pods.pop(holder)  # its controller, or the collector of pods
    world.kubelet.entries = ()  # it writes its checkpoint with the next pod that it admits
    if restarted:
        world.restart()
    for _ in range(4):
        world.wait(HOURS_SECONDS)
        assert device not in world.kubelet.devices[THREE], world.gpu_status().get("message")
    hold_off(world)
    world.settle()
    assert released(world)[0] == "False"
    world.end_container(holder)
    world.wait(61)
    world.wait(61)
    assert released(world)[0] == "True"
