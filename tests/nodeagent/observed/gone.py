"""A pod with a device that is gone from the API, and who has that device open: shared by the tests of its end."""

from dataclasses import replace

from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.processes import Process
from tests.nodeagent.halves import THREE
from tests.nodeagent.world import World

ENDLESS = 2**63 - 1
HOURS = 7200.0
Key = tuple[str, str]


def holder_of(world: World, grace_seconds: int = ENDLESS, **spec: object) -> Key:
    """A pod with one of two halves, which the plan no longer has."""
    key = world.pod(THREE)
    world.pods[key]["spec"].update({"terminationGracePeriodSeconds": grace_seconds, **spec})
    world.run()
    return key


def held(world: World) -> bool:
    return world.layout().count("3g.40gb") == 1


def freed(world: World) -> bool:
    return world.layout() == "7g.80gb at 0"


def open_files(
    world: World,
    *numbers: tuple[int, int],
    began_at: float = 0.0,
    up_seconds: float = 0.0,
    pods: tuple[str, ...] = (),
) -> None:
    """Another process than the pod's has these open."""
    process = Process(pid=4711, program="dockerd", pods=frozenset(pods), began_at=began_at, up_seconds=up_seconds)

    def holders(asked: object) -> tuple[Process, ...] | NoAnswer:
        assert isinstance(asked, frozenset)
        opened = asked.intersection(numbers)
        return (replace(process, opened=opened),) if opened and not pods else ()

    world.holders = holders  # type: ignore[method-assign,assignment]
