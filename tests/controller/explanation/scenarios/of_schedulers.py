"""Pods that their scheduler holds back or keeps off nodes."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.scheduling import (
    ClaimUse,
    ClaimView,
    LabelSelector,
    PodAffinityTerm,
    Requirement,
    SchedulingContext,
    VolumeView,
)
from tests.controller.explanation.scenarios.scenario import A, Scenario, alone, with_node, with_plan
from tests.controller.planner.builders import cluster, holder, mig, pod, server

FILTERED = UnplacedReason.FILTERED_BY_SCHEDULER
FREE = server("n1", mig(), labels={"kubernetes.io/hostname": "n1", "zone": "b"})
TAINTED = server("n1", mig(), taints=["team"])
TWICE = server("n1", mig(), taints=["team", "gpu"])
FULL = server("n2", mig(used=[("7g.40gb", 0)]), labels={"kubernetes.io/hostname": "n2"})
NEIGHBOUR = pod("neighbour", node_name="n1", labels=(("app", "x"),))
APART = replace(
    A,
    anti_affinity=(
        PodAffinityTerm(
            selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("x",)),)),
            topology_key="kubernetes.io/hostname",
            namespaces=("team",),
        ),
    ),
)
WITH_CLAIM = replace(A, volumes=(ClaimUse(claim="nope"),))
BOUND = SchedulingContext(
    claims={("team", "nope"): ClaimView(volume="v", bound=True)}, volumes={"v": VolumeView()}, storage_classes={}
)
ZONE = Requirement(key="zone", operator="In", values=("a",))
RIGHT_ZONE = Requirement(key="zone", operator="In", values=("b",))

TABLE = (
    Scenario(
        reason=FILTERED,
        what="the node has a taint",
        before=alone(TAINTED),
        remedy="Add a toleration for it to the pod.",
        done="add it",
        after=alone(TAINTED, pod("a", "1g.5gb", tolerates=["team"])),
    ),
    Scenario(
        reason=FILTERED,
        what="the node has two taints",
        before=alone(TWICE),
        remedy="Add a toleration for each to the pod.",
        done="add them",
        after=alone(TWICE, pod("a", "1g.5gb", tolerates=["team", "gpu"])),
    ),
    Scenario(
        reason=FILTERED,
        what="it selects a label that no node has",
        before=alone(FREE, pod("a", "1g.5gb", selector={"zone": "a"})),
        remedy="Change the pod's node selector.",
        done="select a node that exists",
        after=alone(FREE, pod("a", "1g.5gb", selector={"zone": "b"})),
    ),
    Scenario(
        reason=FILTERED,
        what="its node affinity excludes the node",
        before=alone(FREE, pod("a", "1g.5gb", affinity=[ZONE])),
        remedy="Change the pod's node affinity.",
        done="name the zone of the node",
        after=alone(FREE, pod("a", "1g.5gb", affinity=[RIGHT_ZONE])),
    ),
    Scenario(
        reason=FILTERED,
        what="the node is cordoned",
        before=alone(with_node(FREE, unschedulable=True)),
        remedy="ask an administrator to uncordon it",
        done="uncordon it",
        after=alone(FREE),
    ),
    Scenario(
        reason=UnplacedReason.SCHEDULING_GATED,
        what="the pod has a scheduling gate",
        before=alone(FREE, replace(A, scheduling_gates=("kueue.x-k8s.io/admission",))),
        remedy="Waiting for its scheduling gates (kueue.x-k8s.io/admission) to be removed.",
        done="Kueue admits the pod and removes it",
        after=alone(FREE),
    ),
    Scenario(
        reason=UnplacedReason.PREEMPTING,
        what="its scheduler evicts others for it",
        before=alone(FREE, replace(A, nominated_node="n1")),
        remedy="Wait",
        done="the scheduler gives up, or binds it",
        after=alone(FREE),
    ),
    Scenario(
        reason=FILTERED,
        what="another pod keeps it off the node that has room, and the others are in use",
        before=cluster(FREE, FULL, pods=[NEIGHBOUR, holder("n2", "7g.40gb")], pending=[APART]),
        remedy="Change the pod's affinity",
        done="remove the anti-affinity",
        after=cluster(FREE, FULL, pods=[NEIGHBOUR, holder("n2", "7g.40gb")], pending=[A]),
    ),
    Scenario(
        reason=FILTERED,
        what="another pod keeps it off every node",
        before=cluster(FREE, pods=[NEIGHBOUR], pending=[APART]),
        remedy="Change the pod's affinity",
        done="remove the anti-affinity",
        after=cluster(FREE, pods=[NEIGHBOUR], pending=[A]),
    ),
    Scenario(
        reason=FILTERED,
        what="its volume claim does not exist",
        before=replace(alone(FREE, WITH_CLAIM), context=SchedulingContext(claims={}, volumes={}, storage_classes={})),
        remedy="Create the claim nope.",
        done="create it",
        after=replace(alone(FREE, WITH_CLAIM), context=BOUND),
    ),
    Scenario(
        reason=FILTERED,
        what="the node has a taint, and its plan is paused",
        before=alone(with_plan(TAINTED, paused=True)),
        remedy="to the pod. Changes to node n1 are paused (gpupartitionplan/n1, spec.paused). Ask the owner",
        done="add the toleration, and resume the plan",
        after=alone(TAINTED, pod("a", "1g.5gb", tolerates=["team"])),
    ),
    Scenario(
        reason=FILTERED,
        what="its partitions were ready twice, and it was not bound",
        before=replace(alone(FREE), bind_failures={"uid-a": "n1"}),
        remedy="It is planned again later.",
        done="wait",
        after=alone(FREE),
    ),
)
