"""The agent's series about GPUs and partitions, made at each scrape from the outcomes of the last pass.

So a scrape never meets half of a pass, and a GPU or partition that is gone takes its series along. Labels are the GPU's
index and UUID, profiles, places and closed sets of words. The one series with names of pods is made only where an
administrator set it: its labels are those of NVIDIA's DCGM exporter, so that both can be joined.
"""

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from crds.v1alpha1.names import PartitionState
from nodeagent.handover.mps_state import MpsState
from nodeagent.outcome.pass_result import GpuOutcome, fault

STATE_CODES = {
    PartitionState.FREE: 0,
    PartitionState.USED: 1,
    PartitionState.PENDING: 2,
    PartitionState.WITHDRAWN: 3,
    PartitionState.UNKNOWN: 4,
}
"""Values of gpuplan_agent_partition_state, which the dashboard shows as words."""
CODES = ", ".join(f"{code} {state}" for state, code in STATE_CODES.items())


class GpuGauges(Collector):
    def __init__(self, *, clock: Callable[[], float], name_pods: bool) -> None:
        self._clock, self._name_pods = clock, name_pods
        self.seen: tuple[tuple[GpuOutcome, ...], MpsState | None] = (), None
        """By the last pass."""
        self._withdrawn: dict[str, float] = {}

    def collect(self) -> Iterable[Metric]:
        outcomes, mps = self.seen
        yield from _gpus(outcomes)
        yield _mps_daemons(outcomes, mps)
        yield from _partitions(outcomes)
        yield self._oldest_withdrawn(outcomes)
        if self._name_pods:
            yield _pods(outcomes)

    def _oldest_withdrawn(self, outcomes: Iterable[GpuOutcome]) -> Metric:
        now = self._clock()
        ids = [e.partition.id for o in outcomes for e in o.partitions if e.state is PartitionState.WITHDRAWN]
        self._withdrawn = {device_id: self._withdrawn.get(device_id, now) for device_id in ids}
        return GaugeMetricFamily(
            "gpuplan_agent_oldest_withdrawn_seconds",
            "How long the partition that has been withdrawn longest has been so, as scrapes saw it; 0: none is.",
            value=max((now - since for since in self._withdrawn.values()), default=0.0),
        )


def _gpus(outcomes: Collection[GpuOutcome]) -> Iterable[Metric]:
    gpus = _family("gpus", "GPUs of the node by the state of their plan.", "state")
    for state, count in sorted(Tally(str(outcome.state) for outcome in outcomes).items()):
        gpus.add_metric([state], count)
    states = _family("gpu_state", "1 for the present state of each GPU and its reason.", "gpu", "state", "reason")
    healthy = _family("gpu_healthy", "0 while the GPU cannot be read or reports a fault, managed or not.", "gpu")
    info = _family("gpu_info", "1; UUID and model of each GPU.", "gpu", "UUID", "modelName")
    for outcome in outcomes:
        index = str(outcome.index)
        states.add_metric([index, str(outcome.state), str(outcome.reason)], 1)
        if outcome.gpu is not None:
            healthy.add_metric([index], int(not fault(outcome.gpu)))
            info.add_metric([index, outcome.gpu.uuid, outcome.gpu.name], 1)
    return gpus, states, healthy, info


def _mps_daemons(outcomes: Iterable[GpuOutcome], mps: MpsState | None) -> Metric:
    family = _family("mps_daemon_ready", "0 while the MPS daemon of a GPU with slices does not answer.", "gpu")
    index = {outcome.gpu.uuid: outcome.index for outcome in outcomes if outcome.gpu is not None}
    for daemon in mps.daemons if mps is not None else ():
        if daemon.gpu in index:
            family.add_metric([str(index[daemon.gpu])], int(daemon.ready))
    return family


def _partitions(outcomes: Iterable[GpuOutcome]) -> Iterable[Metric]:
    counts = _family("partitions", "Partitions that exist on the node.", "profile", "state")
    states = _family(
        "partition_state",
        f"State of each partition: {CODES}. `slot` is the first memory slice of a MIG instance, or an MPS slice's "
        "number.",
        "gpu",
        "profile",
        "slot",
    )
    tally: Tally[tuple[str, str]] = Tally()
    for outcome in outcomes:
        for entry in outcome.partitions:
            tally[entry.partition.label, str(entry.state)] += 1
            placed = entry.partition.placed
            slot = placed.start if placed is not None else entry.partition.number
            states.add_metric([str(outcome.index), entry.partition.label, str(slot)], STATE_CODES[entry.state])
    for key, count in sorted(tally.items()):
        counts.add_metric(list(key), count)
    return counts, states


def _pods(outcomes: Iterable[GpuOutcome]) -> Metric:
    family = _family(
        "partition_pod_info",
        "1 for each partition in use whose pod is known. Labels as those of NVIDIA's DCGM exporter.",
        *("gpu", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "resource", "namespace", "pod"),
    )
    for outcome in outcomes:
        for entry in outcome.partitions:
            if outcome.gpu is None or not entry.pod:
                continue
            placed = entry.partition.placed
            instance = outcome.gpu.at(placed) if placed is not None else None
            namespace, _, pod = entry.pod.partition("/")
            family.add_metric(
                [
                    str(outcome.index),
                    outcome.gpu.uuid,
                    str(instance.id) if instance is not None else "",
                    placed.profile if placed is not None else "",
                    entry.partition.resource,
                    namespace,
                    pod,
                ],
                1,
            )
    return family


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gpuplan_agent_{name}", text, labels=list(labels))
