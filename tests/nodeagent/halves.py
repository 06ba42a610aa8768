"""An H100 cut into two halves, and the plan for which both must go: nothing better shows what keeps an instance."""

from tests.nodeagent.items import mig
from tests.nodeagent.world import World

THREE = "nvidia.com/mig-3g.40gb"


def replace_both(world: World) -> None:
    """A plan that needs both instances gone."""
    world.apply(mig(0, ("7g.80gb", 0)))
