"""Pods whose GPUs are left out of planning, a scenario for each cause."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PartitionView
from controller.planner.inventory.stock import Ineligible
from crds.v1alpha1.names import CLOSED, LABEL_DRIVER, GpuState, Mode
from partitioning.resources import WHOLE
from tests.builders.models import A100
from tests.controller.explanation.scenarios.scenario import (
    A,
    Scenario,
    Server,
    alone,
    with_gpu,
    with_node,
    with_plan,
)
from tests.controller.planner.builders import cluster, holder, layout, mig, mps, pod, server

BLOCKED, AWAITING = UnplacedReason.BLOCKED, UnplacedReason.AWAITING_AGENT
WAITS, CHANGING = UnplacedReason.WAITS_FOR_RELEASE, UnplacedReason.CHANGE_UNDER_WAY
FREE = server("n1", mig())
MPS = server("n1", mps(), partitioning="mps")
SLICE, LARGE = pod("a", "10gb"), pod("a", "7g.40gb")
IDLE = server("n1", mig(idle=[("1g.5gb", 0)]))
"""With the partition that was missing."""
BARE = replace(A100, confirmed=False, profiles=tuple(replace(spec, starts=()) for spec in A100.profiles))
DOUBTFUL = replace(A100, confirmed=False)
HELD_BY_OTHERS = server("n1", replace(mps(), partitions=mig(used=[("1g.5gb", 0)]).partitions), partitioning="mps")
UNKNOWN_WHOLE = replace(mps(), partitions=(PartitionView(resource=WHOLE, state="Unknown"),))
SHARES = with_node(MPS, mps_replicas=4)


def scenario(  # noqa: PLR0917 - a row of the table below
    cause: Ineligible,
    reason: UnplacedReason,
    before: Snapshot | Server,
    remedy: str,
    done: str,
    after: Snapshot | Server = FREE,
) -> Scenario:
    first, then = (one if isinstance(one, Snapshot) else alone(one) for one in (before, after))
    return Scenario(
        reason=reason,
        what=f"left out of planning: {cause.value}",
        before=first,
        remedy=remedy,
        done=done,
        after=then,
        cause=cause,
    )


TABLE = (
    scenario(
        Ineligible.NOT_ENABLED, BLOCKED, with_node(FREE, partitioning=None),
        "label the node gpuplan.dev/gpu-partitioning=mig", "label it",
    ),
    scenario(
        Ineligible.OTHER_LABEL, BLOCKED, with_node(FREE, partitioning="mps"),
        "for a node that serves this kind of partition", "label a node for MIG",
    ),
    scenario(Ineligible.MANUAL, BLOCKED, with_plan(FREE, mode=Mode.MANUAL), "Add the partition to", "pin it", IDLE),
    scenario(Ineligible.PAUSED, BLOCKED, with_plan(FREE, paused=True), "to resume it", "resume it"),
    scenario(
        Ineligible.HELD_OFF, BLOCKED, with_node(FREE, labels={LABEL_DRIVER: CLOSED}),
        "whether that label was forgotten", "remove the label",
    ),
    scenario(
        Ineligible.PINNED, BLOCKED, server("n1", mig(idle=[("3g.20gb", 0)], pinned=True)),
        "Add the partition there", "pin it there",
        server("n1", mig(idle=[("3g.20gb", 0), ("1g.5gb", 4)], pinned=True)),
    ),
    scenario(
        Ineligible.SHARED_EQUALLY, BLOCKED, alone(SHARES, SLICE),
        "nvidia.com/gpu.shared. Request that, or ask an administrator to label the node gpuplan.dev/mps-replicas=0",
        "label it", alone(with_node(MPS, mps_replicas=0), SLICE),
    ),
    scenario(
        Ineligible.WRITE_REFUSED, BLOCKED, with_plan(FREE, write_refused="forbidden"), "allow the write", "allow it"
    ),
    scenario(
        Ineligible.BY_NVIDIA, BLOCKED, alone(with_plan(MPS, by_nvidia=True), SLICE),
        "for a node with devicePlugin.backend gpuplan", "set it", alone(MPS, SLICE),
    ),
    scenario(
        Ineligible.NODE_NOT_READY, BLOCKED, with_node(FREE, ready=False), "check the conditions of the node",
        "mend the node",
    ),
    scenario(
        Ineligible.MIG_MODE_DISABLED, UnplacedReason.MIG_MODE_DISABLED, with_gpu(FREE, mig_enabled=False),
        "`nvidia-smi -i 0 -mig 1`", "run it",
    ),
    scenario(
        Ineligible.MIG_MODE_ENABLED, BLOCKED, alone(with_gpu(MPS, mig_enabled=True), SLICE),
        "`nvidia-smi -i 0 -mig 0`", "run it", alone(MPS, SLICE),
    ),
    scenario(
        Ineligible.FAILED, BLOCKED, with_gpu(FREE, settled=False, state=GpuState.FAILED, reason="Unhealthy"),
        "check status.gpus", "reset the GPU, as its reason there says",
    ),
    scenario(
        Ineligible.BACKING_OFF, BLOCKED, with_gpu(FREE, backing_off=True), "are retried automatically", "wait"
    ),
    scenario(
        Ineligible.NO_PLACEMENT, BLOCKED,
        with_gpu(FREE, partitions=(PartitionView(resource="nvidia.com/mig-1g.5gb", profile="1g.5gb"),)),
        "check status.gpus", "reset the GPU",
    ),
    scenario(
        Ineligible.UNKNOWN_MODEL, UnplacedReason.NEVER_FITS,
        with_gpu(with_node(FREE, product="NVIDIA-Z9"), model=None), "check status.models",
        "the agent reports the model",
    ),
    scenario(
        Ineligible.NO_MIG_PLACEMENTS, BLOCKED, with_gpu(FREE, model=DOUBTFUL), "Request an MPS slice or a whole GPU",
        "request a slice, where a node is labelled for it", alone(with_gpu(MPS, model=DOUBTFUL), SLICE),
    ),
    scenario(
        Ineligible.NOT_REPORTED, AWAITING, with_plan(FREE, gpus=()), "check the agent's pod", "the agent reports",
    ),
    scenario(
        Ineligible.NO_PLAN, AWAITING, Snapshot(nodes=(FREE[0],), pending=(A,)), "check the node agent's pod",
        "the agent starts",
    ),
    scenario(Ineligible.AGENT_SILENT, AWAITING, with_plan(FREE, agent_alive=False), "check the agent's pod", "mend it"),
    scenario(
        Ineligible.USE_UNKNOWN, AWAITING,
        alone(server("n1", UNKNOWN_WHOLE, partitioning="mps"), SLICE), "check status.gpus",
        "the agent finds it free", alone(MPS, SLICE),
    ),
    scenario(
        Ineligible.CHANGING, CHANGING,
        alone(with_gpu(server("n1", mig(desired=MigDesired(layout=layout(A100, ("1g.5gb", 0))))), settled=False,
                       under_way=True, state=GpuState.CHANGING), LARGE),
        "will be reconsidered when that is done", "it settles", alone(IDLE, LARGE),
    ),
    scenario(
        Ineligible.WAITING, WAITS,
        cluster(with_gpu(server("n1", mig(used=[("3g.20gb", 0)])), settled=False,
                         state=GpuState.WAITING_FOR_RELEASE, desired=MigDesired(layout=layout(A100))),
                pods=[holder("n1", "3g.20gb")], pending=[LARGE]),
        "The pod starts when these are released", "the holder ends", alone(FREE, LARGE),
    ),
    scenario(
        Ineligible.FOREIGN, WAITS, cluster(HELD_BY_OTHERS, pods=[holder("n1", "1g.5gb")], pending=[SLICE]),
        "The pod starts when these are released", "the holder ends", alone(MPS, SLICE),
    ),
)  # fmt: skip
