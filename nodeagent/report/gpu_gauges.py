"""The agent's series about GPUs and partitions, made at each scrape from the outcomes of the last pass.

So a scrape never meets half of a pass, and a GPU or partition that is gone takes its series along. Labels are the GPU's
index and UUID, profiles, places and closed sets of words. The one series with names of pods is made only where an
administrator set it: its labels are those of NVIDIA's DCGM exporter, so that both can be joined.
"""

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from crds.v1alpha1.names import PartitionState
from kube.telemetry import Series, gauge
from nodeagent.handover.mps_state import MpsState
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.outcome.pass_result import GpuOutcome, PartitionOutcome, fault

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
    text = "GPUs of the node by the state of their plan."
    yield _gauge("gpus", text, "state", Tally(str(outcome.state) for outcome in outcomes))
    states = {(str(outcome.index), str(outcome.state), str(outcome.reason)): 1 for outcome in outcomes}
    yield _gauge("gpu_state", "1 for the present state of each GPU and its reason.", "gpu state reason", states)
    gpus = {str(outcome.index): outcome.gpu for outcome in outcomes if outcome.gpu is not None}
    text = "0 while the GPU cannot be read or reports a fault, managed or not."
    yield _gauge("gpu_healthy", text, "gpu", {index: int(not fault(gpu)) for index, gpu in gpus.items()})
    info = {(index, gpu.uuid, gpu.name): 1 for index, gpu in gpus.items()}
    yield _gauge("gpu_info", "1; UUID and model of each GPU.", "gpu UUID modelName", info)


def _mps_daemons(outcomes: Iterable[GpuOutcome], mps: MpsState | None) -> Metric:
    index = {outcome.gpu.uuid: str(outcome.index) for outcome in outcomes if outcome.gpu is not None}
    daemons = [daemon for daemon in (mps.daemons if mps is not None else ()) if daemon.gpu in index]
    text = "0 while the MPS daemon of a GPU with slices does not answer."
    return _gauge("mps_daemon_ready", text, "gpu", {index[daemon.gpu]: int(daemon.ready) for daemon in daemons})


def _partitions(outcomes: Iterable[GpuOutcome]) -> Iterable[Metric]:
    found = [(str(outcome.index), entry) for outcome in outcomes for entry in outcome.partitions]
    counts = Tally((entry.partition.label, str(entry.state)) for _, entry in found)
    yield _gauge("partitions", "Partitions that exist on the node.", "profile state", counts)
    text = (
        f"State of each partition: {CODES}. `slot` is the first memory slice of a MIG instance, or an MPS slice's "
        "number."
    )
    states = {(gpu, e.partition.label, str(_slot(e.partition))): STATE_CODES[e.state] for gpu, e in found}
    yield _gauge("partition_state", text, "gpu profile slot", states)


def _slot(partition: Partition) -> int:
    return partition.placed.start if partition.placed is not None else partition.number


def _pods(outcomes: Iterable[GpuOutcome]) -> Metric:
    found = [(o.index, o.gpu, entry) for o in outcomes if o.gpu is not None for entry in o.partitions if entry.pod]
    return _gauge(
        "partition_pod_info",
        "1 for each partition in use whose pod is known. Labels as those of NVIDIA's DCGM exporter.",
        "gpu UUID GPU_I_ID GPU_I_PROFILE resource namespace pod",
        {(str(index), gpu.uuid, *_held(gpu, entry)): 1 for index, gpu, entry in found},
    )


def _held(gpu: ObservedGpu, entry: PartitionOutcome) -> tuple[str, ...]:
    """Id and profile of the MIG instance, the resource, and the pod's namespace and name."""
    placed = entry.partition.placed
    instance = gpu.at(placed) if placed is not None else None
    number, profile = str(instance.id) if instance is not None else "", placed.profile if placed is not None else ""
    return (number, profile, entry.partition.resource, *entry.pod.partition("/")[::2])


def _gauge(name: str, text: str, labels: str, values: Mapping[Series, float]) -> Metric:
    return gauge(f"gpuplan_agent_{name}", text, labels, values)
