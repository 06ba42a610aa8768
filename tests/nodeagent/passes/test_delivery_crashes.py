"""An agent that dies between its effects leaves no entry without a device, and advertises no device without one."""

from pathlib import Path

import pytest

from nodeagent.handover.cdi import FILE_NAME
from nodeagent.handover.config import DeviceKind
from tests.drawn import points, thorough
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.items import mig, mps
from tests.nodeagent.passes.by_cdi import advertised_ids, by_cdi, named
from tests.nodeagent.watched import Killed
from tests.nodeagent.world import World


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DeviceKind.MPS, *thorough(DeviceKind.MIG)])
def test_agent_killed_after_any_effect_leaves_no_wrong_entry(make_world: MakeWorld, kind: DeviceKind) -> None:
    def story(kill_after: int) -> World:
        mig_gpu = kind is DeviceKind.MIG
        world = by_cdi(make_world(cut(("3g.40gb", 4), ("1g.10gb", 0))) if mig_gpu else make_world(plain()))
        world.settle(6)
        world.effect.done.clear()
        world.effect.kill_after = kill_after
        world.apply(mig(0, ("4g.40gb", 0), ("1g.20gb", 4), ("1g.10gb", 6)) if mig_gpu else mps(0, 20, 10, 40))
        world.settle()
        return world

    whole_story = story(-1)
    effects = list(whole_story.effect.done)
    assert "CDI specification" in effects
    for number in points(range(1, len(effects) + 1)):
        world = story(number)
        assert named(world) == named(whole_story)
        assert set(advertised_ids(world)) == named(world)
        assert world.found() == ("Ready", "Confirmed")


def test_effects_kill(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(plain()))
    world.effect.kill_after = len(world.effect.done) + 2  # after that of holdings.json
    with pytest.raises(Killed):
        world.run()
    assert Path(world.cdi / FILE_NAME).exists()
