"""A GPU as one pass found it, with a verdict on each of its partitions, and what may be advertised of it.

Takes verdicts, returns which partitions may be on the device plugin's list. Must never let a partition be advertised
that a second pod could get alongside its holder. Pure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.observed.usage import Use, Verdict
from partitioning.layouts import Instance

NO_IDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGpu:
    """A GPU as this pass found it."""

    gpu: ObservedGpu
    partitions: tuple[Partition, ...]
    verdict: Callable[[Partition], Verdict]
    withdrawn: frozenset[str] = NO_IDS
    """Ids that the config in force, or on its way, withdraws."""
    released: frozenset[str] = NO_IDS
    """Those of them that the kubelet no longer has and that are free: their partitions may be destroyed."""
    unfinished: frozenset[Instance] = frozenset()
    """Placements at which this agent was interrupted."""
    rests: bool = False
    """Nothing of it is destroyed for now, so that what would be is advertised."""

    def split_advertisable(self, usable: Iterable[Partition]) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
        """Which are advertised, and which are not because a pod could get them alongside another holder."""
        found = tuple(usable)
        advertise = tuple(p for p in found if self._may_advertise(p))
        return advertise, tuple(p for p in found if p not in advertise)

    def _may_advertise(self, partition: Partition) -> bool:
        verdict = self.verdict(partition)
        if verdict.other_id or verdict.forgotten:
            # The kubelet takes the id that we advertise for free, and would give it to a second pod.
            return False
        if partition.kind is not DeviceKind.WHOLE or verdict.free or verdict.pod:
            return True
        # Not known to be free now: what is advertised already stays, or it would come and go.
        return partition.id not in self.withdrawn and any(partition.id == p.id for p in self.partitions)

    def split_in_use(self, blocked: Iterable[Partition]) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
        """Which of the blocked ones stay advertised, and which stay withdrawn.

        A held id must stay in the kubelet's list, or it hides a free one from the scheduler, which only counts. One
        that was withdrawn while it was free, and is merely not known to be free now, stays withdrawn: otherwise it
        would flap.
        """
        advertise, unusable = self.split_advertisable(p for p in blocked if p.advertisable)
        quiet = tuple(p for p in advertise if p.id in self.withdrawn and self.verdict(p).use is Use.UNKNOWN)
        return tuple(p for p in advertise if p not in quiet), quiet + unusable

    def with_verdicts(self, found: Iterable[Partition]) -> tuple[tuple[Partition, Verdict], ...]:
        return tuple((partition, self.verdict(partition)) for partition in found)
