"""Changes of plans as the planner returns them, and a writer that writes them to the API server of a bench."""

from collections.abc import Iterable
from typing import Any

from controller.actions.plan_writer import Outcome, Writer
from controller.api.plan_items import desired_of
from controller.model.results import NodeChange, Placed, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannedGpu
from crds.v1alpha1 import paths
from crds.v1alpha1.spec import GpuItem
from kube import apply
from tests.builders.models import H100
from tests.builders.objects import Json, gpu, node, partition, status
from tests.controller.cluster import ApiCluster, Bench


def planned(raw: Json) -> PlannedGpu:
    desired = desired_of(GpuItem.read(raw), model=H100, memory_mib=81559)
    return PlannedGpu(index=raw["index"], uuid=raw["uuid"], desired=desired)


def change(*items: Json, name: str = "n1", changed: tuple[int, ...] | None = None) -> NodeChange:
    indexes = tuple(raw["index"] for raw in items) if changed is None else changed
    return NodeChange(node=name, gpus=tuple(planned(raw) for raw in items), changed=indexes)


def writer(bench: Bench) -> Writer:
    return Writer(bench.environment)


def write(
    bench: Bench, *changes: NodeChange, snapshot: Snapshot | None = None, placed: Iterable[Placed] = ()
) -> list[Outcome]:
    """Write these changes, planned from this snapshot, without one from what the state knows now."""
    result = PlanningResult(node_changes=changes, placed=tuple(placed))
    return list(writer(bench).write(result, snapshot or bench.state.cluster.snapshot()))


def ready(bench: Bench, **spec: Any) -> None:
    """One enabled node and its plan, known to the state."""
    bench.cluster.node(node())
    bench.cluster.plan(**spec)
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged", partitions=[partition(0)])))
    bench.load()


def plan_edited(cluster: ApiCluster) -> None:
    cluster.pin("n1", {"index": 0, "whole": {}})


def plan_deleted(cluster: ApiCluster) -> None:
    apply.delete(cluster.api, paths.plan("n1"))


def plan_recreated(cluster: ApiCluster) -> None:
    plan_deleted(cluster)
    cluster.plan()
