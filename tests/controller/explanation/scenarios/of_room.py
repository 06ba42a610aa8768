"""Pods for which there is no room: in use, split, taken by others, or lacking something else of the node."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.scheduling import HostPort
from controller.model.views import Drain, PartitionView, PodView
from controller.planner.inventory.stock import Ineligible
from partitioning.resources import WHOLE
from tests.controller.explanation.scenarios.scenario import SPARE, A, Scenario, alone, with_plan
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server

WAITS, NO_CAPACITY = UnplacedReason.WAITS_FOR_RELEASE, UnplacedReason.NO_CAPACITY
LACKS, GANG = UnplacedReason.NO_NODE_RESOURCES, UnplacedReason.GANG_WAITS
FREE = server("n1", mig())
HELD = server("n1", mig(used=[("7g.40gb", 0)]))
SPLIT = server("n1", mig(used=[("1g.5gb", 1), ("1g.5gb", 5)]))
MISPLACED = server("n1", mig(used=[("3g.20gb", 0)]))
WHOLE_HELD = server(
    "n1", replace(mps(), partitions=(PartitionView(resource=WHOLE, state="Used", pod="team/holder"),)),
    partitioning="mps",
)  # fmt: skip
SLICES = server("n1", mps(used_gb=[30]), partitioning="mps")
FIRST = pod("first", "7g.40gb", priority=1)
THREE, FOUR = pod("a", "3g.20gb"), pod("a", "4g.20gb")
BUSY = pod("busy", cpu=190_000, node_name="n1")
FULL = pod("full", cpu=190_000, memory_gib=2000, node_name="n1")
SHARED_MPS = server("n1", mps(idle_gb=[10]), partitioning="mps")
PORT = replace(A, host_ports=(HostPort(port=8080),))
ON_PORT = replace(pod("busy", node_name="n1"), host_ports=(HostPort(port=8080),))
AGED = replace(pod("old", "7g.40gb", created=1))
OLD_HOLDER = server("n1", mig(used=[("1g.5gb", 0)]))
LATER = replace(holder("n1", "1g.5gb"), created=5)
_IDS = tuple(part.id for part in OLD_HOLDER[1].gpus[0].partitions)
_DRAIN = Drain(uid=AGED.uid, pod=AGED.key, partitions=_IDS)
DRAINED = with_plan(OLD_HOLDER, planned=tuple(replace(item, drain=_DRAIN) for item in OLD_HOLDER[1].planned))


def member(name: str, profile: str = "1g.5gb", size: int = 2) -> PodView:
    return pod(name, profile, gang="team", gang_size=size)


ON_HALF = holder("n1", "3g.20gb")
HALVES = [member("a", "3g.20gb"), member("b", "3g.20gb")]
WHOLES = [member("a", "7g.40gb"), member("b", "7g.40gb")]

TABLE = (
    Scenario(
        reason=WAITS,
        what="every suitable GPU is in use",
        before=cluster(HELD, pods=[holder("n1", "7g.40gb")], pending=[A]),
        remedy="The pod starts when enough is released",
        done="its holder ends",
        after=alone(FREE),
    ),
    Scenario(
        reason=WAITS,
        what="every suitable GPU is in use",
        before=cluster(HELD, pods=[holder("n1", "7g.40gb")], pending=[A]),
        remedy="add a GPU node",
        done="add one",
        after=cluster(HELD, SPARE, pods=[holder("n1", "7g.40gb")], pending=[A]),
    ),
    Scenario(
        reason=WAITS,
        what="the memory of GPUs is in use by slices",
        before=cluster(SLICES, pods=[holder("n1", "30gb")], pending=[pod("a", "20gb")]),
        remedy="The pod starts when enough is released",
        done="the holder ends",
        after=alone(server("n1", mps(), partitioning="mps"), pod("a", "20gb")),
    ),
    Scenario(
        reason=WAITS,
        what="a whole GPU is requested, and pods have all of them",
        before=cluster(WHOLE_HELD, pods=[holder("n1", WHOLE)], pending=[pod("a", WHOLE)]),
        remedy="The pod starts when enough are released",
        done="the holder ends",
        after=alone(server("n1", mps(), partitioning="mps"), pod("a", WHOLE)),
    ),
    Scenario(
        reason=WAITS,
        what="a slice is requested, and a pod has the GPU whole",
        before=cluster(WHOLE_HELD, pods=[holder("n1", WHOLE)], pending=[pod("a", "10gb")]),
        remedy="The pod starts when these are released",
        done="the holder ends",
        after=alone(server("n1", mps(), partitioning="mps"), pod("a", "10gb")),
        cause=Ineligible.HELD_WHOLE,
    ),
    Scenario(
        reason=WAITS,
        what="it has waited long, so a GPU is drained for it",
        before=replace(
            cluster(OLD_HOLDER, pods=[LATER], pending=[pod("a", "7g.40gb")]),
            aged=frozenset({"uid-a"}),
            drained_for=frozenset({"uid-a"}),
        ),
        remedy="The pod starts when those that hold one have finished",
        done="the holder ends",
        after=replace(alone(FREE, pod("a", "7g.40gb")), aged=frozenset({"uid-a"})),
    ),
    Scenario(
        reason=UnplacedReason.FRAGMENTED,
        what="enough is free, in pieces",
        before=cluster(SPLIT, pods=[holder("n1", ("1g.5gb", 2))], pending=[THREE]),
        remedy="The pod starts when enough is released",
        done="one of the holders that the details name ends",
        after=cluster(server("n1", mig(used=[("1g.5gb", 5)])), pods=[holder("n1", "1g.5gb")], pending=[THREE]),
    ),
    Scenario(
        reason=UnplacedReason.FRAGMENTED,
        what="enough is free, where the profile may not start",
        before=cluster(MISPLACED, pods=[holder("n1", "3g.20gb")], pending=[FOUR]),
        remedy="The pod starts when enough is released",
        done="the holder at the start ends",
        after=alone(FREE, FOUR),
    ),
    Scenario(
        reason=NO_CAPACITY,
        what="a pod of higher priority gets the GPU",
        before=cluster(FREE, pending=[FIRST, A]),
        remedy="add a GPU node",
        done="add one",
        after=cluster(FREE, SPARE, pending=[FIRST, A]),
    ),
    Scenario(
        reason=NO_CAPACITY,
        what="the only GPU is drained for a pod that has waited long",
        before=replace(cluster(DRAINED, pods=[LATER], pending=[AGED, A]), aged=frozenset({AGED.uid})),
        remedy="add a GPU node",
        done="add one",
        after=replace(
            cluster(DRAINED, SPARE, server("spare-2", mig()), pods=[LATER], pending=[AGED, A]),
            aged=frozenset({AGED.uid}),
        ),
        cause=Ineligible.DRAINED,
    ),
    Scenario(
        reason=LACKS,
        what="the node of the GPU has too little CPU left",
        before=cluster(FREE, pods=[BUSY], pending=[pod("a", "1g.5gb", cpu=8000)]),
        remedy="Request less",
        done="request what the details say is left",
        after=cluster(FREE, pods=[BUSY], pending=[pod("a", "1g.5gb", cpu=2000)]),
    ),
    Scenario(
        reason=LACKS,
        what="a pod on the node has its host port",
        before=cluster(FREE, pods=[ON_PORT], pending=[PORT]),
        remedy="Use another host port",
        done="use another one",
        after=cluster(FREE, pods=[ON_PORT], pending=[replace(A, host_ports=(HostPort(port=8081),))]),
    ),
    Scenario(
        reason=GANG,
        what="a pod of its gang does not exist yet",
        before=cluster(FREE, pending=[member("a")]),
        remedy="It is planned when all exist.",
        done="create the other pod",
        after=cluster(FREE, pending=[member("a"), member("b")]),
    ),
    Scenario(
        reason=GANG,
        what="there is no room for the whole gang",
        before=cluster(MISPLACED, pods=[ON_HALF], pending=HALVES),
        remedy="add a GPU node",
        done="add one",
        after=cluster(MISPLACED, SPARE, pods=[ON_HALF], pending=HALVES),
    ),
    Scenario(
        reason=GANG,
        what="its gang is too large for all GPUs, even if they were empty",
        before=cluster(FREE, pending=WHOLES),
        remedy="Make the group smaller, or add a GPU node.",
        done="add one",
        after=cluster(FREE, SPARE, pending=WHOLES),
    ),
    Scenario(
        reason=LACKS,
        what="the node of the GPU has too little CPU and memory left",
        before=cluster(FREE, pods=[FULL], pending=[pod("a", "1g.5gb", cpu=8000, memory_gib=64)]),
        remedy="the pod requests 8 CPUs and 64 GiB of memory. Request less",
        done="request what the details say is left",
        after=cluster(FREE, pods=[FULL], pending=[pod("a", "1g.5gb", cpu=2000, memory_gib=48)]),
    ),
    Scenario(
        reason=WAITS,
        what="it is a gang of its own, and there is no room",
        before=cluster(HELD, pods=[holder("n1", "7g.40gb")], pending=[member("a", size=1)]),
        remedy="The pod starts when enough is released",
        done="the holder ends",
        after=cluster(FREE, pending=[member("a", size=1)]),
    ),
    Scenario(
        reason=UnplacedReason.BLOCKED,
        what="a gang whose pods no node may serve",
        before=cluster((FREE[0], replace(FREE[1], paused=True)), pending=[member("a"), member("b")]),
        remedy="Ask the owner of the plan to resume it.",
        done="resume it",
        after=cluster(FREE, pending=[member("a"), member("b")]),
    ),
    Scenario(
        reason=UnplacedReason.BLOCKED,
        what="a whole GPU is requested, and pods have instances on all of them",
        before=cluster(
            server("n1", mig(used=[("1g.5gb", 0)])), pods=[holder("n1", "1g.5gb")], pending=[pod("a", WHOLE)]
        ),
        remedy="turn MIG mode off on a GPU",
        done="turn it off, once the holder has ended",
        after=alone(server("n1", mps(), partitioning="mps"), pod("a", WHOLE)),
    ),
    Scenario(
        reason=UnplacedReason.BLOCKED,
        what="a whole GPU is requested, and the plan of the node is paused",
        before=alone((SHARED_MPS[0], replace(SHARED_MPS[1], paused=True)), pod("a", WHOLE)),
        remedy="Ask the owner of the plan to resume it.",
        done="resume it",
        after=alone(SHARED_MPS, pod("a", WHOLE)),
    ),
)
