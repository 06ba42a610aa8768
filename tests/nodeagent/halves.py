"""An H100 cut into two halves, and the plan for which both must go: nothing better shows what keeps an instance."""

from tests.nodeagent.items import mig
from tests.nodeagent.world import World

THREE = "nvidia.com/mig-3g.40gb"


def replace_both(world: World) -> None:
    """A plan that needs both instances gone."""
    world.apply(mig(0, ("7g.80gb", 0)))


def replace_with_its_device(world: World, job: tuple[str, str], *, listed_late: bool) -> None:
    """The next one of a job runs with what this one has given back; the kubelet's list may show that a pass later."""
    (device,) = world.running[job]
    world.finish(job)  # and the next one has it before the agent has seen it free
    del world.pods[job]
    job = world.pod(THREE, "job-1", device=device)
    if listed_late:
        ids = world.kubelet.held.pop(job)
        world.pass_only()
        world.kubelet.held[job] = ids
    world.wait(61)
    world.wait(61)
    assert job in world.running
