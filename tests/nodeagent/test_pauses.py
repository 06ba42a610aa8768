"""How soon the agent makes its next pass: a pause after a failure is waited for only where the pass could end it."""

from sandbox.driver import processes
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import mig


def test_a_pause_is_waited_for_while_its_gpu_is_worked_on(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    world.settle(4)
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1, hidden=True)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle(10)
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")

    dues = []
    for _ in range(20):
        due = world.pass_only()
        world.step(due)
        dues.append(due)

    assert all(0 < due <= 1 for due in dues), dues


def test_a_pause_of_a_gpu_that_is_left_alone_makes_no_passes(make_world: MakeWorld) -> None:
    """Beside another device plugin nothing is changed, so a pause from before is never used up."""
    world = make_world(cut(("3g.40gb", 0)))
    world.settle(4)
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1, hidden=True)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle(10)

    dues = []
    for _ in range(200):
        world.step(0.5)
        world.kubelet.devices["nvidia.com/gpu"] = ("GPU-strange",)
        world.tick()
        dues.append(world.pass_only())

    assert world.found() == ("Failed", "ForeignOwner")
    assert min(dues[-50:]) >= 1, dues[-50:]
