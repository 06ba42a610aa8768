"""Summarises what one pass observed and did, GPU by GPU, and keeps short doubts out of the status.

Every pod that comes makes the List incomplete for some milliseconds. For what may be destroyed such a doubt counts at
once; the status would only flicker, and the controller freezes by its own view of bound pods anyway. So Unknown
replaces Free once it has lasted; Used is never held back. Must never decide what may be destroyed.
"""

from collections.abc import Callable, Mapping

from crds.v1alpha1.names import GpuState
from nodeagent.desired.items import DesiredItem
from nodeagent.desired.target import no_such_gpu
from nodeagent.durations import Durations
from nodeagent.hardware.partitions import existing
from nodeagent.observed.kubelet import Listed
from nodeagent.observed.orphans import OrphanBook, Orphans
from nodeagent.observed.usage import Use, Verdict
from nodeagent.outcome.gpu_notes import notes
from nodeagent.outcome.gpu_outcome import gpu_outcome, partition_outcome
from nodeagent.outcome.pass_result import GpuOutcome, PartitionOutcome, PassResult, PassWork
from nodeagent.outcome.release import release
from nodeagent.steps.changes import GpuChange

DOUBT_SECONDS = 2.0
"""A new pod is in watch and List within this time."""


class DebouncedVerdicts:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._durations = Durations(clock)
        self._free: set[str] = set()
        self._now_free: set[str] = set()
        self._held_back = False

    def of(self, device_id: str, verdict: Verdict) -> Verdict:
        """The verdict to report on an id in this pass."""
        doubted = verdict.use is Use.UNKNOWN and device_id in self._free
        if doubted and self._durations.seconds(device_id) < DOUBT_SECONDS:
            self._held_back = True
            verdict = Verdict(use=Use.FREE)
        if verdict.free:
            self._now_free.add(device_id)
        return verdict

    def end_pass(self) -> bool:
        """True: some doubt was held back in this pass."""
        held_back, self._held_back = self._held_back, False
        self._free, self._now_free = self._now_free, set()
        self._durations.end_pass()
        return held_back


class Outcomes:
    """Call `of` once a pass."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._orphan_book, self._debounced = OrphanBook(), DebouncedVerdicts(clock)

    def of(self, work: PassWork) -> PassResult:
        """One outcome per GPU, and per index of the plan that no GPU has."""
        observation = work.observation
        # By the config from before this pass: it still names the GPU of a device that is gone.
        before = observation.readings.config.devices
        # A pod that the kubelet does not list has ended, whatever a late watch or the checkpoint says.
        listed = observation.witnessed.listed
        titles = {"/".join(key) for key in listed.pods} if isinstance(listed, Listed) else ()
        held = {i: pod for i, pod in observation.usage.held.items() if pod in titles}
        orphans = self._orphan_book.by_gpu(held, observation.gpus, before)
        outcomes = tuple(found for item in work.desired.items if (found := self._outcome(item, work, orphans)))
        held_back = self._debounced.end_pass()
        return PassResult(work=work, outcomes=outcomes, release=release(work), doubts_held_back=held_back)

    def _outcome(self, item: DesiredItem, work: PassWork, orphans: Mapping[str, Orphans]) -> GpuOutcome | None:
        if item.gpu is None:
            # With a driver that does not answer the number of GPUs is unknown.
            if work.observation.driver_problem is not None:
                return None
            refused = no_such_gpu(item.gpu_item, item.index, len(work.observation.gpus))
            return GpuOutcome(
                index=item.index,
                gpu=None,
                item_hash=item.item_hash,
                state=GpuState.FAILED,
                reason=refused.reason,
                message=refused.message,
            )
        change, uuid = work.changes[item.index], item.gpu.uuid
        partitions = self._partitions(change, work)
        said = () if work.observation.driver_closed else notes(work, change, partitions, orphans.get(uuid, ()))
        return gpu_outcome(item, work, partitions, said)

    def _partitions(self, change: GpuChange, work: PassWork) -> tuple[PartitionOutcome, ...]:
        """Everything on a GPU, including what this pass has just begun to advertise."""
        here = existing(change.gpu, work.advertised.config, work.observation.usage.held)
        by_id = {partition.id: partition for partition in [*here, *change.advertise]}
        ordered = sorted(by_id.values(), key=lambda partition: partition.rank)
        verdicts = ((p, self._debounced.of(p.id, work.observation.verdict(p, change.gpu))) for p in ordered)
        return tuple(partition_outcome(p, verdict, work.advertised) for p, verdict in verdicts)
