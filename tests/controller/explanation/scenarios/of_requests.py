"""Pods whose request is the reason: it never fits, or is not served."""

from dataclasses import replace

from controller.config.geometries_file import read_geometries
from controller.model.reasons import UnplacedReason
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from partitioning.resources import SHARED, WHOLE
from tests.builders.models import H100, MODELS, T4
from tests.controller.explanation.scenarios.scenario import A, Scenario, alone
from tests.controller.planner.builders import cluster, mig, mps, node, pod, server

B200 = MODELS["B200-180GB"]
ALLOWS_HALVES = PlannerOptions(
    geometries=read_geometries([{"models": ["A100-SXM4-40GB"], "allowedGeometries": [{"3g.20gb": 2}]}])
)
NEVER, NOT_SERVED = UnplacedReason.NEVER_FITS, UnplacedReason.NOT_SERVED
SMALL = server("m1", mps(gpu_model=T4), partitioning="mps")
MIG, MPS = server("n1", mig()), server("n1", mps(), partitioning="mps")


def requesting(*partitions: str | tuple[str, int], **fields: object) -> Snapshot:
    return alone(MIG, pod("a", *partitions, **fields))  # type: ignore[arg-type]  # passed on by name


TABLE = (
    Scenario(
        reason=NEVER,
        what="no GPU has the profile",
        before=requesting("1g.10gb+gfx"),
        remedy="Request one of these, or add a node that offers it.",
        done="request a profile of the list",
        after=requesting("1g.10gb"),
    ),
    Scenario(
        reason=NEVER,
        what="no GPU has a slice of this size",
        before=alone(MPS, pod("a", "100gb")),
        remedy="Request less.",
        done="request the slice that the message names",
        after=alone(MPS, pod("a", "41gb")),
    ),
    Scenario(
        reason=NEVER,
        what="slices are requested that only GPUs of a node for MIG could hold",
        before=cluster(MIG, SMALL, pending=[pod("a", "100gb")]),
        remedy="the largest slice is nvidia.com/gpu-15gb (Tesla-T4). Request less.",
        done="request the slice that the message names",
        after=cluster(MIG, SMALL, pending=[pod("a", "15gb")]),
    ),
    Scenario(
        reason=NEVER,
        what="a slice is requested that no GPU has, and no node is labelled for slices",
        before=requesting("100gb"),
        remedy="Add a node that offers it, labelled for this kind of partition.",
        done="add a node with larger GPUs, for slices",
        after=cluster(MIG, server("m1", mps(gpu_model=B200), partitioning="mps"), pending=[pod("a", "100gb")]),
    ),
    Scenario(
        reason=NEVER,
        what="a profile is requested that only a GPU of a node for slices comes near to",
        before=cluster(server("m1", mps(gpu_model=H100), partitioning="mps"), MIG, pending=[pod("a", "1g.18gb")]),
        remedy="1g.18gb: NVIDIA-A100-SXM4-40GB offers",
        done="request a profile of the list",
        after=cluster(server("m1", mps(gpu_model=H100), partitioning="mps"), MIG, pending=[A]),
    ),
    Scenario(
        reason=NEVER,
        what="more partitions than any node holds",
        before=requesting(("7g.40gb", 2)),
        remedy="Request fewer.",
        done="request as many as the message names",
        after=requesting("7g.40gb"),
    ),
    Scenario(
        reason=NEVER,
        what="two kinds of partitions that no node has together",
        before=alone(MIG, replace(pod("a", "1g.5gb", "10gb"), most_mps_per_container=1)),
        remedy="Request them in several pods.",
        done="leave one of the kinds to another pod",
        after=requesting("1g.5gb"),
    ),
    Scenario(
        reason=NEVER,
        what="more CPU than any such node has",
        before=requesting("1g.5gb", cpu=200_000),
        remedy="Request less.",
        done="request as much CPU as the message names",
        after=requesting("1g.5gb", cpu=192_000),
    ),
    Scenario(
        reason=NEVER,
        what="no node is known to have GPUs",
        before=Snapshot(nodes=(node("n1", partitioning=None, product=""),), pending=(A,)),
        remedy="label a GPU node gpuplan.dev/gpu-partitioning=mig, mps or auto",
        done="label the node; its agent then reports the GPUs",
        after=alone(MIG),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="the name of the resource is misspelt",
        before=alone(MIG, replace(pod("a"), misnamed=("nvidia.com/mig-1g.5bg",))),
        remedy="Did you mean nvidia.com/mig-1g.5gb?",
        done="request that resource",
        after=requesting("1g.5gb"),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="equal shares are requested, and no node has any",
        before=alone(MPS, pod("a", SHARED)),
        remedy="request nvidia.com/gpu-<N>gb",
        done="request a slice",
        after=alone(MPS, pod("a", "10gb")),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="another scheduler handles the pod",
        before=requesting("1g.5gb", scheduler_name="batch"),
        remedy="Ask an administrator to add it.",
        done="add the scheduler to `schedulerNames`",
        after=replace(
            requesting("1g.5gb", scheduler_name="batch"), scheduler_names=frozenset({"default-scheduler", "batch"})
        ),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="the pod has resource claims",
        before=requesting("1g.5gb", claims=True),
        remedy="Request the partition in resources.limits alone.",
        done="remove the claims",
        after=requesting("1g.5gb"),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="one container requests two slices",
        before=alone(MPS, pod("a", ("10gb", 2), most_mps=2)),
        remedy="use several containers",
        done="request them in two containers",
        after=alone(MPS, pod("a", ("10gb", 2))),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="one container requests a slice and something else",
        before=alone(MPS, pod("a", "10gb", mixed_container=("nvidia.com/gpu-10gb", WHOLE))),
        remedy="Request one kind",
        done="request the slice alone",
        after=alone(MPS, pod("a", "10gb")),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="a container sets the variables of its slice itself",
        before=alone(MPS, pod("a", "10gb", overriding_container="main")),
        remedy="Remove them from its env.",
        done="remove them",
        after=alone(MPS, pod("a", "10gb")),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="a slice of no memory",
        before=alone(MPS, pod("a", "nvidia.com/gpu-0gb")),
        remedy="Request nvidia.com/gpu-<N>gb.",
        done="request a slice of 1 GB",
        after=alone(MPS, pod("a", "1gb")),
    ),
    Scenario(
        reason=NOT_SERVED,
        what="units of memory are requested, and no node has them",
        before=alone(MPS, pod("a", ("aliyun.com/gpu-mem", 8))),
        remedy="request nvidia.com/gpu-9gb: 1",
        done="request that slice",
        after=alone(MPS, pod("a", "9gb")),
    ),
    Scenario(
        reason=UnplacedReason.BLOCKED,
        what="`knownMigGeometriesFile` does not allow the profile",
        before=requesting("7g.40gb"),
        options=ALLOWS_HALVES,
        remedy="Request one of these",
        done="request a profile of the list",
        after=requesting("3g.20gb"),
        cause=None,
    ),
    Scenario(
        reason=UnplacedReason.BLOCKED,
        what="`knownMigGeometriesFile` does not allow the profile",
        before=requesting("7g.40gb"),
        options=ALLOWS_HALVES,
        remedy="ask an administrator to allow it",
        done="allow it",
        after=requesting("7g.40gb"),
        after_options=PlannerOptions(),
    ),
)
