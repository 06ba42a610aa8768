"""What the tests of held slices share: a node whose pods have real processes, and settings that make time short."""

import time
from collections import Counter
from collections.abc import Callable

from partitioning.resources import mig_resource
from tests.e2e.kubelet.gpu_node import SECONDS, GpuNode, Raw
from tests.waiting import eventually

SMALL = mig_resource("1g.10gb")
HALF = mig_resource("3g.40gb")
SETTINGS = {"kubeletStartSeconds": 5, "releaseSlackSeconds": 8}
MINUTE = 60.0


def offer_all(node: GpuNode, layout: Raw) -> None:
    """All slices of this plan's item are there, and free."""
    node.write_plan(layout)
    node.wait_ready()
    slices = Counter(mig_resource(instance["profile"]) for instance in layout["mig"]["instances"])
    eventually(lambda: all(node.offers(*each) for each in slices.items()), "all is on offer", SECONDS)


def for_a_while(seconds: float, check: Callable[[], None]) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        check()
        time.sleep(0.2)
