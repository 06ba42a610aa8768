"""Pods that planning itself cannot serve: they cost too much, or their data, or that of others, is odd."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement
from controller.planner.effort import OWN_VISITS
from tests.controller.explanation.scenarios.scenario import A, Scenario, alone
from tests.controller.odd.unreadable import ODD
from tests.controller.planner.builders import cluster, holder, mig, pod, server

NOT_SERVED = UnplacedReason.NOT_SERVED
FREE = server("n1", mig(), labels={"kubernetes.io/hostname": "n1"}, pods=2_000)


def _away_from(operator: str, *values: str) -> PodAffinityTerm:
    return PodAffinityTerm(
        selector=LabelSelector(requirements=(Requirement(key="app", operator=operator, values=values),)),
        topology_key="kubernetes.io/hostname",
        namespaces=("team",),
    )


CROWD = [pod(f"web-{number}", node_name="n1", cpu=0, memory_gib=0, labels=(("app", "web"),)) for number in range(1_000)]
MANY = replace(A, anti_affinity=(_away_from("NotIn", "web"),) * (OWN_VISITS // len(CROWD) + 1))
"""No index serves its terms: each of them has to be compared with every pod of the namespace."""
FEW = replace(A, anti_affinity=(_away_from("In", "db"),))
DATABASE = pod("db", node_name="n2", labels=(("app", "db"),))
BAD = [replace(pod(f"bad-{number}", "1g.5gb"), node_selector=ODD) for number in range(4)]

TABLE = (
    Scenario(
        reason=NOT_SERVED,
        what="its affinity has to be compared with too many pods",
        before=cluster(FREE, pods=CROWD, pending=[MANY]),
        remedy="Use fewer terms, and In with few values in place of NotIn and Exists.",
        done="use one term, with In",
        after=cluster(FREE, pods=CROWD, pending=[FEW]),
    ),
    Scenario(
        reason=UnplacedReason.NO_CAPACITY,
        what="the pass had no work or no time left to examine the pod",
        before=cluster(FREE, pods=[DATABASE], pending=[FEW]),
        remedy="Wait,",
        done="the next pass has time",
        after=cluster(FREE, pods=[DATABASE], pending=[FEW]),
        late=True,
    ),
    Scenario(
        reason=NOT_SERVED,
        what="planning the pod raised an error",
        before=alone(FREE, replace(A, node_selector=ODD)),
        remedy="Ask an administrator to report the traceback in the controller's log together with this pod.",
        done="the error that was reported is mended",
        after=alone(FREE, replace(A, node_selector=())),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="planning four other pods of its namespace raised errors",
        before=cluster(FREE, pending=[A, *BAD]),
        remedy="to check in the controller's log which pods these are, and to delete them.",
        done="delete them",
        after=cluster(FREE, pending=[A]),
    ),
    Scenario(
        reason=UnplacedReason.WAITS_FOR_RELEASE,
        what="a pod on the node holds a device that is gone",
        before=cluster(FREE, pods=[holder("n1", "1g.5gb")], pending=[A]),
        remedy="The pod starts when those whose device is gone are deleted; or add a GPU node.",
        done="delete that pod",
        after=cluster(FREE, pending=[A]),
    ),
)
