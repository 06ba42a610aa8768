"""Why a gang waits: pods of it are missing, or there are too few places for the whole.

Takes what the planner found about gangs, returns answers. Never decides anything.
"""

from collections.abc import Sequence

from controller.explanation.capability import most_together
from controller.explanation.phrases import Answer
from controller.model.demand import Demand
from controller.model.reasons import UnplacedReason
from controller.model.views import PodView
from controller.planner.inventory.combinations import most_examined
from controller.planner.inventory.stock import NodeStock
from controller.planner.placement.gangs import Gangs, Incomplete, key_of
from controller.simulator.affinity import selects_itself


def about_incomplete(one: Incomplete) -> Answer:
    return Answer(
        UnplacedReason.GANG_WAITS,
        f"Pod group {one.pod.gang} has {one.present} of the {one.total} pods that it needs to start. "
        "It is planned when all exist.",
    )


def about_broken(pod: PodView, gangs: Gangs) -> Answer | None:
    """None where the pod's gang, if any, is not the reason: a gang of one waits as any pod does."""
    gang = key_of(pod)
    if gang is None or gang not in gangs.found or gangs.needs[gang] < 2:
        return None
    return Answer(
        UnplacedReason.GANG_WAITS,
        f"Pod group {pod.gang} needs places for {gangs.needs[gang]} pods at once; only {gangs.found[gang]} can be "
        "provided. Wait for running pods to finish, or add a GPU node.",
    )


def about_too_unlike(members: Sequence[Demand], nodes: int) -> Answer | None:
    """None where a pass on so many nodes can examine the gang: it has its turn as a whole, or none."""
    unlike, most = len({member.wants for member in members if member.single is None}), most_examined(nodes)
    if unlike <= most:
        return None
    return Answer(
        UnplacedReason.GANG_WAITS,
        f"The pods of group {members[0].pod.gang} request {unlike} unlike combinations of partitions, and a planning "
        f"pass examines {most} at most. Let them request {most} or fewer, or one partition each.",
    )


def about_too_large(members: Sequence[Demand], gangs: Gangs, stocks: Sequence[NodeStock]) -> Answer | None:
    """None where it cannot be proved that these nodes, which alone could hold a member, hold too few of them empty."""
    gang, needed = members[0].pod.gang, gangs.needs[members[0].pod.namespace, members[0].pod.gang]
    wants = [member.wants for member in members]
    most = max((most_together(together, wants) for together in _domains(members, stocks)), default=0)
    if most >= needed:
        return None
    return Answer(
        UnplacedReason.GANG_WAITS,
        f"Pod group {gang} needs places for {needed} pods at once, and the GPUs that it may use together have room "
        f"for {most} even when they are empty. Make the group smaller, or add a GPU node.",
    )


def _domains(members: Sequence[Demand], stocks: Sequence[NodeStock]) -> list[list[NodeStock]]:
    """Nodes among which all must run: those of one zone or rack, where alike pods must stay with each other."""
    pod = members[0].pod
    key = next((term.topology_key for term in pod.affinity if selects_itself(term, pod)), "")
    terms = {(member.pod.affinity, member.pod.labels) for member in members}
    if not key or len(terms) > 1:
        return [list(stocks)]
    found: dict[str, list[NodeStock]] = {}
    for stock in stocks:
        if (value := stock.node.labels.get(key)) is not None:
            found.setdefault(value, []).append(stock)
    return list(found.values())
