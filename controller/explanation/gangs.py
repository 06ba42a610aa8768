"""Why a gang waits: pods of it are missing, or there are too few places for the whole.

Takes what the planner found about gangs, returns answers. Never decides anything.
"""

from controller.explanation.phrases import Answer
from controller.model.reasons import UnplacedReason
from controller.model.views import PodView
from controller.planner.placement.gangs import Gangs, Incomplete, key_of


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
