"""Reads every witness of use but the driver, in the order that safety needs, and returns the usage of one moment.

First which ids the kubelet still has, then which were handed out, then which pods hold them: an id that is gone from
the kubelet's list cannot have got a holder that the later answers miss. So `read` must come after what the device
plugin has in force was read. A witness that cannot be read makes every id unknown. Changes nothing but its memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from nodeagent.handover.config import Allocation, PluginFiles, read_ledger, read_ledger_mark
from nodeagent.handover.files import Identity, Unreadable
from nodeagent.handover.seen_free import read_seen_free
from nodeagent.hardware.gpu_ids import GpuResources
from nodeagent.observed.ends import EndBook, Ends
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import Allocatable, CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import ObservedPods
from nodeagent.observed.usage import Usage, judge, lists_all_of

HIDDEN_PROCESSES = (
    "the agent does not see the processes of other containers, so the driver lists none of them: run its pod with "
    "hostPID: true"
)


class KubeletReader(Protocol):
    """What a pass reads from the kubelet; see `kubelet.Kubelet`."""

    def listed(self) -> Listed | NoAnswer: ...

    def allocatable(self) -> Allocatable | NoAnswer: ...

    def checkpoint(self) -> tuple[CheckpointEntry, ...]: ...

    def rival_sockets(self) -> tuple[str, ...]: ...

    def identity(self) -> Identity | None: ...

    def seconds_since_start(self) -> float | None: ...

    def shares_processes(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """What the witnesses showed at one moment."""

    allocatable: Allocatable | NoAnswer
    listed: Listed | NoAnswer
    pods: ObservedPods
    usage: Usage
    rival_sockets: tuple[str, ...]
    kubelet: Identity | None
    """Its socket, read before its List; None until that names each living pod that the checkpoint has, with as many
    devices as its containers request."""
    believed_in_seconds: float | None
    """Until the List of a kubelet that has just started is believed."""
    handed_out: tuple[Allocation, ...]
    """The device plugin's ledger of this boot, read before the other witnesses."""
    hidden_processes: str
    """Why the processes on the GPUs are not known, and so no partition is known to be free: a sentence for people."""
    ends: Ends
    """Of pods that are gone."""
    lost: str
    """Why a pod that no record knows may hold any device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """One per agent."""

    kubelet: KubeletReader
    holdings: Holdings
    files: PluginFiles
    ends: EndBook
    kubelet_start_seconds: float
    resources: GpuResources

    def read(self, book: PodBook) -> Witnessed:
        """Read them all; the pods last, after the kubelet's answers."""
        kubelet = self.kubelet.identity()
        allocatable = self.kubelet.allocatable()
        allocations = read_ledger(self.files) or ()
        unusable = f"the device plugin's {allocations}" if isinstance(allocations, Unreadable) else ""
        handed_out = () if isinstance(allocations, Unreadable) else self.holdings.of_this_boot(allocations)
        seconds = self.kubelet.seconds_since_start()
        too_early = self._too_early(seconds) or unusable
        listed = self.kubelet.listed()
        listed = listed.only(self.resources) if isinstance(listed, Listed) else listed
        checkpoint = self.kubelet.checkpoint()
        sees_processes, marks = self.kubelet.shares_processes(), read_seen_free(self.files).allocations
        # What was seen free since a record was lost has no holder that only this one named.
        unsure = [entry for entry in handed_out if not entry.again or marks.get(entry.id) != entry.at]
        # After the ledger: one that was put aside before that was read shows now.
        lost_ledger, mark = self.files.lost_ledger, read_ledger_mark(self.files)
        pods = book.observed()
        checkpoint += _of_finished(pods, listed)
        unseen = self.holdings.unseen(unsure)
        ends = self.ends.judge(
            self.holdings.gone(pods, checkpoint, handed_out),
            pods,
            NoAnswer(reason=too_early) if too_early else listed,
            doubted=self.holdings.doubts(unsure, lost_ledger, mark),
            asked=self.holdings.asks(unsure, listed),
            unseen=unseen,
            seen=sees_processes,
            handed_out={entry.id: entry for entry in handed_out},
        )
        unrecorded = self.holdings.records.unrecorded(lost_ledger, mark)
        if unrecorded and (unnamed := self.holdings.unnamed(pods, listed, checkpoint, ends)):
            ends = replace(ends, strangers=unnamed, stray=True)
        book.end(ends.ended)
        pods = book.observed()
        lost = self.holdings.records.lost(lost_ledger, mark, ends, too_early)
        believed = not (too_early or lost)
        votes = self.holdings.votes(pods, listed, handed_out, checkpoint, ends, unseen=unseen, believed=believed)
        return Witnessed(
            allocatable=allocatable,
            listed=listed,
            pods=pods,
            usage=judge(pods, listed, votes, too_early=too_early or lost or self.holdings.problem),
            rival_sockets=self.kubelet.rival_sockets(),
            handed_out=handed_out,
            kubelet=None if too_early or _admits(pods, checkpoint, listed) else kubelet,
            believed_in_seconds=self.kubelet_start_seconds - seconds if seconds is not None else None,
            hidden_processes="" if sees_processes else HIDDEN_PROCESSES,
            ends=ends,
            lost=lost,
        )

    def _too_early(self, seconds: float | None) -> str:
        if seconds is None:
            return "the kubelet does not serve pod-resources"
        if seconds < self.kubelet_start_seconds:
            # Not how long ago: a sentence that changes every second would be a status write every second.
            return f"the kubelet started just now, and what it lists is believed after {self.kubelet_start_seconds:g} s"
        return ""


def _of_finished(pods: ObservedPods, listed: Listed | NoAnswer) -> tuple[CheckpointEntry, ...]:
    """What the kubelet lists with pods that have ended by the API alone: no other record may have it."""
    lists = listed if isinstance(listed, Listed) else Listed()
    found = ((pod.uid, lists.ids([pod.key])) for pod in pods.pods if pod.ended)
    return tuple(CheckpointEntry(pod_uid=uid, ids=tuple(sorted(ids))) for uid, ids in found if ids)


def _admits(pods: ObservedPods, checkpoint: Iterable[CheckpointEntry], listed: Listed | NoAnswer) -> bool:
    """A kubelet that has started may not have admitted every pod again yet that its checkpoint names."""
    if isinstance(listed, NoAnswer):
        return True
    named = {entry.pod_uid for entry in checkpoint}
    living = (pod for pod in pods.pods if pod.uid in named and not pod.ended)
    # Never listed are the devices of init containers, and some kubelets' claims.
    return not all(pod.key in listed.pods and lists_all_of(pod, listed.pods[pod.key]) for pod in living)
