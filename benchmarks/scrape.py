"""How many series a scrape brings and how long it takes: `python -m benchmarks.scrape --nodes N --gpus G`.

Fills the controller's state with N nodes of G GPUs, each with its eleven conditions, and one agent with G GPUs of seven
instances in use. Prints series, size of the page, and the time to make it: the first one, which counts every node, and
the least of the following ones. Starts no server.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from benchmarks.idle_turn import filled, reading_of
from benchmarks.instances import MIXES, instance
from controller.actions.cluster_gauges import ClusterGauges
from controller.actions.metrics import Metrics
from controller.cache.batcher import Batcher
from controller.cache.state import State
from crds.v1alpha1.names import Condition, GpuState, PartitionState, Reason
from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import ComputeInstance, GpuInstance, ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.outcome.pass_result import GpuOutcome, PartitionOutcome
from nodeagent.report.metrics import AgentMetrics
from partitioning.layouts import Instance

ROUNDS = 5
PROFILE = "1g.10gb"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=8)
    read = parser.parse_args(arguments)
    print(f"{read.nodes} nodes of {read.gpus} GPUs; {'series':>10}{'KiB':>8}{'first ms':>10}{'next ms':>9}")
    for name, registry in (
        ("controller", controller(read.nodes, read.gpus)),
        ("agent", agent(read.gpus, name_pods=False)),
        ("agent with podMetrics", agent(read.gpus, name_pods=True)),
    ):
        seconds, page = zip(*(timed(registry) for _ in range(ROUNDS)), strict=True)
        count = sum(not line.startswith(b"#") for line in page[-1].splitlines())
        rest = min(seconds[1:]) * 1000
        print(f"{name:24}{count:10}{len(page[-1]) / 1024:8.0f}{seconds[0] * 1000:10.1f}{rest:9.1f}")


def timed(registry: CollectorRegistry) -> tuple[float, bytes]:
    began = time.thread_time()
    page = generate_latest(registry)
    return time.thread_time() - began, page


def controller(nodes: int, gpus: int) -> CollectorRegistry:
    """Every pod pending, every plan with all conditions."""
    cluster = instance(nodes=nodes, gpus=gpus, pods=nodes, seed=1, mix=MIXES["plain"])
    state: State = filled(cluster).state
    conditions = tuple((condition.value, "True", Reason.CONFIRMED.value) for condition in Condition)
    for view in cluster.plans:
        state.observe_plan(view.name, replace(reading_of(view), conditions=conditions, version="2"))
    metrics = Metrics(CollectorRegistry())
    window: Batcher[str] = Batcher(idle_seconds=10, timeout_seconds=60, clock=time.monotonic)
    metrics.registry.register(ClusterGauges(state.cluster, window, metrics, clock=time.monotonic))
    return metrics.registry


def agent(gpus: int, *, name_pods: bool) -> CollectorRegistry:
    """Every GPU with seven instances in use."""
    metrics = AgentMetrics("1", clock=time.monotonic, name_pods=name_pods)
    metrics.found([outcome(index) for index in range(gpus)])
    return metrics.registry


def outcome(index: int) -> GpuOutcome:
    placed = [Instance(start=start, size=1, profile=PROFILE) for start in range(7)]
    instances = tuple(
        GpuInstance(
            id=number + 7,
            placed=one,
            compute_slices=1,
            compute=(ComputeInstance(id=0, slices=1, uuid=f"MIG-{index}-{number}"),),
        )
        for number, one in enumerate(placed)
    )
    gpu = ObservedGpu(index=index, uuid=f"GPU-{index:032}", name="NVIDIA H100 80GB HBM3", instances=instances)
    partitions = tuple(
        PartitionOutcome(
            partition=Partition(
                id=f"MIG-{index}-{number}",
                resource=f"nvidia.com/mig-{PROFILE}",
                gpu=gpu.uuid,
                kind=DeviceKind.MIG,
                placed=one,
            ),
            state=PartitionState.USED,
            pod=f"default/pod-{index}-{number}",
        )
        for number, one in enumerate(placed)
    )
    return GpuOutcome(
        index=index,
        gpu=gpu,
        item_hash="x",
        state=GpuState.READY,
        reason=Reason.CONFIRMED,
        partitions=partitions,
    )


if __name__ == "__main__":
    main()
